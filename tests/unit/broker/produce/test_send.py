"""Send handlers: all kinds of sends, the order of checks, and refusals."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.gate import Hooks
from bolide.model.message import Message
from bolide.protocol.batch import encode_batch
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.topics import TopicConfig, TopicFilterType
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import Record
from bolide.protocol.refusals import NoPermission
from bolide.remoting.dispatch import Reply
from bolide.store.config import FlushMode
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed, Listener
from bolide.store.health import LOG_FILES
from bolide.store.memory_store import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.broker import send_header
from tests.support.broker_core import BrokerCore, Peer
from tests.support.store import record_of

MARKS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
TBW102 = TopicConfig(topic_name="TBW102", perm=7, read_queue_nums=8, write_queue_nums=8)
RETRY = "%RETRY%readers"


@asynccontextmanager
async def core_in(directory: Path, *topics: TopicConfig, **given: Any) -> AsyncIterator[BrokerCore]:
    core = BrokerCore(directory, *topics, **given)
    try:
        yield core
    finally:
        await core.stop()


async def send(
    core: BrokerCore, header: SendHeader, body: bytes = b"hello", *, peer: Peer | None = None
) -> Frame:
    """Send with long field names, which the fast path does not support."""
    return await (peer or core.connect()).call(RequestCode.SEND_MESSAGE, header, body)


def records(core: BrokerCore) -> list[Record]:
    return [record_of(data) for _, data in core.log]


def reply_of(frame: Frame) -> SendReply:
    assert frame.code == ResponseCode.SUCCESS, frame.remark
    return SendReply.from_fields(frame.fields)


# ---- what is stored


@on_loop
async def test_a_message_is_stored_as_it_was_sent_and_the_answer_says_where(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        header = send_header(
            queue_id=3, flag=9, sys_flag=1, properties={"TAGS": "a", "UNIQ_KEY": "id"}
        )
        replies = [reply_of(await send(core, header, b"body")) for _ in range(2)]
        first, second = records(core)
    assert (first.topic, first.queue_id, bytes(first.body)) == ("T", 3, b"body")
    assert (first.flag, first.sys_flag, first.born_timestamp) == (9, 1, 1_700_000_000_000)
    assert first.decode_properties() == {"TAGS": "a", "UNIQ_KEY": "id"} | MARKS
    assert [(reply.queue_id, reply.queue_offset) for reply in replies] == [(3, 0), (3, 1)]
    assert replies[1].msg_id == f"0A00000100002A9F{second.physical_offset:016X}"
    assert replies[0].transaction_id == "id"


@on_loop
async def test_a_message_without_a_unique_id_gets_one(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        replies = [reply_of(await send(core, send_header())) for _ in range(2)]
        ids = [record.decode_properties()["UNIQ_KEY"] for record in records(core)]
    assert [reply.transaction_id for reply in replies] == ids
    assert len(set(ids)) == 2


@on_loop
async def test_marks_that_a_client_gives_itself_are_overwritten(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await send(core, send_header(properties={"CLUSTER": "x", "UNIQ_KEY": "id", "POP_CK": "y"}))
        assert records(core)[0].decode_properties() == {"UNIQ_KEY": "id"} | MARKS


@on_loop
async def test_a_negative_queue_id_lets_the_broker_choose_among_those_to_write(
    tmp_path: Path,
) -> None:
    topic = TopicConfig(topic_name="U", write_queue_nums=2, read_queue_nums=8)
    async with core_in(tmp_path, topic) as core:
        chosen = [
            reply_of(await send(core, send_header("U", queue_id=-1))).queue_id for _ in range(40)
        ]
    assert set(chosen) == {0, 1}


@on_loop
async def test_a_topic_with_several_tags_a_message_is_marked_so(tmp_path: Path) -> None:
    async with core_in(
        tmp_path, TopicConfig(topic_name="U", topic_filter_type=TopicFilterType.MULTI_TAG)
    ) as core:
        await send(core, send_header("U"))
        assert records(core)[0].sys_flag == 2


@on_loop
async def test_flags_that_say_how_hosts_are_written_are_not_the_clients_to_set(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        await send(core, send_header(sys_flag=0x30))
        assert records(core)[0].sys_flag == 0


@on_loop
async def test_a_delayed_message_is_answered_with_the_queue_it_was_sent_to(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        reply = reply_of(await send(core, send_header(queue_id=2, properties={"DELAY": "5"})))
        (record,) = records(core)
    assert reply.queue_id == 2
    assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", 4)


@on_loop
async def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer = core.connect()
        for topic in ("T", "None"):
            peer.ask(RequestCode.SEND_MESSAGE, send_header(topic), b"x", one_way=True)
        await asyncio.sleep(0.01)
        assert len(core.log) == 1
        assert peer.written == b""


# ---- batches


def batch(*messages: Message) -> bytes:
    return encode_batch(messages)


async def send_batch(core: BrokerCore, body: bytes, **given: Any) -> Frame:
    header = send_header(**{"batch": True} | given)
    return await core.connect().call(RequestCode.SEND_BATCH_MESSAGE, header.to_short(), body)


@on_loop
async def test_the_messages_of_a_batch_are_stored_one_behind_the_other(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        body = batch(
            Message("T", b"one", tags="a", flag=1), Message("T", b"two", properties={"own": "2"})
        )
        given = {"UNIQ_KEY": "of the batch", "common": "c"}
        reply = reply_of(await send_batch(core, body, properties=given, queue_id=1))
        first, second = records(core)
    assert (bytes(first.body), bytes(second.body)) == (b"one", b"two")
    assert (first.flag, second.flag) == (1, 0)
    assert first.decode_properties()["TAGS"] == "a"
    expected = {"own": "2", "common": "c"} | MARKS
    assert expected.items() <= second.decode_properties().items()
    assert "UNIQ_KEY" not in second.decode_properties()
    assert (reply.queue_id, reply.queue_offset, reply.transaction_id) == (1, 0, None)
    assert reply.msg_id.split(",") == [
        f"0A00000100002A9F{record.physical_offset:016X}" for record in (first, second)
    ]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\0", id="cut off"),
        pytest.param(bytes(22), id="lengths that do not add up"),
        pytest.param(batch(Message("T", b"a")) + b"x", id="rubbish behind it"),
        pytest.param(batch(Message("T", b"a"))[:-1], id="the last byte is missing"),
    ],
)
@on_loop
async def test_of_a_batch_that_cannot_be_read_nothing_is_stored(
    tmp_path: Path, body: bytes
) -> None:
    async with core_in(tmp_path) as core:
        answer = await send_batch(core, body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "batch at" in (answer.remark or "")
        assert core.log == []


@on_loop
async def test_a_batch_over_the_limit_is_refused_whole(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        core.store_cell.apply({"maxMessageSize": "50"})
        answer = await send_batch(core, batch(*[Message("T", b"0123456789")] * 5))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "raise maxMessageSize" in (answer.remark or "")
        assert core.log == []


@on_loop
async def test_a_batch_of_half_messages_is_refused(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        answer = await send_batch(core, batch(Message("T", b"a")), sys_flag=4)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert core.log == []


@on_loop
async def test_the_broker_chooses_no_queue_where_there_is_none(tmp_path: Path) -> None:
    topic = TopicConfig(topic_name="None", write_queue_nums=0, read_queue_nums=4)
    async with core_in(tmp_path, topic) as core:
        answer = await send(core, send_header(topic="None", queue_id=-1))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "no queues to send to" in (answer.remark or "")


@on_loop
async def test_a_batch_of_too_many_messages_is_refused_whole(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        core.cell.apply({"maxBatchCount": "4"})
        assert (await send_batch(core, batch(*[Message("T", b"a")] * 4))).code == 0
        answer = await send_batch(core, batch(*[Message("T", b"a")] * 5))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "over 4 messages" in (answer.remark or "")
        assert len(core.log) == 4


@on_loop
async def test_a_batch_may_not_go_to_a_retry_topic(tmp_path: Path) -> None:
    async with core_in(tmp_path, TopicConfig(topic_name=RETRY)) as core:
        answer = await send_batch(core, batch(Message("T", b"a")), topic=RETRY)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "batch request does not support retry group" in (answer.remark or "")


# ---- checks


REFUSED = [
    pytest.param({"topic": ""}, b"x", ResponseCode.INVALID_PARAMETER, "topic is blank", id="blank"),
    pytest.param({"topic": "a/b"}, b"x", ResponseCode.INVALID_PARAMETER, "illegal", id="illegal"),
    pytest.param(
        {"topic": "x" * 128}, b"x", ResponseCode.INVALID_PARAMETER, "at most 127", id="long"
    ),
    pytest.param(
        {"topic": "SCHEDULE_TOPIC_XXXX"}, b"x", ResponseCode.NO_PERMISSION, "forbidden", id="system"
    ),
    pytest.param({}, b"", ResponseCode.MESSAGE_ILLEGAL, "has no body", id="no body"),
    pytest.param(
        {"topic": "None", "default_topic": "Gone"}, b"x", ResponseCode.TOPIC_NOT_EXIST,
        "apply first please", id="no topic",
    ),
    pytest.param(
        {"topic": "Read"}, b"x", ResponseCode.NO_PERMISSION, "the topic[Read] sending", id="perm"
    ),
    pytest.param(
        {"queue_id": 4}, b"x", ResponseCode.INVALID_PARAMETER, "has 4 queues", id="queue id"
    ),
    pytest.param({"sys_flag": 0x80}, b"x", ResponseCode.MESSAGE_ILLEGAL, "batches", id="inner"),
    pytest.param(
        {"sys_flag": 4}, b"x", ResponseCode.NO_PERMISSION,
        "must be sent singly", id="transaction",
    ),
    pytest.param(
        {"properties": {"TIMER_DELAY_SEC": "soon"}}, b"x", ResponseCode.MESSAGE_ILLEGAL,
        "TIMER_DELAY_SEC='soon' is no time", id="timer",
    ),
    pytest.param(
        {"properties": {"TIMER_DELAY_SEC": "5", "TIMER_DEL_UNIQKEY": "U+ID"}}, b"x",
        ResponseCode.MESSAGE_ILLEGAL, "TIMER_DEL_UNIQKEY='U+ID' names another topic",
        id="recall in another topic",
    ),
    pytest.param(
        {"properties": {"x": "y" * 32_768}}, b"x", ResponseCode.MESSAGE_ILLEGAL, "properties",
        id="long properties",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "body", "code", "remark"), REFUSED)
@on_loop
async def test_a_bad_send_is_refused_with_the_reason_and_stores_nothing(
    tmp_path: Path, given: dict[str, Any], body: bytes, code: ResponseCode, remark: str
) -> None:
    async with core_in(tmp_path, TopicConfig(topic_name="Read", perm=4)) as core:
        answer = await send(core, send_header(**given), body)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert (answer.fields or {})["MSG_REGION"] == "DefaultRegion", "clients read it unchecked"
        assert core.log == []


@on_loop
async def test_a_queue_that_is_only_read_may_be_sent_to(tmp_path: Path) -> None:
    topic = TopicConfig(topic_name="U", write_queue_nums=1, read_queue_nums=4)
    async with core_in(tmp_path, topic) as core:
        assert reply_of(await send(core, send_header("U", queue_id=3))).queue_id == 3


@on_loop
async def test_a_broker_that_may_not_be_written_to_refuses_ordered_topics_only(
    tmp_path: Path,
) -> None:
    topic = TopicConfig(topic_name="Order", order=True)
    async with core_in(tmp_path, topic, broker_permission=4) as core:
        answer = await send(core, send_header("Order"))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "the broker[10.0.0.1] sending message is forbidden" in (answer.remark or "")
        reply_of(await send(core, send_header("T")))


@on_loop
async def test_before_its_time_a_broker_takes_nothing(tmp_path: Path) -> None:
    async with core_in(tmp_path, start_accept_send_request_time_stamp=1_700_000_010.0) as core:
        answer = await send(core, send_header())
        assert "broker unable to service, until 1700000010000" in (answer.remark or "")
        core.clock.advance(10)
        reply_of(await send(core, send_header()))


@on_loop
async def test_a_missing_field_is_named(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        fields = send_header().to_fields()
        del fields["bornTimestamp"]
        answer = await core.connect().call(RequestCode.SEND_MESSAGE, fields, b"x")
        assert "bornTimestamp" in (answer.remark or "")


# ---- topics that are made on the way


@on_loop
async def test_a_topic_is_made_by_the_first_message_with_the_lesser_number_of_queues(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, TBW102) as core:
        reply_of(await send(core, send_header("New", default_topic_queue_nums=3)))
        made = core.topics.require("New")
        assert (made.write_queue_nums, made.read_queue_nums, made.perm) == (3, 3, 6)
        await send(core, send_header("Big", default_topic_queue_nums=99))
        assert core.topics.require("Big").write_queue_nums == 8
        assert [record.topic for record in records(core)] == ["New", "Big"]


@on_loop
async def test_many_first_messages_at_once_make_one_topic_and_are_all_stored(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, TBW102) as core:
        changes: list[None] = []
        core.topics.on_change.add(lambda _: changes.append(None))
        await asyncio.gather(*(send(core, send_header("New")) for _ in range(20)))
        assert len(changes) == 1
        assert [record.queue_offset for record in records(core)] == list(range(20))


@on_loop
async def test_without_auto_creation_an_unknown_topic_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, TBW102, auto_create_topic_enable=False) as core:
        answer = await send(core, send_header("New"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert "autoCreateTopicEnable=true" in (answer.remark or "")


@on_loop
async def test_a_topic_that_cannot_be_saved_takes_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with core_in(tmp_path, TBW102) as core:
        (tmp_path / "config").write_text("in the way")
        answer = await send(core, send_header("New"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "nothing is changed" in (answer.remark or "")
        assert core.log == []


# ---- retries that clients send themselves


@on_loop
async def test_a_retry_topic_is_made_even_where_others_are_not(tmp_path: Path) -> None:
    async with core_in(tmp_path, auto_create_topic_enable=False) as core:
        reply_of(await send(core, send_header(RETRY)))
        assert core.topics.require(RETRY).write_queue_nums == 1


@pytest.mark.parametrize(
    ("given", "topic"),
    [
        ({"reconsume_times": 16}, RETRY),
        ({"reconsume_times": 17}, "%DLQ%readers"),
        ({"reconsume_times": 3, "max_reconsume_times": 3}, RETRY),
        ({"reconsume_times": 4, "max_reconsume_times": 3}, "%DLQ%readers"),
        ({"reconsume_times": 17, "max_reconsume_times": 20}, RETRY),
    ],
)
@on_loop
async def test_a_retry_of_one_too_many_goes_to_the_dead_letters(
    tmp_path: Path, given: dict[str, int], topic: str
) -> None:
    async with core_in(tmp_path) as core:
        properties = {"UNIQ_KEY": "id"}
        reply_of(await send(core, send_header(RETRY, properties=properties, **given)))
        (record,) = records(core)
        assert (record.topic, record.reconsume_times) == (topic, given["reconsume_times"])


@on_loop
async def test_a_dead_letter_is_not_delayed_and_a_retry_is(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        for times in (1, 17):
            header = send_header(RETRY, properties={"DELAY": "3"}, reconsume_times=times)
            reply_of(await send(core, header))
        retry, dead = records(core)
    assert (retry.topic, retry.decode_properties()["REAL_TOPIC"]) == ("SCHEDULE_TOPIC_XXXX", RETRY)
    assert dead.topic == "%DLQ%readers"
    assert "DELAY" not in dead.decode_properties()


@on_loop
async def test_an_ordered_group_has_tried_enough_when_it_sends_a_retry(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        core.tables.locks.lock("readers", "client-1", {MessageQueue("T", "broker-a", 0)})
        reply_of(await send(core, send_header(RETRY, reconsume_times=1)))
        assert records(core)[0].topic == "%DLQ%readers"


# ---- the disk


class HeldStore(MemoryStore):
    """A store whose flushes the test completes."""

    def on_flushed(self, listener: Listener) -> None:
        self.tell = listener


@on_loop
async def test_a_store_that_takes_nothing_is_told_of_by_code_14(tmp_path: Path) -> None:
    async with core_in(tmp_path, TBW102) as core:
        core.store.health.refuse(LOG_FILES, "the disk is full")
        for topic in ("T", "New"):
            answer = await send(core, send_header(topic))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "the disk is full" in (answer.remark or "")
        core.store.health.allow(LOG_FILES)
        reply_of(await send(core, send_header()))


@pytest.mark.parametrize("topic", ["T", RETRY])
@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (None, ResponseCode.SUCCESS),
        (StoreUnwritable("the disk fails"), ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
@on_loop
async def test_with_sync_flush_the_answer_says_what_the_disk_did(
    tmp_path: Path, topic: str, failure: StoreUnwritable | None, code: ResponseCode
) -> None:
    store = HeldStore()
    async with core_in(
        tmp_path, TopicConfig(topic_name=RETRY), mode=FlushMode.SYNC, store=store
    ) as core:
        peer = core.connect()
        opaque = peer.ask(RequestCode.SEND_MESSAGE, send_header(topic), b"x")
        await until(lambda: core.log)
        assert peer.answer(opaque) is None
        store.tell(Flushed(0 if failure else store.log.written, failure, 1))
        await until(lambda: peer.answer(opaque))
        answer = peer.answer(opaque)
        assert answer is not None
        assert answer.code == code
        assert (answer.fields or {})["MSG_REGION"] == "DefaultRegion"


# ---- hooks


class Watcher:
    def __init__(self, *, refuses: bool = False, breaks: str = "") -> None:
        self.seen: list[tuple[Any, ...]] = []
        self._refuses = refuses
        self._breaks = breaks

    def before_send(self, peer: str, header: SendHeader, body: bytes) -> None:
        self.seen.append(("before", peer, header.topic, body))
        if self._refuses:
            raise NoPermission("the hook says no")
        if self._breaks == "before":
            raise LookupError("the hook is broken")

    def after_send(self, peer: str, header: SendHeader, reply: Reply) -> None:
        self.seen.append(("after", header.topic, reply.code))
        if self._breaks == "after":
            raise LookupError("the hook is broken")


@on_loop
async def test_a_send_hook_sees_every_send_before_and_after(tmp_path: Path) -> None:
    hook = Watcher()
    async with core_in(tmp_path, TBW102, hooks=Hooks(send=(hook,))) as core:
        for topic in ("T", "New", "SELF_TEST_TOPIC"):
            await send(core, send_header(topic), b"body")
    assert hook.seen == [
        ("before", "10.0.0.9:4711", "T", b"body"),
        ("after", "T", 0),
        ("before", "10.0.0.9:4711", "New", b"body"),
        ("after", "New", 0),
        ("after", "SELF_TEST_TOPIC", 16),
    ]


@on_loop
async def test_a_send_hook_may_refuse_and_the_message_is_not_taken(tmp_path: Path) -> None:
    async with core_in(tmp_path, hooks=Hooks(send=(Watcher(refuses=True),))) as core:
        answer = await send(core, send_header())
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "the hook says no")
        assert core.log == []


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("when", ["before", "after"])
@on_loop
async def test_a_broken_hook_does_not_leave_the_client_waiting(
    tmp_path: Path, mode: FlushMode, when: str
) -> None:
    hooks = Hooks(send=(Watcher(breaks=when),))
    async with core_in(tmp_path, hooks=hooks, mode=mode) as core:
        answer = await send(core, send_header())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "the hook is broken" in (answer.remark or "")


# ---- settings


@on_loop
async def test_changed_settings_stand_on_the_next_message(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        core.cell.apply({"regionId": "r2"})
        assert reply_of(await send(core, send_header())).region == "r2"
        (record,) = records(core)
        assert decode_properties(bytes(record.properties).decode())["MSG_REGION"] == "r2"
