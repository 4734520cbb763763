"""What operations on consumer groups make of the answers of several brokers."""

from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.model.message_queue import MessageQueue
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.directory import (
    Broker,
    Directory,
    KnownGroup,
    read_directory,
)
from bolide.operations.consumers.figures import LiveGroup, delay_in
from bolide.operations.consumers.warnings import WarningKind, warnings_of
from bolide.operations.errors import BadInput, NotFound
from bolide.operations.views import Failure
from bolide.protocol.bodies.consumers import ConsumerConnections
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigTable
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.bodies.offsets import QueueTimeSpan
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo
from bolide.protocol.bodies.stats import QueueProgress
from bolide.remoting.errors import ConnectFailed
from tests.support.aio import on_loop

A, B = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)
RETRY = MessageQueue("%RETRY%g", "a", 0)
BROKERS = {name: Broker(name=name, address=f"{name}:1", cluster="c") for name in ("a", "b")}


def known(**settings: dict[str, Any]) -> KnownGroup:
    """The group g with settings by name of the broker."""
    configs = {at: GroupConfig(group_name="g", **each) for at, each in settings.items()}
    return KnownGroup(name="g", configs=configs)


def live(group: KnownGroup, **told: Any) -> LiveGroup:
    progress = {
        A: QueueProgress(broker_offset=9, consumer_offset=4),
        B: QueueProgress(broker_offset=3, consumer_offset=3),
        RETRY: QueueProgress(broker_offset=2, consumer_offset=0),
    }
    given: dict[str, Any] = {
        "asked": [*BROKERS.values()],
        "connections": {},
        "members_known": True,
        "progress": progress,
        "progress_known": True,
        "uncommitted": {},
        "tps": 0.0,
    }
    return LiveGroup(group=group, **given | told)


def test_lag_is_unknown_unless_all_brokers_tell_it() -> None:
    group = known(a={}, b={})
    found = live(group)
    assert (found.lag, found.retrying, found.client_count) == (5, 2, 0)
    assert found.lag_of_topic("T") == 5
    partial = live(group, progress_known=False, members_known=False)
    assert (partial.lag, partial.retrying, partial.client_count) == (None, None, None)
    assert partial.lag_of_topic("T") is None
    nothing = live(group, progress={}, uncommitted={A: 9})
    assert nothing.lag is None and nothing.topics == ["T"]


def test_no_broker_knows_the_lag_of_a_group_that_broadcasts() -> None:
    connections = ConsumerConnections(
        consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=MessageModel.BROADCASTING
    )
    assert live(known(a={}), connections={"a": connections}).lag is None


@pytest.mark.parametrize(
    ("delay", "age"),
    [
        (1500, 1.5),
        (0, None),  # RocketMQ's value if it does not tell
        (1_800_000_000_000, None),  # since 1970: the message is not there any more
    ],
)
def test_delay_is_unknown_without_a_time(delay: int, age: float | None) -> None:
    span = QueueTimeSpan(message_queue=A, delay_time=delay)
    assert delay_in(QueueProgress(broker_offset=9, consumer_offset=4), span) == age
    assert delay_in(QueueProgress(broker_offset=9, consumer_offset=9), span) == 0.0
    assert delay_in(QueueProgress(broker_offset=9, consumer_offset=4), None) is None


def test_settings_that_differ_between_brokers_are_a_warning() -> None:
    def kinds(group: KnownGroup, **told: Any) -> list[WarningKind]:
        return [each.kind for each in warnings_of(group, live(group, **told), 0, None)]

    online = {"members_known": False}
    assert kinds(known(a={}, b={}), **online) == []
    assert kinds(known(a={}, b={"retry_max_times": 1}), **online) == [WarningKind.SETTINGS_DIFFER]
    partly = kinds(known(a={}, b={"consume_enable": False}), **online)
    assert partly == [WarningKind.PARTLY_PAUSED]
    paused = {"consume_enable": False}
    assert kinds(known(a=paused, b=paused), **online) == [WarningKind.PAUSED]
    assert kinds(known()) == [WarningKind.NO_SETTINGS, WarningKind.OFFLINE_WITH_LAG]


def test_only_brokers_of_the_cluster_are_chosen() -> None:
    directory = Directory(groups={}, brokers=BROKERS, failures=[Failure(server="b", reason="off")])
    assert [each.name for each in directory.chosen(["b"], ["a"])] == ["b"]
    assert [each.name for each in directory.chosen(None, ["a", "gone"])] == ["a"]
    with pytest.raises(BadInput, match="there are: a, b"):
        directory.chosen(["x"], [])
    with pytest.raises(NotFound, match="b: off"):
        directory.group("g")


class Refused(ConnectFailed):
    def __init__(self) -> None:
        super().__init__("b:1", "refused")


@on_loop
async def test_groups_are_found_by_settings_offsets_and_retry_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = AdminClient("h:1")
    routes = {
        name: BrokerRoute(broker_name=name, cluster="c", broker_addrs={0: f"{name}:1"})
        for name in BROKERS
    }

    async def info() -> ClusterInfo:
        return ClusterInfo(broker_addr_table=routes, cluster_addr_table={"c": ["a", "b"]})

    async def names() -> list[str]:
        retry = ["by_members", "g_a_Topic_x", "g_a+Topic", "g_a_other"]  # the last is a group
        return [*(f"%RETRY%{name}" for name in retry), "%DLQ%g_a", "Topic_x", "Topic"]

    async def configs(address: str) -> GroupConfigTable:
        if address == "b:1":
            raise Refused
        table = {"g_a": GroupConfig(group_name="g_a")}
        forbidden = {"g_a": {"T": 4, "Other": 0}}
        return GroupConfigTable(subscription_group_table=table, forbidden_table=forbidden)

    async def with_offsets(address: str) -> set[str]:
        if address == "b:1":
            raise Refused
        return {"by_offsets"}

    monkeypatch.setattr(admin.clusters, "info", info)
    monkeypatch.setattr(admin.topics, "names", names)
    monkeypatch.setattr(admin.groups, "configs", configs)
    monkeypatch.setattr(admin.offsets, "groups_with_offsets_at", with_offsets)
    directory = await read_directory(Cluster(admin=admin, name_servers="h:1"))
    assert sorted(directory.groups) == ["by_members", "by_offsets", "g_a", "g_a_other"]
    group = directory.group("g_a")
    assert group.retry_topics == ["%RETRY%g_a+Topic", "%RETRY%g_a_Topic_x"]
    assert group.has_dead_letters and group.forbidden == {"a": {"T"}}
    assert [each.name for each in directory.brokers_of(group)] == ["a"]
    both = directory.brokers_of(directory.group("by_members"))
    assert [each.name for each in both] == ["a", "b"]
    assert [each.server for each in directory.failures] == ["b"]
