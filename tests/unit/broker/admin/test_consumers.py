"""Requests forwarded to consumers, and offset resets."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bolide.broker.admin import consumers
from bolide.broker.admin.consumers import ConsumerHandlers
from bolide.model.message import Host
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, Subscription
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import ConsumerStatus, ResetOffsets, ResetOffsetsForC
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.clients import ConsumeDirectlyHeader, RunningInfoHeader
from bolide.protocol.headers.offsets import ConsumerStatusHeader, ResetOffsetHeader
from bolide.protocol.message_id import OffsetId
from bolide.protocol.refusals import (
    ConsumerNotOnline,
    ConsumerTimedOut,
    GroupNotFound,
    InvalidParameter,
    ServerError,
    SystemBusy,
    TopicNotFound,
)
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.broker_tables import BrokerTables, Caller, served
from tests.support.store import body_of, draft
from tests.support.threads import note_threads

NAME = "broker-a"
QUEUES = {MessageQueue("T", NAME, 0): 7}


class Consumer:
    """A consumer of group g that records requests and answers them."""

    def __init__(self, client_id: str = "c1") -> None:
        self.client_id = client_id
        self.asked: asyncio.Queue[Frame] = asyncio.Queue()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    @handles(
        NoHeader,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    )
    async def answer(self, request: Request[NoHeader]) -> Reply:
        self.asked.put_nowait(request.frame)
        await self.may_answer.wait()
        if request.frame.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return Reply(body=fastjson.encode(ConsumerStatus(message_queue_table=QUEUES)))
        return Reply(body=b'{"answer":true}')

    @asynccontextmanager
    async def online(
        self, tables: BrokerTables, server: RemotingServer, language: str = "JAVA"
    ) -> AsyncIterator["Consumer"]:
        """Connect and join the group, as a heartbeat does."""
        before = set(server.connections)
        async with RemotingClient(dispatcher=Dispatcher(self)) as client:
            with pytest.raises(Exception, match="not supported"):
                await client.call(server.address, RequestCode.HEART_BEAT)
            (connection,) = server.connections - before
            group = ConsumerGroup(group_name="g", subscription_data_set=[Subscription(topic="T")])
            beat = Heartbeat(client_id=self.client_id, consumer_data_set=[group])
            tables.clients.heartbeat(beat, connection, language, 400)
            yield self
            self.may_answer.set()

    async def next_request(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            return await self.asked.get()


@asynccontextmanager
async def asked(tables: BrokerTables) -> AsyncIterator[Caller]:
    """Topic T with 2 queues: messages of 1000 to 1004 s in queue 0."""
    await tables.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    await tables.groups.update(GroupConfig(group_name="g"))
    for _ in range(5):
        tables.store.append(draft("T"))
        tables.clock.advance(1)
    handlers = ConsumerHandlers(
        store=tables.store,
        topics=tables.topics,
        groups=tables.groups,
        offsets=tables.offsets,
        clients=tables.clients,
        cell=tables.cell,
    )
    async with served(tables, handlers) as caller:
        yield caller


# ---- one consumer


@on_loop
async def test_running_information_comes_from_the_consumer_itself(tables: BrokerTables) -> None:
    question = RunningInfoHeader(consumer_group="g", client_id="c1", jstack_enable=True)
    async with asked(tables) as caller, Consumer().online(tables, caller.server) as consumer:
        found = await caller.call(RequestCode.GET_CONSUMER_RUNNING_INFO, question)
        passed_on = await consumer.next_request()
    assert found.body == b'{"answer":true}'
    assert passed_on.fields == question.to_fields()


@on_loop
async def test_an_offline_consumer_cannot_be_queried(tables: BrokerTables) -> None:
    question = RunningInfoHeader(consumer_group="g", client_id="c2")
    async with asked(tables) as caller, Consumer().online(tables, caller.server):
        with pytest.raises(ServerError, match="The Consumer <g> <c2> not online"):
            await caller.call(RequestCode.GET_CONSUMER_RUNNING_INFO, question)


@on_loop
async def test_a_consumer_that_does_not_answer_times_out(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "_CALL_TIMEOUT", 0.05)
    question = RunningInfoHeader(consumer_group="g", client_id="c1")
    async with asked(tables) as caller, Consumer().online(tables, caller.server) as consumer:
        consumer.may_answer.clear()
        with pytest.raises(ConsumerTimedOut, match="<g> <c1> Timeout"):
            await caller.call(RequestCode.GET_CONSUMER_RUNNING_INFO, question)


@on_loop
async def test_a_refusal_of_the_consumer_is_passed_back(tables: BrokerTables) -> None:
    class Busy(Consumer):
        @handles(NoHeader, RequestCode.GET_CONSUMER_RUNNING_INFO)
        def refuse(self, request: Request[NoHeader]) -> Reply:
            raise SystemBusy("later")

        answer = None  # type: ignore[assignment]  # no other answer

    question = RunningInfoHeader(consumer_group="g", client_id="c1")
    async with asked(tables) as caller, Busy().online(tables, caller.server):
        with pytest.raises(SystemBusy, match="later"):
            await caller.call(RequestCode.GET_CONSUMER_RUNNING_INFO, question)


@on_loop
async def test_a_directly_consumed_message_carries_the_fields_of_the_consumer(
    tables: BrokerTables,
) -> None:
    place = tables.store.append(draft("T", b"again")).physical_offset
    message_id = OffsetId(Host("10.0.0.1", 10911), place).encode()
    question = ConsumeDirectlyHeader(
        consumer_group="g", client_id="c1", msg_id=message_id, broker_name="other", topic="T"
    )
    async with asked(tables) as caller, Consumer().online(tables, caller.server) as consumer:
        await caller.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, question)
        passed_on = await consumer.next_request()
    assert body_of(passed_on.body) == b"again"
    fields = passed_on.fields or {}
    assert fields["brokerName"] == NAME
    assert (fields["topicSysFlag"], fields["groupSysFlag"]) == ("0", "0")
    assert fields["msgId"] == message_id


@on_loop
async def test_a_message_that_is_not_there_cannot_be_consumed(tables: BrokerTables) -> None:
    nowhere = OffsetId(Host("10.0.0.1", 10911), 10**9).encode()
    async with asked(tables) as caller, Consumer().online(tables, caller.server):
        for message_id, refusal in (("abc", InvalidParameter), (nowhere, ServerError)):
            question = ConsumeDirectlyHeader(consumer_group="g", client_id="c1", msg_id=message_id)
            with pytest.raises(refusal, match=message_id):
                await caller.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, question)


# ---- consumer status


@on_loop
async def test_every_consumer_reports_its_offsets(tables: BrokerTables) -> None:
    question = ConsumerStatusHeader(topic="T", group="g")
    async with (
        asked(tables) as caller,
        Consumer("c1").online(tables, caller.server),
        Consumer("c2").online(tables, caller.server),
    ):
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        found = await caller.call(code, question)
        one = await caller.call(code, ConsumerStatusHeader(topic="T", group="g", client_addr="c2"))
    assert fastjson.decode(found.body, ConsumerStatus).consumer_table == {
        "c1": QUEUES,
        "c2": QUEUES,
    }
    assert fastjson.decode(one.body, ConsumerStatus).consumer_table == {"c2": QUEUES}


@on_loop
async def test_an_unresponsive_consumer_does_not_hide_the_others(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "_STATUS_TIMEOUT", 0.05)
    async with (
        asked(tables) as caller,
        Consumer("c1").online(tables, caller.server) as silent,
        Consumer("c2").online(tables, caller.server),
    ):
        silent.may_answer.clear()
        found = await caller.call(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            ConsumerStatusHeader(topic="T", group="g"),
        )
    assert fastjson.decode(found.body, ConsumerStatus).consumer_table == {"c2": QUEUES}


@on_loop
async def test_a_group_without_consumers_has_no_status(tables: BrokerTables) -> None:
    async with asked(tables) as caller:
        with pytest.raises(ServerError, match=r"No Any Consumer online .*\[g\]"):
            await caller.call(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                ConsumerStatusHeader(topic="T", group="g"),
            )


# ---- resets in the broker


def reset_to(
    timestamp: int, queue_id: int = -1, offset: int | None = None, **changes: str
) -> ResetOffsetHeader:
    names = {"topic": "T", "group": "g"} | changes
    return ResetOffsetHeader(
        **names, queue_id=queue_id, offset=offset, timestamp=timestamp, is_force=True
    )


async def reset(caller: Caller, header: ResetOffsetHeader) -> dict[int, int]:
    found = await caller.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    table = fastjson.decode(found.body, ResetOffsets).offset_table
    assert {queue.broker_name for queue in table} == {NAME}
    return {queue.queue_id: offset for queue, offset in table.items()}


@on_loop
async def test_offsets_are_reset_by_time_without_online_consumers(tables: BrokerTables) -> None:
    async with asked(tables) as caller:
        tables.offsets.commit("g", "T", 0, 5)
        assert await reset(caller, reset_to(1_002_000)) == {0: 2, 1: 0}
    assert tables.offsets.find("g", "T", 0) == 2
    assert tables.offsets.claim_reset("g", "T", 0) == 2


@on_loop
async def test_a_time_below_zero_is_the_end(tables: BrokerTables) -> None:
    async with asked(tables) as caller:
        assert await reset(caller, reset_to(-1)) == {0: 5, 1: 0}


@on_loop
async def test_one_queue_is_reset_by_time_or_to_an_offset(tables: BrokerTables) -> None:
    async with asked(tables) as caller:
        assert await reset(caller, reset_to(1_003_000, queue_id=0)) == {0: 3}
        assert await reset(caller, reset_to(0, queue_id=0, offset=4)) == {0: 4}
        assert await reset(caller, reset_to(0, queue_id=0, offset=0)) == {0: 0}
    assert tables.offsets.claim_reset("g", "T", 1) is None


@on_loop
async def test_a_reset_of_an_unknown_topic_group_or_queue_is_refused(tables: BrokerTables) -> None:
    cases: list[tuple[ResetOffsetHeader, type[Exception], str]] = [
        (reset_to(0, queue_id=0, offset=6), InvalidParameter, r"\[0-5\]"),
        (reset_to(0, queue_id=2), InvalidParameter, "queueId=2"),
        (reset_to(0, topic="Nowhere"), TopicNotFound, "Nowhere"),
        (reset_to(0, group="nobody"), GroupNotFound, "nobody"),
    ]
    async with asked(tables) as caller:
        for header, refusal, text in cases:
            with pytest.raises(refusal, match=text):
                await reset(caller, header)
    assert tables.offsets.claim_reset("g", "T", 0) is None


# ---- resets in the consumers


@pytest.fixture
def old_way(tables: BrokerTables) -> BrokerTables:
    return tables.restarted(use_server_side_reset_offset=False)


@on_loop
async def test_consumers_get_reset_requests_if_the_broker_does_not_reset(
    old_way: BrokerTables,
) -> None:
    async with asked(old_way) as caller, Consumer().online(old_way, caller.server) as consumer:
        old_way.offsets.commit("g", "T", 0, 5)
        old_way.offsets.commit("g", "T", 1, 0)
        assert await reset(caller, reset_to(1_002_000)) == {0: 2, 1: 0}
        told = await consumer.next_request()
    assert told.is_one_way
    table = fastjson.decode(told.body, ResetOffsets).offset_table
    assert table == {MessageQueue("T", NAME, 0): 2, MessageQueue("T", NAME, 1): 0}
    assert old_way.offsets.find("g", "T", 0) == 5  # the consumer will commit where it went


@on_loop
async def test_a_consumer_in_cpp_gets_a_list(old_way: BrokerTables) -> None:
    async with (
        asked(old_way) as caller,
        Consumer().online(old_way, caller.server, "CPP") as consumer,
    ):
        await reset(caller, reset_to(1_002_000))
        told = await consumer.next_request()
    listed = fastjson.decode(told.body, ResetOffsetsForC).offset_table
    assert [(each.queue_id, each.offset) for each in listed] == [(0, 2), (1, 0)]


@on_loop
async def test_the_offsets_of_a_reset_are_written_on_another_thread(
    old_way: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(old_way) as caller, Consumer().online(old_way, caller.server) as consumer:
        threads = note_threads(monkeypatch, fastjson, "encode")
        await reset(caller, reset_to(1_002_000))
        await consumer.next_request()
    assert threads
    assert threading.current_thread() not in threads


@on_loop
async def test_without_force_a_reset_does_not_move_forward(old_way: BrokerTables) -> None:
    gentle = ResetOffsetHeader(topic="T", group="g", timestamp=-1, is_force=False)
    async with asked(old_way) as caller, Consumer().online(old_way, caller.server):
        with pytest.raises(ServerError, match="not exist"):  # it has consumed nothing yet
            await reset(caller, gentle)
        old_way.offsets.commit("g", "T", 0, 3)
        old_way.offsets.commit("g", "T", 1, 0)
        assert await reset(caller, gentle) == {0: 3, 1: 0}


@on_loop
async def test_a_reset_through_consumers_needs_an_online_consumer(old_way: BrokerTables) -> None:
    async with asked(old_way) as caller:
        with pytest.raises(ConsumerNotOnline, match="Group: g Topic: T Timestamp: 0"):
            await reset(caller, reset_to(0))


@on_loop
async def test_a_consumer_that_left_is_not_online_any_more(tables: BrokerTables) -> None:
    async with asked(tables) as caller:
        async with Consumer().online(tables, caller.server):
            assert tables.clients.consumer_ids("g") == ["c1"]
        await until(lambda: not tables.clients.consumer_ids("g"))
        with pytest.raises(ServerError, match="not online"):
            await caller.call(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                RunningInfoHeader(consumer_group="g", client_id="c1"),
            )
