"""Users, policies, accounts and the tester, at brokers of ours in this process."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.arrow.cluster import Connection
from bolide.auth.policies.model import UserStatus, UserType
from bolide.broker.server import Broker
from bolide.model.names import PIPELINE_TOPIC
from bolide.namesrv.server import NameServer
from bolide.operations.access import brokers as access_brokers
from bolide.operations.access.brokers import AccessKind, access_overview
from bolide.operations.access.changes import (
    create_user,
    delete_policy,
    delete_user,
    put_policy,
    replace_password,
    update_user,
)
from bolide.operations.access.check import AccessDecision, check_access
from bolide.operations.access.plain_accounts import (
    delete_account,
    get_account,
    get_white_lists,
    list_accounts,
    put_account,
    put_account_effect,
    put_white_list,
)
from bolide.operations.access.users import AccessEffect, get_user, list_users
from bolide.operations.audit_store import AuditQuery, AuditStore
from bolide.operations.cluster import Cluster, Identity
from bolide.operations.declaration import Operation, Role
from bolide.operations.door import CONFIRMED, Caller, Door
from bolide.operations.errors import (
    BadInput,
    ConfirmationNeeded,
    Conflict,
    NotFound,
    NotSupported,
    RoleTooLow,
)
from bolide.operations.pipelines import list_pipelines
from bolide.protocol.bodies.pipelines import Progress
from bolide.protocol.refusals import NoPermission, RequestCodeNotSupported
from bolide.spark.pipelines.monitoring.reporter import Reporter, new_run
from bolide.spark.pipelines.monitoring.status_topic import StatusTopic
from tests.support.access import FIRST_USER, INNER, ROOT, ROOT_PASSWORD
from tests.support.aio import PATIENCE, on_loop
from tests.support.broker import configs_in
from tests.support.name_servers import config_in

ACCESS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": FIRST_USER,
    "inner_client_authentication_credentials": INNER,
}
ACL = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: administrator
  secretKey: secret-of-admin
  admin: true
- accessKey: orders-app
  secretKey: secret-of-orders
  topicPerms: [Orders=PUB|SUB]
  groupPerms: [readers=SUB]
"""
ADMIN = Caller(name="ada", role=Role.ADMIN, source="api")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at changed files of users without delay."""
    monkeypatch.setattr("bolide.auth.policies.metadata.CHECK_INTERVAL", 0.02)


class Console:
    """Runs operations through the door, as pages do."""

    def __init__(self, cluster: Cluster, audit: AuditStore) -> None:
        self.cluster = cluster
        self.audit = audit
        self._door = Door(audit)

    async def run(self, operation: Operation[Any, Any], **arguments: Any) -> Any:
        return await self._door.run(
            operation, self.cluster, ADMIN, arguments, confirmation=CONFIRMED
        )

    async def effect(self, operation: Operation[Any, Any], **arguments: Any) -> AccessEffect:
        effect, _ = await self._door.preview(operation, self.cluster, ADMIN, arguments)
        assert isinstance(effect, AccessEffect)
        return effect

    async def check(self, username: str, action: str, resource: str, **more: str) -> AccessDecision:
        self.cluster.forget()
        return await check_access.function(
            self.cluster, username=username, action=action, resource=resource, **more
        )


@asynccontextmanager
async def console(
    directory: Path, access: dict[str, Any], key: str = "", secret: str = ""
) -> AsyncIterator[Console]:
    shared = {"auth_config_path": directory / "auth"} if "authentication_enabled" in access else {}
    names = config_in(directory / "namesrv", **(access | shared if shared else {}))
    async with NameServer(names) as name_server:
        address = name_server.address
        config, store = configs_in(directory, name_servers=(address,), **access, **shared)
        async with (
            Broker(config, store),
            AdminClient(address, access_key=key or None, secret_key=secret or None) as admin,
            AuditStore(directory / "audit.db") as audit,
        ):
            identity = Identity(access_key=key or None, secret_key=secret or None)
            yield Console(
                Cluster(admin=admin, name_servers=address, identity=identity, own_audit=audit),
                audit,
            )


@on_loop
async def test_users_and_policies_are_made_changed_tested_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(tmp_path, ACCESS, ROOT, ROOT_PASSWORD) as shown:
        cluster, run = shown.cluster, shown.run
        overview = await access_overview.function(cluster)
        assert (overview.kind, overview.identity, overview.hint) == (AccessKind.USERS, ROOT, "")
        (broker,) = overview.brokers
        assert (broker.user, broker.is_super, broker.decides) == (ROOT, True, True)
        with pytest.raises(NotSupported, match=r"by users and policies \(ACL 2\.0\)"):
            await list_accounts.function(cluster)

        made = await run(create_user, username="shop")
        assert len(made.password) >= 32
        given = await run(create_user, username="billing", password="a-good-secret")
        assert given.password is None
        with pytest.raises(Conflict, match="exists already"):
            await run(create_user, username="shop")
        with pytest.raises(BadInput, match="at least 8"):
            await run(create_user, username="else", password="short")
        async with AdminClient(
            cluster.name_servers, access_key="shop", secret_key=made.password
        ) as admin:
            assert (await admin.permissions.who_am_i(broker.address)).access_key == "shop"

        await run(put_policy, username="shop", resource="Topic:ord*", actions=["pub", "Sub"])
        await run(
            put_policy,
            username="shop",
            resource="Topic:orders-secret",
            actions=["All"],
            decision="Deny",
        )
        await run(
            put_policy,
            username="shop",
            resource="Group:g",
            actions=["Sub"],
            sources=["10.0.0.0/8"],
        )
        user = await get_user.function(cluster, username="shop")
        assert [str(policy) for policy in user.policies] == [
            "Allow Sub on Group:g from 10.0.0.0/8",
            "Allow Pub, Sub on Topic:ord*",
            "Deny All on Topic:orders-secret",
        ]
        listed = await list_users.function(cluster, search="secret")
        assert [each.username for each in listed.items] == ["shop"]
        assert "password" not in repr(listed)

        told = await decisions(shown)
        monkeypatch.setattr(cluster.admin.permissions, "can_i", not_supported)
        monkeypatch.setattr(cluster.admin.permissions, "who_am_i", not_supported)
        evaluated = await decisions(shown)
        assert [(each.allowed, each.brokers[0].needs) for each in evaluated] == [
            (each.allowed, each.brokers[0].needs) for each in told
        ]
        assert {each.brokers[0].evaluated_here for each in told} == {False}
        assert {each.brokers[0].evaluated_here for each in evaluated} == {True}
        assert [each.allowed for each in told] == [True, False, False, True, False, False, True]
        denied = told[1].brokers[0]
        assert denied.needs[0].needs == "Pub on Topic:orders-secret"
        assert str(denied.needs[0].rule) == "Deny All on Topic:orders-secret"
        assert evaluated[4].brokers[0].reason == "Sub on Group:g: no policy matches"
        monkeypatch.undo()
        await secrets_are_nowhere(shown, made.password, "a-good-secret")


QUESTIONS = (
    ("shop", "Pub", "Topic:orders"),
    ("shop", "Pub", "Topic:orders-secret"),
    ("shop", "Delete", "Topic:orders"),
    ("shop", "Sub", "Group:g"),
    ("shop", "Sub", "Group:g", "11.0.0.1"),
    ("nobody", "Sub", "Group:g"),
    ("root", "Update", "Cluster:DefaultCluster"),
)


async def decisions(shown: Console) -> list[AccessDecision]:
    return [
        await shown.check(user, action, resource, source=source[0] if source else "10.1.2.3")
        for user, action, resource, *source in QUESTIONS
    ]


async def not_supported(*_: object, **__: object) -> None:
    raise RequestCodeNotSupported("request type 99 not supported")


async def secrets_are_nowhere(shown: Console, *secrets: str) -> None:
    page = await shown.audit.page(AuditQuery(), skip=0, limit=1000)
    text = repr(page)
    assert "create_user" in text
    assert not [secret for secret in secrets if secret in text]


@on_loop
async def test_what_no_broker_would_take_is_refused_by_its_field(tmp_path: Path) -> None:
    async with console(tmp_path, ACCESS, ROOT, ROOT_PASSWORD) as shown:
        await shown.run(create_user, username="shop")
        for wrong, field in (
            ({"resource": "Topic", "actions": ["Pub"]}, "resource"),
            ({"resource": "Topic:a", "actions": ["Dance"]}, "actions"),
            ({"resource": "Topic:a", "actions": []}, "actions"),
            ({"resource": "Topic:a", "actions": ["Pub"], "sources": ["1.2"]}, "sources"),
        ):
            with pytest.raises(BadInput) as bad:
                await shown.run(put_policy, username="shop", **wrong)
            assert bad.value.field == field
        for pattern in ("Topic:a*", "*", "Topic"):
            with pytest.raises(BadInput, match="resource"):
                await shown.check("shop", "Pub", pattern)


@on_loop
async def test_what_is_taken_away_is_told_first(tmp_path: Path) -> None:
    async with console(tmp_path, ACCESS, ROOT, ROOT_PASSWORD) as shown:
        cluster, run = shown.cluster, shown.run
        for name in ("shop", "billing"):
            await run(create_user, username=name)
        await run(put_policy, username="shop", resource="Topic:ord*", actions=["Pub", "Sub"])

        lost = await shown.effect(delete_policy, username="shop", resource="Topic:ord*")
        assert (lost.loses, lost.gains) == (["Allow Pub, Sub on Topic:ord*"], [])
        await run(delete_policy, username="shop", resource="Topic:ord*")
        with pytest.raises(NotFound, match="no policy about Topic:ord"):
            await run(delete_policy, username="shop", resource="Topic:ord*")

        own = await shown.effect(update_user, username=ROOT, status=UserStatus.DISABLE)
        assert own.warnings == [
            "root is the last enabled super user: nobody could manage users then",
            "root is the user of this session, which may be unable to undo the change",
        ]
        await run(update_user, username="billing", user_type=UserType.SUPER)
        deleted = await shown.effect(delete_user, username="billing")
        assert deleted.warnings == []
        assert "everything, as a super user" in deleted.loses
        renewed = await run(replace_password, username="billing")
        await run(update_user, username="billing", status=UserStatus.DISABLE)
        await run(delete_user, username="billing")
        with pytest.raises(NotFound, match="no user 'billing'"):
            await get_user.function(cluster, username="billing")
        await secrets_are_nowhere(shown, renewed.password)


@on_loop
async def test_changes_of_access_need_an_admin_and_a_confirmation(tmp_path: Path) -> None:
    async with console(tmp_path, ACCESS, ROOT, ROOT_PASSWORD) as shown:
        door = Door(shown.audit)
        operator = Caller(name="bob", role=Role.OPERATOR, source="api")
        with pytest.raises(RoleTooLow):
            await door.run(create_user, shown.cluster, operator, {"username": "x"})
        await shown.run(create_user, username="shop")
        with pytest.raises(ConfirmationNeeded) as needed:
            await door.run(delete_user, shown.cluster, ADMIN, {"username": "shop"})
        await door.run(
            delete_user,
            shown.cluster,
            ADMIN,
            {"username": "shop"},
            confirmation=needed.value.token,
        )
        assert (await list_users.function(shown.cluster)).total == 1

        async with AdminClient(shown.cluster.name_servers) as nobody:
            stranger = Cluster(admin=nobody, name_servers=shown.cluster.name_servers)
            with pytest.raises(NoPermission):
                await list_users.function(stranger)


@on_loop
async def test_a_pipeline_that_may_not_report_goes_on_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(tmp_path, ACCESS, ROOT, ROOT_PASSWORD) as shown:
        made = await shown.run(create_user, username="pipe")

        def report() -> None:
            connection = Connection(
                name_server=shown.cluster.name_servers, access_key="pipe", secret_key=made.password
            )
            run = new_run("orders", "a to b", once=True, interval=0.02)
            with Reporter(StatusTopic(connection), run, stop=threading.Event()) as reporter:
                for rows in range(5):
                    time.sleep(0.03)
                    reporter.record_progress(Progress(rows=rows))

        await known_to_name_server(shown, "pipe", made.password)
        await asyncio.to_thread(report)
        assert (await list_pipelines.function(shown.cluster)).total == 0
        warnings = [each.getMessage() for each in caplog.records if "pipeline" in each.name]
        assert len(warnings) == 1
        assert warnings[0].startswith("cannot publish the state of the pipeline, which continues")

        allowed = {"username": "pipe", "resource": f"Topic:{PIPELINE_TOPIC}"}
        await shown.run(put_policy, actions=["Pub"], **allowed)
        await known_to_name_server(shown, "pipe", made.password, PIPELINE_TOPIC)
        await asyncio.to_thread(report)
        assert (await list_pipelines.function(shown.cluster)).total == 1


async def known_to_name_server(shown: Console, name: str, secret: str, topic: str = "") -> None:
    """Wait until it has read a user, and that the user may send, from the files of the broker."""
    address = shown.cluster.name_servers
    async with (
        AdminClient(address, access_key=name, secret_key=secret) as admin,
        asyncio.timeout(PATIENCE),
    ):
        while True:
            try:
                await admin.permissions.who_am_i(address)
                told = await admin.permissions.can_i(address, f"Topic:{topic or 'T'}", "Pub")
                if told.allowed or not topic:
                    return
            except NoPermission:
                pass
            await asyncio.sleep(0.01)


@on_loop
async def test_accounts_of_acl_1_are_changed_and_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.write_text(ACL)
    file.chmod(0o600)
    settings = {"acl_enable": True, "rocketmq_home": str(tmp_path)}
    async with console(tmp_path, settings, "administrator", "secret-of-admin") as shown:
        cluster, run = shown.cluster, shown.run
        assert (await access_overview.function(cluster)).kind is AccessKind.ACCOUNTS
        with pytest.raises(NotSupported, match=r"by accounts \(ACL 1\.0\)"):
            await list_users.function(cluster)
        listed = await list_accounts.function(cluster)
        assert [each.access_key for each in listed.items] == ["administrator", "orders-app"]

        columns: dict[str, Any] = {"topics": ["Orders=SUB"], "groups": ["readers=SUB"]}
        effect = await put_account_effect(cluster, access_key="orders-app", **columns)
        assert (effect.loses, effect.gains) == (["topic Orders=PUB|SUB"], ["topic Orders=SUB"])
        kept = await run(put_account, access_key="orders-app", **columns)
        assert kept.secret_key is None
        made = await run(put_account, access_key="billing-app", default_topic="PUB")
        assert made.secret_key
        with pytest.raises(BadInput, match="name=PUB"):
            await run(put_account, access_key="billing-app", topics=["Orders"])
        demoted = await shown.effect(put_account, access_key="administrator")
        assert demoted.warnings[0].startswith("administrator is the last administrator")

        questions = [
            ("orders-app", "Pub", "Topic:Orders"),
            ("orders-app", "Sub", "Topic:Orders"),
            ("billing-app", "Pub", "Topic:Orders"),
            ("billing-app", "Create", "Topic:Orders"),
            ("administrator", "Create", "Topic:Orders"),
            ("nobody", "Pub", "Topic:Orders"),
        ]
        told = [await shown.check(*each) for each in questions]
        monkeypatch.setattr(cluster.admin.permissions, "can_i", not_supported)
        evaluated = [await shown.check(*each) for each in questions]
        monkeypatch.undo()
        assert [each.allowed for each in told] == [False, True, True, False, True, False]
        assert [each.allowed for each in evaluated] == [each.allowed for each in told]

        await run(delete_account, access_key="billing-app")
        with pytest.raises(NotFound):
            await get_account.function(cluster, access_key="billing-app")
        await run(put_white_list, addresses=["10.9.8.*"])
        (white,) = (await get_white_lists.function(cluster)).brokers
        assert white.addresses == ["10.9.8.*"]
        assert (await shown.check("nobody", "Pub", "Topic:T", source="10.9.8.7")).allowed
        page = await shown.audit.page(AuditQuery(), skip=0, limit=100)
        assert made.secret_key not in repr(page)
        assert "secret-of" not in repr(page)


@on_loop
async def test_a_cluster_without_access_control_says_how_to_turn_it_on(tmp_path: Path) -> None:
    async with console(tmp_path, {}) as shown:
        overview = await access_overview.function(shown.cluster)
        assert (overview.kind, overview.hint) == (AccessKind.OFF, access_brokers.TURN_ON)
        with pytest.raises(NotSupported, match="authenticationEnabled=true"):
            await list_users.function(shown.cluster)
        with pytest.raises(NotSupported, match="everybody may do everything"):
            await shown.check("a", "Pub", "Topic:b")
