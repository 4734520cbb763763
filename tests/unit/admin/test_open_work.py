"""What keeps a broker from being stopped, of brokers that answer as RocketMQ's do."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.admin.drain import Plan
from bolide.admin.open_work import Round, Watch
from bolide.cli import app
from bolide.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from bolide.protocol.bodies.consumers import Connection, ConsumerConnections, ProducerTable
from bolide.protocol.bodies.groups import GroupList
from bolide.protocol.bodies.heartbeat import MessageModel, Subscription
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.replication import HaConnection, HaStatus
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo, KvTable
from bolide.protocol.bodies.stats import BrokerConsumeStats, ConsumeStats, QueueProgress
from bolide.protocol.bodies.topics import (
    MappedTopicConfigTable,
    TopicConfig,
    TopicOffset,
    TopicStats,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import OffsetReply
from bolide.protocol.refusals import (
    QueryNotFound,
    RequestCodeNotSupported,
    ServerError,
    TopicNotFound,
)
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import CLUSTER, Cast, _reply, cast

REVIVE = f"rmq_sys_REVIVE_LOG_{CLUSTER}"


@dataclass(frozen=True)
class Broker:
    """What a broker of RocketMQ tells."""

    settings: str = ""
    figures: tuple[tuple[str, str], ...] = (("commitLogMaxOffset", "1"),)
    ends: tuple[tuple[str, int, int], ...] = ()
    """Topic, first and next offset of its only queue."""
    stored: int = 0
    """Milliseconds of the last write to each topic."""
    committed: int = 0
    lag: tuple[int, int] | None = None
    """End and position of a group in topic T."""
    slaves: tuple[HaConnection, ...] | None = None


@asynccontextmanager
async def watching(broker: Broker, *, settle: float = 0) -> AsyncIterator[tuple[Watch, Cast]]:
    async with cast() as stage:
        first = stage.first
        plan = Plan(first.address, "broker-a", CLUSTER, 1, (), (), ())
        addresses = {0: first.address} | ({1: "127.0.0.1:9"} if broker.slaves is not None else {})
        route = BrokerRoute(broker_name="broker-a", cluster=CLUSTER, broker_addrs=addresses)
        stage.name_server.answers(
            RequestCode.GET_BROKER_CLUSTER_INFO,
            ClusterInfo(
                broker_addr_table={"broker-a": route}, cluster_addr_table={CLUSTER: ["broker-a"]}
            ),
        )
        tell(stage, broker)
        yield stage.admin.drain.watch(plan, settle=settle), stage


def tell(stage: Cast, broker: Broker) -> None:
    bounds = {name: (low, high) for name, low, high in broker.ends}

    def stats(fields: dict[str, str]) -> Reply:
        topic = fields["topic"]
        if topic not in bounds:
            raise TopicNotFound(topic)
        low, high = bounds[topic]
        offset = TopicOffset(min_offset=low, max_offset=high, last_update_timestamp=broker.stored)
        queue = MessageQueue(topic, "broker-a", 0)
        return _reply(TopicStats(offset_table={queue: offset}))

    lags = []
    if broker.lag is not None:
        end, position = broker.lag
        progress = QueueProgress(broker_offset=end, consumer_offset=position)
        table = {MessageQueue("T", "broker-a", 0): progress}
        lags = [{"G": [ConsumeStats(offset_table=table)]}]
    answers: dict[RequestCode, Any] = {
        RequestCode.GET_BROKER_CONFIG: broker.settings.encode(),
        RequestCode.GET_BROKER_RUNTIME_INFO: KvTable(table=dict(broker.figures)),
        RequestCode.GET_ALL_TOPIC_CONFIG: MappedTopicConfigTable(
            topic_config_table={name: TopicConfig(topic_name=name) for name in ("T", *bounds)}
        ),
        RequestCode.GET_TOPIC_STATS_INFO: stats,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: b"{}",
        RequestCode.GET_BROKER_CONSUME_STATS: BrokerConsumeStats(consume_stats_list=lags),
        RequestCode.QUERY_CONSUMER_OFFSET: OffsetReply(broker.committed),
        RequestCode.GET_ALL_PRODUCER_INFO: ProducerTable(),
    }
    if broker.slaves is not None:
        status = HaStatus(master=True, ha_connection_info=[*broker.slaves])
        answers[RequestCode.GET_BROKER_HA_STATUS] = status
    for code, answer in answers.items():
        stage.first.answers(code, answer)


def kinds(found: Round) -> dict[str, int]:
    return {each.kind: each.count for each in found.open}


@pytest.mark.parametrize(
    ("broker", "wanted"),
    [
        (Broker(), {}),
        (Broker(lag=(10, 4), ends=(("T", 0, 10),)), {"groups": 6}),
        (Broker(lag=(10, 4), ends=(("T", 8, 10),)), {"groups": 2}),  # retention took the others
        (Broker(lag=(10, 10), ends=(("T", 0, 10),)), {}),
        (Broker(ends=(("%RETRY%G", 0, 2),)), {"groups": 2}),
        (Broker(ends=(("%DLQ%G", 0, 2),)), {}),
        (Broker(ends=((HALF_TOPIC, 0, 5),), committed=3), {"transactions": 2}),
        (Broker(ends=((SCHEDULE_TOPIC, 2, 5),)), {"delayed": 3}),
        (Broker(slaves=(HaConnection(addr="s", diff=7),)), {"replicas": 7}),
        (Broker(slaves=(HaConnection(addr="s"),)), {}),
        (Broker(slaves=()), {"replicas": 0}),  # registered, and not connected
    ],
)
@on_loop
async def test_what_is_open_is_counted(broker: Broker, wanted: dict[str, int]) -> None:
    async with watching(broker) as (watch, _):
        found = await watch.round()

    assert kinds(found) == wanted
    assert found.is_safe == (not wanted)


@on_loop
async def test_topics_that_grow_are_written_until_they_have_settled() -> None:
    broker = Broker(ends=(("T", 0, 5),))
    async with watching(broker, settle=0.2) as (watch, stage):
        waiting = await watch.round()
        more = replace(broker, ends=(("T", 0, 8),), figures=(("commitLogMaxOffset", "2"),))
        tell(stage, more)
        written = await watch.round()
        while kinds(settling := await watch.round()):
            assert kinds(settling) == {"producers": 0}

    assert kinds(waiting) == {"producers": 0}
    assert [(each.what, each.count) for each in written.open] == [("topic T is written", 3)]


@on_loop
async def test_pops_in_flight_are_open_and_then_unknown() -> None:
    now = int(time.time() * 1000)
    broker = Broker(ends=((REVIVE, 0, 4),), committed=1, stored=now)
    async with watching(broker) as (watch, stage):
        recent = await watch.round()
        tell(stage, replace(broker, stored=now - 600_000))
        old = await watch.round()

    assert kinds(recent) == {"pop": 3}
    assert not old.open
    assert not old.is_safe
    assert any("at most 3 records of the revive log" in reason for reason in old.unknown)


def unsupported(_fields: dict[str, str]) -> Reply:
    raise RequestCodeNotSupported("request type 907 not supported")


@on_loop
async def test_what_a_broker_does_not_tell_is_named() -> None:
    settings = "transRocksDBEnable=true\npopConsumerKVServiceEnable=true\n"
    async with watching(Broker(settings=settings, slaves=())) as (watch, stage):
        stage.first.answers(RequestCode.GET_BROKER_HA_STATUS, unsupported)
        found = await watch.round()

    assert not found.open
    assert not found.is_safe
    reasons = " ".join(found.unknown)
    for words in (
        "transactions that are kept in RocksDB",
        "popped messages",
        "RocketMQ before 5.0",
    ):
        assert words in reasons


def refused(_fields: dict[str, str]) -> Reply:
    raise ServerError("the timers are not ready")


@on_loop
async def test_timers_that_a_broker_does_not_tell_are_not_taken_for_none() -> None:
    async with watching(Broker(settings="timerWheelEnable=true\n")) as (watch, stage):
        stage.first.answers(RequestCode.GET_TIMER_METRICS, refused)
        found = await watch.round()

    assert (found.open, found.unknown) == ((), ("timers: the timers are not ready",))
    assert not found.is_safe


@on_loop
async def test_queues_that_are_only_read_count_though_no_broker_lists_them() -> None:
    """A topic of four queues that producers now write to one of: three have two messages each."""
    broker = Broker(lag=(2, 2), ends=(("T", 0, 2),))
    bounds = {
        MessageQueue("T", "broker-a", n): TopicOffset(min_offset=0, max_offset=2) for n in range(4)
    }

    def position(fields: dict[str, str]) -> Reply:
        if fields["queueId"] == "3":
            raise QueryNotFound("never consumed")
        return Reply(header=OffsetReply(1))

    async with watching(broker) as (watch, stage):
        stage.first.answers(RequestCode.GET_TOPIC_STATS_INFO, TopicStats(offset_table=bounds))
        stage.first.answers(RequestCode.QUERY_CONSUMER_OFFSET, position)
        table = {"T": TopicConfig(topic_name="T")}
        stage.first.answers(
            RequestCode.GET_ALL_TOPIC_CONFIG, MappedTopicConfigTable(topic_config_table=table)
        )
        found = await watch.round()

    groups = [(each.what, each.count) for each in found.open if each.kind == "groups"]
    assert groups == [("group G has to consume topic T", 4)]


@on_loop
async def test_a_group_that_comes_while_nothing_is_written_is_seen() -> None:
    broker = Broker(ends=(("T", 0, 5),))
    async with watching(broker) as (watch, stage):
        alone = await watch.round()
        stage.first.answers(
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=["late", "elsewhere"])
        )

        def members(fields: dict[str, str]) -> Reply:
            topic = "T" if fields["consumerGroup"] == "late" else "Other"
            return _reply(
                ConsumerConnections(
                    connection_set=[Connection(client_id="c")],
                    message_model=MessageModel.CLUSTERING,
                    subscription_table={topic: Subscription(topic=topic)},
                )
            )

        stage.first.answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, members)
        joined = await watch.round()

    assert alone.is_safe
    assert [(each.what, each.count) for each in joined.open] == [
        ("group late has to consume topic T", 5)
    ]


@on_loop
async def test_what_is_not_known_is_accepted_by_name_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with watching(Broker(settings="transRocksDBEnable=true\n")) as (_, stage):
        words = ("drain", "--check", "-b", stage.first.address, "-n", stage.name_server.address)

        def drain(*more: str) -> Any:
            return CliRunner().invoke(app, ["admin", *words, *more])

        doubtful = await asyncio.to_thread(drain)
        (document,) = json.loads((await asyncio.to_thread(drain, "--json")).stdout)
        accepted = await asyncio.to_thread(drain, "--accept-unknown")

    reason = "transactions that are kept in RocksDB"
    assert doubtful.exit_code == 1
    assert "is not known to be safe to stop" in doubtful.stdout
    assert "--accept-unknown takes what the broker does not tell for done" in doubtful.stderr
    assert (document["safe"], document["open"], document["unknown"]) == (False, [], [reason])
    assert accepted.exit_code == 0
    assert "is safe to stop" in accepted.stdout
    assert f"not known of broker-a: {reason}" in accepted.stdout
