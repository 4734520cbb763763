"""Operations on topics, and sends, at a broker of ours as a process."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from bolide import Message, Producer
from bolide.admin import AdminClient
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role
from bolide.operations.door import AuditEntry, Caller, Door
from bolide.operations.errors import BadInput, ConfirmationNeeded, Conflict, NotFound
from bolide.operations.history.figures import BrokerFigures, TopicFigures
from bolide.operations.history.history import History
from bolide.operations.messages.sending import (
    BodyFormat,
    Draft,
    SentMessage,
    TransactionEnd,
    send_message,
    sending_options,
)
from bolide.operations.topics.changes import (
    MessageType,
    TopicDeletionImpact,
    create_topic,
    delete_topic,
)
from bolide.operations.topics.detail import list_groups, list_queues, show_topic
from bolide.operations.topics.listing import TopicSort, count_topics, list_topics
from bolide.operations.topics.table import OF_USERS, TopicKind, TopicPermission
from bolide.operations.topics.updates import TopicUpdatePlan, WarningKind, update_topic
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.remoting.client import RemotingClient
from tests.support.admin_cluster import NOBODY
from tests.support.admin_cluster import Cluster as Servers
from tests.support.aio import PATIENCE, on_loop
from tests.support.brokers import broker_header, leaving_header, topics_body

T = TypeVar("T")
_numbers = itertools.count()


@dataclass
class Recorded:
    """An audit log, and the requests of a client."""

    entries: list[AuditEntry] = field(default_factory=list)
    requests: Counter[int] = field(default_factory=Counter)

    async def write(self, entry: AuditEntry) -> None:
        self.entries.append(entry)

    def before(self, _peer: str, request: Frame) -> None:
        self.requests[request.code] += 1

    def after(self, _peer: str, request: Frame, response: Frame) -> None: ...


@asynccontextmanager
async def opened(
    servers: Servers, recorded: Recorded | None = None, history: History | None = None
) -> AsyncIterator[Cluster]:
    hooks = [recorded] if recorded else []
    async with AdminClient(servers.name_server, hooks=hooks) as admin:
        yield Cluster(admin=admin, name_servers=servers.name_server, history=history)


OPERATOR = Caller(name="op", role=Role.OPERATOR, source="test")


async def made(shown: Cluster, servers: Servers, queues: int = 1) -> str:
    """A new topic."""
    config = TopicConfig(
        topic_name=f"Topic-{next(_numbers)}", read_queue_nums=queues, write_queue_nums=queues
    )
    await shown.admin.topics.update(servers.broker, config)
    return config.topic_name


async def sent(cluster: Cluster, topic: str, body: str, **how: object) -> SentMessage:
    transaction = how.pop("transaction", None)
    draft = Draft(body=body, **how)  # type: ignore[arg-type]
    done = await send_message.function(
        cluster,
        topic=topic,
        message=draft,
        transaction=transaction,  # type: ignore[arg-type]
    )
    return done.messages[0]


async def stored(cluster: Cluster, topic: str, count: int) -> list[StoredMessage]:
    """The messages of a topic, once there are so many."""

    async def read() -> list[StoredMessage]:
        found: list[StoredMessage] = []
        for queue in await cluster.admin.topics.queues(topic):
            pulled = await cluster.admin.messages.pull(queue, 0, 32)
            found += pulled.messages
        return sorted(found, key=lambda each: each.physical_offset)

    return await eventually(read, lambda found: len(found) >= count)


async def eventually(read: Callable[[], Awaitable[T]], good: Callable[[T], object]) -> T:
    async with asyncio.timeout(PATIENCE):
        while not good(found := await read()):  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.02)
        return found


@on_loop
async def test_messages_of_every_kind_are_sent(cluster: Servers) -> None:
    async with opened(cluster) as shown:
        topic = await made(shown, cluster, queues=4)
        plain = await sent(
            shown,
            topic,
            '{"a": 1}',
            body_format=BodyFormat.JSON,
            tags="t",
            keys=["k", "l"],
            properties={"colour": "red"},
        )
        assert plain.status == "SEND_OK"
        await sent(shown, topic, "00 ff", body_format=BodyFormat.HEX)
        first, message = await stored(shown, topic, 2)
        assert (first.message_id, first.body) == (plain.message_id, b'{"a": 1}')
        assert (first.tags, first.keys, first.properties["colour"]) == ("t", ("k", "l"), "red")
        assert (first.queue.queue_id, first.queue_offset) == (plain.queue, plain.queue_offset)
        assert message.body == b"\x00\xff"

        ordered = [await sent(shown, topic, "x", sharding_key="order-7") for _ in range(3)]
        assert len({each.queue for each in ordered}) == 1
        many = await send_message.function(
            shown, topic=topic, message=Draft(body="y"), broker=ordered[0].broker, queue=3, count=5
        )
        assert [each.queue for each in many.messages] == [3] * 5
        assert len({each.message_id for each in many.messages}) == 5

        delays = await made(shown, cluster)
        level = await sent(shown, delays, "level", delay_level=1)
        timed = await sent(shown, delays, "timed", delay_ms=300)
        assert timed.recall_handle is not None
        found = await stored(shown, delays, 2)
        assert {each.message_id for each in found} == {level.message_id, timed.message_id}

        ends = await made(shown, cluster)
        for end in (TransactionEnd.ROLLBACK, TransactionEnd.OPEN):
            half = await sent(shown, ends, end.value, transaction=end)
            assert half.transaction_end is end
        done = await sent(shown, ends, "commit", transaction=TransactionEnd.COMMIT)
        assert done.transaction_confirmed
        assert [each.message_id for each in await stored(shown, ends, 1)] == [done.message_id]


@on_loop
async def test_sends_that_cannot_be_are_refused(cluster: Servers) -> None:
    async with opened(cluster) as shown:
        topic = await made(shown, cluster)
        for how, wrong in (
            ({"message": Draft(body="")}, "body"),
            ({"message": Draft(body="{", body_format=BodyFormat.JSON)}, "body"),
            ({"message": Draft(body="0g", body_format=BodyFormat.HEX)}, "body"),
            ({"message": Draft(body="x", keys=["a b"])}, "keys"),
            ({"message": Draft(body="x", properties={"UNIQ_KEY": "x"})}, "properties"),
            ({"message": Draft(body="x", delay_ms=1, deliver_at_ms=1)}, "delay"),
            ({"message": Draft(body="x"), "queue": 0}, "queue"),
            ({"message": Draft(body="x"), "broker": "b", "queue": 0}, "broker"),
            ({"message": Draft(body="x"), "count": 0}, "count"),
            (
                {"message": Draft(body="x", delay_ms=5), "transaction": TransactionEnd.COMMIT},
                "transaction",
            ),
        ):
            with pytest.raises(BadInput) as refused:
                await send_message.function(shown, topic=topic, **how)
            assert refused.value.field == wrong
        with pytest.raises(BadInput, match="only brokers write"):
            await sent(shown, "SCHEDULE_TOPIC_XXXX", "x")
        with pytest.raises(NotFound, match="create it first"):
            await sent(shown, "Missing", "x")
        assert "Missing" not in await shown.admin.topics.names()

        options = await sending_options.function(shown, topic=topic)
        assert options.delay_levels[:2] == ["1s", "5s"]
        assert [each.queues for each in options.queues] == [1]
        await shown.admin.topics.set_perm(cluster.broker, topic, 4)
        with pytest.raises(Conflict, match="permission"):
            await sent(shown, topic, "x")


@asynccontextmanager
async def with_orders(
    servers: Servers, topic: str
) -> AsyncIterator[tuple[Cluster, Door, Recorded, str]]:
    """An ordered topic of 4 queues with 3 messages in queue 2, of which a group has read one."""
    recorded = Recorded()
    door = Door(recorded)
    settings = {"topic": topic, "read_queues": 4, "write_queues": 4, "is_ordered": True,
                "message_type": MessageType.FIFO}  # fmt: skip
    async with opened(servers) as shown:
        done = await door.run(create_topic, shown, OPERATOR, settings)
        queue = MessageQueue(topic, done.brokers[0], 2)
        async with Producer("any", name_server=shown.name_servers) as producer:
            for _ in range(3):
                await producer.send(Message(topic, b"x"), queue=queue)
        await shown.admin.groups.update(servers.broker, GroupConfig(group_name="readers"))
        await shown.admin.offsets.commit(servers.broker, "readers", queue, 1)
        yield shown, door, recorded, done.brokers[0]


@on_loop
async def test_a_new_topic_is_shown_with_its_figures(cluster: Servers) -> None:
    async with with_orders(cluster, "Orders-new") as (shown, _, _, broker):
        page = await list_topics.function(shown, search="ders-NEW", kinds=[TopicKind.FIFO])
        (row,) = page.items
        assert (row.topic, row.read_queues, row.is_ordered) == ("Orders-new", 4, True)
        assert (row.messages, row.permission) == (3, TopicPermission.READ_WRITE)
        detail = await show_topic.function(shown, topic="Orders-new")
        assert detail.order_conf == f"{broker}:4"
        assert (detail.kind, detail.messages, detail.differing) == (TopicKind.FIFO, 3, [])
        assert detail.brokers[0].attributes == {"message.type": "FIFO"}
        queues = await list_queues.function(shown, topic="Orders-new")
        assert [each.messages for each in queues.items] == [0, 0, 3, 0]
        assert queues.items[2].last_write_ms == detail.last_write_ms == row.last_write_ms
        (group,) = (await list_groups.function(shown, topic="Orders-new")).items
        assert (group.group, group.lag, group.members) == ("readers", 2, 0)
        assert group.delay_ms is not None
        assert 0 <= group.delay_ms < 60_000


@on_loop
async def test_an_update_warns_and_then_changes(cluster: Servers) -> None:
    async with with_orders(cluster, "Orders-changed") as (shown, door, recorded, broker):
        shrink = {"topic": "Orders-changed", "read_queues": 2, "write_queues": 3,
                  "permission": TopicPermission.READ,
                  "removed_attributes": ["message.type"]}  # fmt: skip
        plan, token = await door.preview(update_topic, shown, OPERATOR, shrink)
        assert isinstance(plan, TopicUpdatePlan)
        assert {(each.setting, each.before, each.after) for each in plan.changes} == {
            ("read_queues", "4", "2"),
            ("write_queues", "4", "3"),
            ("permission", "read_write", "read"),
            ("message.type", "FIFO", None),
        }
        assert {each.kind for each in plan.warnings} == {*WarningKind} - {WarningKind.NO_READ}
        assert [each.messages for each in plan.warnings if each.messages is not None] == [3]
        await door.run(update_topic, shown, OPERATOR, shrink, confirmation=token)
        entry = recorded.entries[-1]
        assert (entry.target, entry.error) == ("topic Orders-changed", "")
        assert entry.before != entry.after
        config = await shown.admin.topics.config(cluster.broker, "Orders-changed")
        assert (config.read_queue_nums, config.perm, config.attributes) == (2, 4, {})
        assert config.order
        conf = await shown.admin.name_servers.find_order_conf("Orders-changed")
        assert conf == f"{broker}:3"
        same = await update_topic.function(shown, topic="Orders-changed", read_queues=2)
        assert (same.brokers, same.changes) == ([], [])


@on_loop
async def test_a_deletion_shows_what_is_lost_and_is_confirmed(cluster: Servers) -> None:
    async with with_orders(cluster, "Orders-gone") as (shown, door, _, broker):
        what = {"topic": "Orders-gone"}
        with pytest.raises(ConfirmationNeeded) as needed:
            await door.run(delete_topic, shown, OPERATOR, what)
        impact = needed.value.effect
        assert isinstance(impact, TopicDeletionImpact)
        assert (impact.messages, impact.queues, impact.kind) == (3, 4, TopicKind.FIFO)
        assert impact.last_write_ms is not None
        assert [(each.group, each.backlog) for each in impact.groups] == [("readers", 2)]
        async with Producer("any", name_server=shown.name_servers) as producer:
            await producer.send(Message("Orders-gone", b"y"))  # what is agreed to stays the same
        token = needed.value.token
        gone = await door.run(delete_topic, shown, OPERATOR, what, confirmation=token)
        assert (gone.brokers, gone.failures) == ([broker], [])
        assert "Orders-gone" not in await shown.admin.topics.names()
        assert await shown.admin.name_servers.find_order_conf("Orders-gone") is None
        with pytest.raises(NotFound):
            await show_topic.function(shown, topic="Orders-gone")


@on_loop
async def test_bad_settings_of_topics_are_refused(cluster: Servers) -> None:
    async with opened(cluster) as shown:
        for how, wrong in (
            ({"topic": "a b"}, "topic"),
            ({"topic": "x" * 128}, "topic"),
            ({"topic": "TBW102"}, "topic"),
            ({"topic": "%RETRY%g"}, "topic"),
            ({"topic": "Fine", "read_queues": 0}, "read_queues"),
            ({"topic": "Fine", "write_queues": 70_000}, "write_queues"),
            ({"topic": "Fine", "permission": TopicPermission.DIFFERS}, "permission"),
            ({"topic": "Fine", "attributes": {"a,b": "c"}}, "attributes"),
            ({"topic": "Fine", "clusters": ["Other"]}, "clusters"),
            ({"topic": "Fine", "brokers": ["Other"]}, "brokers"),
        ):
            with pytest.raises(BadInput) as refused:
                await create_topic.function(shown, **how)
            assert refused.value.field == wrong
        topic = await made(shown, cluster)
        with pytest.raises(Conflict, match="exists already"):
            await create_topic.function(shown, topic=topic)
        with pytest.raises(BadInput, match="belongs to the brokers"):
            await delete_topic.function(shown, topic="TBW102")
        with pytest.raises(NotFound):
            await update_topic.function(shown, topic="Missing")
        with pytest.raises(BadInput, match="brokers"):
            await update_topic.function(shown, topic=topic, brokers=["Other"])


@asynccontextmanager
async def with_dead_broker(servers: Servers, *topics: str) -> AsyncIterator[None]:
    """A broker of another cluster that is registered with these topics, and does not answer."""
    header = broker_header(NOBODY, name="dead", cluster="Elsewhere")
    body = fastjson.encode(topics_body(*topics))
    async with RemotingClient() as client:
        code = RequestCode.REGISTER_BROKER
        await client.call(servers.name_server, code, header, body=body)
        try:
            yield
        finally:
            code = RequestCode.UNREGISTER_BROKER
            await client.call(servers.name_server, code, leaving_header(header))


async def broker_name(shown: Cluster, servers: Servers) -> str:
    return (await shown.admin.clusters.broker_at(servers.broker)).broker_name


@on_loop
async def test_figures_of_a_broker_that_is_down_are_unknown(cluster: Servers) -> None:
    async with opened(cluster) as shown:
        topic = await made(shown, cluster)
        await sent(shown, topic, "x")
        async with with_dead_broker(cluster, topic, "Lost"):
            page = await list_topics.function(shown)
            rows = {row.topic: row for row in page.items}
            assert [each.server for each in page.failures] == [NOBODY]
            assert rows[topic].messages is None  # one has told of 1
            assert rows[topic].brokers == [await broker_name(shown, cluster), "dead"]
            lost = rows["Lost"]
            assert (lost.messages, lost.last_write_ms, lost.rate_in) == (None, None, None)
            detail = await show_topic.function(shown, topic=topic)
            assert (detail.messages, detail.bytes) == (None, None)
            assert {each.broker: each.messages for each in detail.brokers}["dead"] is None
            assert {each.server for each in detail.failures} == {NOBODY}
            queues = await list_queues.function(shown, topic=topic)
            assert [each.messages for each in queues.items] == [1]
            assert [each.server for each in queues.failures] == [NOBODY]
            with pytest.raises(BadInput, match="choose one"):
                await create_topic.function(shown, topic="New")
            partly = await create_topic.function(
                shown, topic="New", clusters=["DefaultCluster", "Elsewhere"]
            )
            assert [each.server for each in partly.failures] == ["dead"]
            assert "New" in await shown.admin.topics.names()


class Sampled(History):
    """A history that knows most of the topics of a test."""

    def __init__(self) -> None:
        """Nothing is sampled."""
        self.access_key = None

    def topic_figures(self) -> Mapping[str, TopicFigures]:
        now = time.time()
        return {
            f"Many-{number}": TopicFigures(
                sampled=now, rate_in=float(number), messages=number, last_write_ms=number
            )
            for number in range(1000, 1990)
        }

    def broker_figures(self) -> Sequence[BrokerFigures]:
        return []


@on_loop
async def test_a_page_of_many_topics_costs_few_requests(cluster: Servers) -> None:
    recorded = Recorded()
    async with opened(cluster, recorded, Sampled()) as shown:
        names = [f"Many-{number}" for number in range(1000, 2000)]
        configs = [TopicConfig(topic_name=n, read_queue_nums=1, write_queue_nums=1) for n in names]
        await shown.admin.topics.update_all(cluster.broker, configs)
        await shown.admin.groups.update(cluster.broker, GroupConfig(group_name="readers"))
        recorded.requests.clear()

        fastest = await list_topics.function(
            shown, search="many", sort=TopicSort.RATE, descending=True, size=20
        )
        assert fastest.total == 1000
        assert [row.topic for row in fastest.items[:2]] == ["Many-1989", "Many-1988"]
        last = await list_topics.function(
            shown, search="many", sort=TopicSort.RATE, descending=True, page=99, size=20
        )
        assert (last.page, last.items[0].rate_in) == (50, 1009.0)
        assert last.items[-1].rate_in is None
        assert {row.messages for row in last.items[-10:]} == {0}  # asked of the broker
        counts = await count_topics.function(shown)
        assert counts.kinds[TopicKind.NORMAL] >= 1000
        assert counts.kinds[TopicKind.SYSTEM] > 5
        own = await list_topics.function(shown, kinds=[*OF_USERS], size=500)
        assert not {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster"} & {
            row.topic for row in own.items
        }
        assert recorded.requests[RequestCode.GET_ALL_TOPIC_CONFIG] == 1
        assert sum(recorded.requests.values()) < 550
