"""Operations on consumer groups at a broker of ours as a process, with real consumers."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Never, TypeVar

import pytest

from bolide.admin import AdminClient
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import dead_letter_topic
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.deletion import delete_group
from bolide.operations.consumers.figures import ConsumerKind, ConsumerModel
from bolide.operations.consumers.listing import (
    GroupDetail,
    GroupFilter,
    GroupQueue,
    describe_group,
    list_groups,
    list_queues,
)
from bolide.operations.consumers.members import list_members, show_stack
from bolide.operations.consumers.offsets import (
    QueueTarget,
    ResetTo,
    clone_offsets,
    plan_reset,
    reset_offsets,
)
from bolide.operations.consumers.options import RetryDelays, RetryKind
from bolide.operations.consumers.settings import (
    change_group,
    create_group,
    pause_group,
    plan_change,
    resume_group,
    set_topic_access,
    show_settings,
)
from bolide.operations.consumers.warnings import WarningKind
from bolide.operations.declaration import Operation, Role
from bolide.operations.door import CONFIRMED, AuditEntry, Caller, Door
from bolide.operations.errors import BadInput, ConfirmationNeeded, Conflict, NotFound
from bolide.operations.history import GroupFigures, History
from bolide.protocol.bodies.topics import TopicConfig
from bolide.remoting.errors import CallTimedOut
from tests.support.admin_cluster import Cluster as Servers
from tests.support.aio import PATIENCE, on_loop, until

T = TypeVar("T")
_numbers = itertools.count()


class Scene:
    """A topic with two queues, a group, and what its consumers got."""

    def __init__(self, cluster: Cluster, servers: Servers, producer: Producer) -> None:
        number = next(_numbers)
        self.cluster = cluster
        self.servers = servers
        self.topic, self.group = f"Read-{number}", f"readers-{number}"
        self.got: list[StoredMessage] = []
        self.door, self.entries = door_of()
        self._producer = producer

    async def send(self, count: int, *, queue: int = 0, body: str = "m") -> None:
        where = MessageQueue(self.topic, self.broker, queue)
        for number in range(count):
            await self._producer.send(Message(self.topic, f"{body}{number}".encode()), queue=where)

    @property
    def broker(self) -> str:
        return self._producer_broker

    _producer_broker = ""

    @asynccontextmanager
    async def consumer(self, group: str = "", expression: str = "*") -> AsyncIterator[PushConsumer]:
        async def take(message: StoredMessage) -> None:
            self.got.append(message)

        consumer = PushConsumer(
            group or self.group,
            name_server=self.servers.name_server,
            consume_from="first",
            commit_interval=0.1,
            instance_name=f"i{next(_numbers)}",
        )
        await consumer.subscribe(self.topic, expression, take)
        async with consumer:
            yield consumer

    async def do(self, operation: Operation[..., T], **arguments: object) -> T:
        return await self.door.run(
            operation, self.cluster, CALLER, arguments, confirmation=CONFIRMED
        )

    async def consume(self, count: int) -> None:
        """Run a member until it has got so many, and committed them."""
        async with self.consumer():
            await until(lambda: len(self.got) >= count)
        self.got.clear()

    async def detail(self, good: Callable[[GroupDetail], object] = bool) -> GroupDetail:
        return await self.eventually(
            lambda: describe_group.function(self.cluster, group=self.group), good
        )

    async def queues(self, good: Callable[[list[GroupQueue]], object] = bool) -> list[GroupQueue]:
        async def read() -> list[GroupQueue]:
            page = await list_queues.function(self.cluster, group=self.group, topic=self.topic)
            return page.items

        return await self.eventually(read, good)

    async def eventually(self, read: Callable[[], Awaitable[T]], good: Callable[[T], object]) -> T:
        async with asyncio.timeout(PATIENCE):
            while not good(found := await read()):
                await asyncio.sleep(0.05)
                self.cluster.forget()
            return found


@asynccontextmanager
async def scene(servers: Servers) -> AsyncIterator[Scene]:
    async with (
        AdminClient(servers.name_server) as admin,
        Producer("writers", name_server=servers.name_server) as producer,
    ):
        made = Scene(Cluster(admin=admin, name_servers=servers.name_server), servers, producer)
        config = TopicConfig(topic_name=made.topic, read_queue_nums=2, write_queue_nums=2)
        await admin.topics.update(servers.broker, config)
        (made._producer_broker,) = await admin.topics.addresses(made.topic)
        yield made


@on_loop
async def test_a_group_is_listed_with_members_lag_and_owners(cluster: Servers) -> None:
    async with scene(cluster) as shown:
        await shown.send(3)
        await shown.send(2, queue=1)
        async with shown.consumer() as consumer:
            await until(lambda: len(shown.got) == 5)
            detail = await shown.detail(lambda found: found.row.lag == 0)
            row = detail.row
            assert (row.clients, row.kind, row.model) == (
                1,
                ConsumerKind.PUSH,
                ConsumerModel.CLUSTERING,
            )
            assert (row.delay_seconds, row.retrying, row.dead_letters) == (0.0, 0, 0)
            assert row.is_ordered is False
            assert [each.topic for each in detail.topics] == [shown.topic]
            assert not detail.failures and not row.warnings
            queues = await shown.queues(lambda found: all(each.lag == 0 for each in found))
            assert {each.owner for each in queues} == {consumer.client_id}
            assert [each.committed_offset for each in queues] == [3, 2]
            members = await list_members.function(shown.cluster, group=shown.group)
            (member,) = members.members
            assert member.client_id == consumer.client_id and member.language == "PYTHON"
            assert member.version.startswith("V5") and member.queues == 2 and not member.silence
            assert [each.expression for each in member.subscriptions or ()] == ["*"]
            stack = await show_stack.function(
                shown.cluster, group=shown.group, client_id=consumer.client_id
            )
            assert "File" in stack.text
            with pytest.raises(NotFound, match="'gone'"):
                await show_stack.function(shown.cluster, group=shown.group, client_id="gone")
        await shown.send(4)
        detail = await shown.detail(lambda found: found.row.clients == 0 and found.row.lag == 4)
        assert detail.row.kind is None
        assert detail.row.delay_seconds is not None and detail.row.delay_seconds < 60
        assert [each.kind for each in detail.row.warnings] == [WarningKind.OFFLINE_WITH_LAG]
        assert {each.owner for each in await shown.queues()} == {""}
        page = await list_groups.function(shown.cluster, search=shown.group.upper())
        assert [each.name for each in page.items] == [shown.group]
        assert page.items[0].lag == 4


@on_loop
async def test_members_that_subscribe_differently_are_shown(cluster: Servers) -> None:
    async with scene(cluster) as shown, shown.consumer(), shown.consumer(expression="a || b"):
        detail = await shown.detail(lambda found: found.row.warnings)
        assert WarningKind.SUBSCRIPTIONS_DIFFER in {each.kind for each in detail.row.warnings}
        members = await list_members.function(shown.cluster, group=shown.group)
        (difference,) = members.differences
        assert difference.topic == shown.topic
        assert sorted(map(str, difference.expressions.values())) == ["TAG *", "TAG a || b"]


class Sampled(History):
    """A history with these figures."""

    def __init__(self, **lags: int) -> None:
        self.access_key = None
        self.figures = {n: GroupFigures(sampled=1.0, lag=lag) for n, lag in lags.items()}

    def group_figures(self) -> dict[str, GroupFigures]:
        return self.figures


@on_loop
async def test_lists_are_filtered_sorted_and_cut_on_the_server(cluster: Servers) -> None:
    async with scene(cluster) as shown:
        for name in ("sort_a", "sort_b", "sort_c"):
            await shown.do(create_group, group=name)
        await shown.do(pause_group, group="sort_c")
        shown.cluster.history = Sampled(sort_a=5, sort_b=9)

        async def names(**how: object) -> list[str]:
            page = await list_groups.function(shown.cluster, search="sort_", **how)  # type: ignore[arg-type]
            return [each.name for each in page.items]

        assert await names() == ["sort_a", "sort_b", "sort_c"]
        assert await names(descending=True) == ["sort_c", "sort_b", "sort_a"]
        # The one without a sample is the last one, whichever the direction.
        assert await names(sort="lag", descending=True) == ["sort_b", "sort_a", "sort_c"]
        assert await names(sort="lag") == ["sort_a", "sort_b", "sort_c"]
        assert await names(show=GroupFilter.LAGGING) == ["sort_a", "sort_b"]
        assert await names(show=GroupFilter.PAUSED) == ["sort_c"]
        page = await list_groups.function(shown.cluster, search="sort_", size=2, page=2)
        assert [each.name for each in page.items] == ["sort_c"] and page.total == 3
        # What nobody has consumed is not known to be 0.
        assert page.items[0].lag is None and page.items[0].delay_seconds is None
        everything = await list_groups.function(shown.cluster, with_system=True, size=500)
        system = {each.name for each in everything.items if each.is_system}
        assert "TOOLS_CONSUMER" in system
        with pytest.raises(BadInput, match="sort"):
            await names(sort="colour")


@on_loop
async def test_a_group_is_created_changed_and_deleted(cluster: Servers) -> None:
    async with scene(cluster) as shown:
        group = shown.group
        await shown.do(
            create_group,
            group=group,
            max_retries=3,
            retry_delays=RetryDelays(kind=RetryKind.EXPONENTIAL, initial_ms=100, max_ms=900),
        )
        with pytest.raises(Conflict, match="exists"):
            await shown.do(create_group, group=group)
        with pytest.raises(BadInput, match="letters"):
            await shown.do(create_group, group="a b")
        with pytest.raises(BadInput, match="no broker 'x'"):
            await shown.do(create_group, group="other", brokers=["x"])
        (settings,) = await show_settings.function(shown.cluster, group=group)
        assert settings.max_retries == 3
        assert settings.retry_delays == RetryDelays(
            kind=RetryKind.EXPONENTIAL, initial_ms=100, max_ms=900, multiplier=2
        )
        (change,) = await plan_change(shown.cluster, group=group, max_retries=5)
        assert (change.name, change.before, change.after) == ("max_retries", "3", "5")
        await shown.do(change_group, group=group, max_retries=5)
        (settings,) = await show_settings.function(shown.cluster, group=group)
        assert settings.max_retries == 5
        assert settings.retry_delays.kind is RetryKind.EXPONENTIAL
        with pytest.raises(BadInput, match="retry_queues"):
            await shown.do(change_group, group=group, retry_queues=0)

        await shown.send(2)
        door = shown.door
        async with shown.consumer():
            await until(lambda: len(shown.got) == 2)
            with pytest.raises(Conflict, match="1 members are connected"):
                await door.run(
                    delete_group, shown.cluster, CALLER, {"group": group}, confirmation="yes"
                )
        await shown.send(3)
        await shown.detail(lambda found: found.row.clients == 0 and found.row.lag == 3)
        with pytest.raises(ConfirmationNeeded) as needed:
            await door.run(delete_group, shown.cluster, CALLER, {"group": group})
        effect = needed.value.effect
        assert [(each.topic, each.messages) for each in effect.backlog] == [(shown.topic, 3)]  # type: ignore[attr-defined]
        assert f"%RETRY%{group}" in effect.topics  # type: ignore[attr-defined]
        await shown.send(1)  # what moves by itself needs no other confirmation
        await door.run(
            delete_group, shown.cluster, CALLER, {"group": group}, confirmation=needed.value.token
        )
        with pytest.raises(NotFound):
            await describe_group.function(shown.cluster, group=group)
        assert f"%RETRY%{group}" not in await shown.cluster.admin.topics.names()
        assert shown.entries[-1].target == f"group {group}" and shown.entries[-1].before


@on_loop
async def test_a_paused_group_goes_on_where_it_stopped(cluster: Servers) -> None:
    async with scene(cluster) as shown, shown.consumer():
        await shown.send(1)
        await until(lambda: len(shown.got) == 1)
        await shown.do(pause_group, group=shown.group)
        detail = await shown.detail(lambda found: found.row.is_paused)
        assert WarningKind.PAUSED in {each.kind for each in detail.row.warnings}
        await shown.send(4, body="late")  # a pull that waits already may get the first of them
        await shown.detail(lambda found: (found.row.lag or 0) >= 3)
        assert len(shown.got) <= 2
        await shown.do(resume_group, group=shown.group)
        await until(lambda: len(shown.got) == 5)


@on_loop
async def test_a_group_may_be_kept_from_one_topic(cluster: Servers) -> None:
    async with scene(cluster) as shown:
        group, topic = shown.group, shown.topic
        await shown.do(create_group, group=group)
        for each in (topic, "Other"):
            told = await shown.do(set_topic_access, group=group, topic=each, readable=False)
            assert set(told.readable.values()) == {False}
        await shown.do(set_topic_access, group=group, topic="Other", readable=True)
        detail = await shown.detail()
        assert [each.topic for each in detail.topics if each.forbidden_at] == [topic]
        assert WarningKind.FORBIDDEN_TOPIC in {each.kind for each in detail.row.warnings}


@on_loop
async def test_a_reset_moves_running_consumers_as_planned(cluster: Servers) -> None:
    async with scene(cluster) as shown, shown.consumer():
        group, topic = shown.group, shown.topic
        await shown.send(4)
        await shown.send(1, queue=1)
        await until(lambda: len(shown.got) == 5)
        await shown.detail(lambda found: found.row.lag == 0)
        what: dict[str, Any] = {"group": group, "topic": topic}
        plan = await plan_reset(shown.cluster, to=ResetTo.EARLIEST, **what)
        assert [(each.before, each.after) for each in plan.moves] == [(4, 0), (1, 0)]
        assert (plan.redelivered, plan.skipped, plan.members) == (5, 0, 1)
        assert plan.members_follow
        shown.got.clear()
        done = await shown.do(reset_offsets, to=ResetTo.EARLIEST, **what)
        assert done.moves == plan.moves and not done.failures
        await until(lambda: len(shown.got) >= 5)
        await shown.detail(lambda found: found.row.lag == 0)
        shown.got.clear()
        one = [QueueTarget(broker=shown.broker, queue_id=0, offset=2)]
        await shown.do(reset_offsets, to=ResetTo.OFFSET, queues=one, **what)
        await until(lambda: len(shown.got) >= 2)
        assert [each.body for each in shown.got] == [b"m2", b"m3"]


@on_loop
async def test_a_reset_moves_a_group_without_members(cluster: Servers) -> None:
    async with scene(cluster) as shown:
        await shown.send(2)
        await shown.consume(2)
        await asyncio.sleep(0.01)
        await shown.send(1, body="x")
        between = (await _stored_ms(shown, 2)) or 0
        await shown.send(2, body="y")
        what: dict[str, Any] = {"group": shown.group, "topic": shown.topic}
        to_time = await plan_reset(shown.cluster, to=ResetTo.TIME, time_ms=between, **what)
        assert [each.after for each in to_time.moves] == [2, 0]
        ahead = await plan_reset(shown.cluster, to=ResetTo.LATEST, **what)
        assert (ahead.skipped, ahead.redelivered, ahead.members) == (3, 0, 0)
        back = await plan_reset(shown.cluster, to=ResetTo.LATEST, only_backwards=True, **what)
        assert back.skipped_at_most == 0
        await shown.do(reset_offsets, to=ResetTo.LATEST, **what)
        await shown.detail(lambda found: found.row.lag == 0)
        one = [QueueTarget(broker=shown.broker, queue_id=0)]
        done = await shown.do(reset_offsets, to=ResetTo.EARLIEST, queues=one, **what)
        assert [(each.queue_id, each.after) for each in done.moves] == [(0, 0)]
        async with shown.consumer():
            await until(lambda: len(shown.got) == 5)
        with pytest.raises(BadInput, match="9 is not in it"):
            far = [QueueTarget(broker=shown.broker, queue_id=0, offset=9)]
            await plan_reset(shown.cluster, to=ResetTo.OFFSET, queues=far, **what)
        with pytest.raises(BadInput, match="no queue 7"):
            none = [QueueTarget(broker=shown.broker, queue_id=7)]
            await plan_reset(shown.cluster, to=ResetTo.LATEST, queues=none, **what)
        with pytest.raises(BadInput, match="time_ms"):
            await plan_reset(shown.cluster, to=ResetTo.TIME, **what)
        with pytest.raises(NotFound, match="no topic"):
            await plan_reset(shown.cluster, to=ResetTo.LATEST, group=shown.group, topic="None")


@on_loop
async def test_a_group_gets_the_offsets_of_another_one(cluster: Servers) -> None:
    async with scene(cluster) as shown:
        await shown.send(3)
        await shown.consume(3)
        await shown.send(2, body="new")
        twin = f"{shown.group}_twin"
        await shown.do(create_group, group=twin)
        done = await shown.do(clone_offsets, group=twin, source=shown.group)
        assert [(each.queue_id, each.after) for each in done.moves if each.after] == [(0, 3)]
        async with shown.consumer(twin):
            await until(lambda: len(shown.got) >= 2)
        assert [each.body for each in shown.got] == [b"new0", b"new1"]
        with pytest.raises(NotFound):
            await shown.do(clone_offsets, group=twin, source="nobody")


@on_loop
async def test_what_a_broker_does_not_tell_is_unknown(cluster: Servers) -> None:
    async with scene(cluster) as shown:
        await shown.send(2)
        await shown.consume(1)

        async def fail(*_: object, **__: object) -> Never:
            raise CallTimedOut("broker-a", 0, 0.1)

        with pytest.MonkeyPatch.context() as patch:
            for place in ("offsets.progress_at", "clients.consumers"):
                what, name = place.split(".")
                patch.setattr(getattr(shown.cluster.admin, what), name, fail)
            shown.cluster.forget()
            (row,) = (await list_groups.function(shown.cluster, search=shown.group)).items
            detail = await describe_group.function(shown.cluster, group=shown.group)
        unknown = (row.lag, row.delay_seconds, row.tps, row.clients, row.retrying)
        assert unknown == (None,) * 5
        assert not row.warnings
        assert [each.server for each in detail.failures] == [shown.broker]


@on_loop
async def test_dead_letters_are_counted(cluster: Servers) -> None:
    async with scene(cluster) as shown:
        await shown.do(create_group, group=shown.group)
        topic = dead_letter_topic(shown.group)
        config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
        await shown.cluster.admin.topics.update(cluster.broker, config)
        await shown._producer.send(Message(topic, b"dead"))
        detail = await shown.detail(lambda found: found.row.dead_letters)
        assert detail.row.dead_letters == 1
        assert WarningKind.DEAD_LETTERS in {each.kind for each in detail.row.warnings}


CALLER = Caller(name="tester", role=Role.OPERATOR, source="test")


def door_of() -> tuple[Door, list[AuditEntry]]:
    entries: list[AuditEntry] = []

    class Log:
        async def write(self, entry: AuditEntry) -> None:
            entries.append(entry)

    return Door(Log()), entries


async def _stored_ms(shown: Scene, offset: int) -> int | None:
    queue = MessageQueue(shown.topic, shown.broker, 0)
    pulled = await shown.cluster.admin.messages.pull(queue, offset, 1)
    return pulled.messages[0].store_timestamp if pulled.messages else None
