"""The audit of the console and of a broker of ours as a process, as one list."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.operations import audit
from bolide.operations.audit import AuditOrigin, Difference, list_changes
from bolide.operations.audit_store import AuditStore
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role
from bolide.operations.door import AuditEntry, Caller
from bolide.operations.errors import BadInput
from bolide.protocol.bodies.audit import AuditPage
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import RequestCodeNotSupported
from tests.support.admin_cluster import Cluster as Servers
from tests.support.aio import on_loop

ADA = Caller(name="ada", role=Role.OPERATOR, source="api 127.0.0.1")


def entry(target: str, before: object, after: object, **facts: Any) -> AuditEntry:
    return AuditEntry(
        caller=ADA,
        operation="topics.update_topic",
        target=target,
        arguments={"topic": target},
        before=before,
        after=after,
        **facts,
    )


@on_loop
async def test_both_audits_are_one_list_newest_first(
    cluster: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_FRESH_SECONDS", 0.0)
    async with (
        AdminClient(cluster.name_server) as admin,
        AuditStore(tmp_path / "audit.db") as store,
    ):
        shown = Cluster(admin=admin, name_servers=cluster.name_server, own_audit=store)
        await store.write(entry("topic A", {"unknown": "no topic"}, {"perm": 6, "queues": [1, 2]}))
        topic = TopicConfig(topic_name="Audited", read_queue_nums=2, write_queue_nums=2)
        await asyncio.sleep(0.01)  # times are in milliseconds
        await admin.topics.update(cluster.broker, topic)
        topic.perm = 4
        await admin.topics.update(cluster.broker, topic)
        await asyncio.sleep(0.01)
        await store.write(
            entry(
                "topic A",
                {"perm": 6, "inner": {"a": 1, "b": None}, "queues": [1, 2]},
                {"perm": 4, "inner": {"a": 1, "b": "x"}, "queues": [2, 3]},
            )
        )
        await store.write(entry("topic B", None, None, error="no such broker"))

        found = await list_changes.function(shown)
        assert found.total == 5
        assert found.complete and found.console_recorded and not found.failures
        assert [each.origin.value for each in found.items] == [
            "console",
            "console",
            "broker",
            "broker",
            "console",
        ]
        assert found.items[1].differences == [
            Difference(name="perm", before="6", after="4"),
            Difference(name="inner.b", before=None, after='"x"'),
            Difference(name="queues", before="1", after=None),
            Difference(name="queues", before=None, after="3"),
        ]
        assert found.items[4].differences == [
            Difference(name="perm", before=None, after="6"),
            Difference(name="queues", before=None, after="[1, 2]"),
        ]
        assert (found.items[0].succeeded, found.items[0].error) == (False, "no such broker")
        changed = found.items[2]
        assert (changed.operation, changed.server != "", changed.succeeded) == (
            "UPDATE_AND_CREATE_TOPIC",
            True,
            True,
        )
        assert changed.differences == [Difference(name="Audited.perm", before="6", after="4")]
        assert len({each.id for each in found.items}) == 5

        second = await list_changes.function(shown, page=2, size=2)
        assert second.items == found.items[2:4]
        last = await list_changes.function(shown, page=9, size=2)
        assert (last.page, last.items) == (3, found.items[4:])
        only = await list_changes.function(shown, origin=AuditOrigin.BROKER, search="audited")
        assert only.items == found.items[2:4]
        assert (await list_changes.function(shown, user="ada", failed=True)).total == 1
        assert (await list_changes.function(shown, target="topic b")).total == 1
        assert (await list_changes.function(shown, since_ms=2**42)).total == 0
        with pytest.raises(BadInput, match="until_ms"):
            await list_changes.function(shown, since_ms=2, until_ms=1)

        monkeypatch.setattr(audit, "MAX_RECORDS", 1)
        cut = await list_changes.function(shown, origin=AuditOrigin.BROKER)
        assert (cut.complete, cut.items) == (False, [changed])
        assert cut.without_audit == []


@on_loop
async def test_brokers_without_an_audit_are_named(
    cluster: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AdminClient(cluster.name_server) as admin:

        async def page(address: str, **_: object) -> AuditPage:
            raise RequestCodeNotSupported("none")  # as RocketMQ's brokers

        monkeypatch.setattr(admin.audit, "page", page)
        shown = Cluster(admin=admin, name_servers=cluster.name_server)
        found = await list_changes.function(shown)
        assert (found.without_audit, found.items) == (["broker-a"], [])
