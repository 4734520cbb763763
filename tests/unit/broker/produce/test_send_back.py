"""Messages that consumers send back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendBackHeader
from bolide.protocol.record import Record
from bolide.store.config import FlushMode
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed, Listener
from bolide.store.health import LOG_FILES
from bolide.store.memory_store import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.broker_core import BrokerCore
from tests.support.store import STORE_HOST, draft, record_of

RETRY, DEAD = "%RETRY%readers", "%DLQ%readers"


@asynccontextmanager
async def core_in(directory: Path, *topics: TopicConfig, **given: Any) -> AsyncIterator[BrokerCore]:
    core = BrokerCore(directory, *topics, **given)
    try:
        yield core
    finally:
        await core.stop()


def stored(core: BrokerCore, times: int = 0, **properties: str) -> int:
    """Store a message; returns its physical offset."""
    message = draft("T", b"body", properties={"TAGS": "a"} | properties)
    return core.store.append(message._replace(reconsume_times=times)).physical_offset


async def send_back(
    core: BrokerCore, offset: int, delay_level: int = 0, group: str = "readers", **given: Any
) -> Frame:
    header = SendBackHeader(offset=offset, group=group, delay_level=delay_level, **given)
    return await core.connect().call(RequestCode.CONSUMER_SEND_MSG_BACK, header)


def last(core: BrokerCore) -> Record:
    return record_of(core.log[-1][1])


@on_loop
async def test_a_message_comes_back_to_the_retry_topic_of_its_group_after_a_while(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        offset = stored(core, UNIQ_KEY="id")
        answer = await send_back(core, offset)
        assert (answer.code, answer.fields, answer.body) == (ResponseCode.SUCCESS, None, b"")
        record = last(core)
        made = core.topics.require(RETRY)
    assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert (bytes(record.body), record.reconsume_times) == (b"body", 1)
    assert record.decode_properties() == {
        "TAGS": "a", "UNIQ_KEY": "id", "RETRY_TOPIC": "T", "WAIT": "false", "DELAY": "3",
        "ORIGIN_MESSAGE_ID": f"{STORE_HOST.hex().upper()}{offset:016X}", "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }  # fmt: skip
    assert (made.write_queue_nums, made.perm) == (1, 6)


@on_loop
async def test_the_first_topic_and_the_first_id_stay_through_all_tries(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        offset = stored(core, 2, RETRY_TOPIC="First", ORIGIN_MESSAGE_ID="first-id", DELAY="4")
        await send_back(core, offset)
        properties = last(core).decode_properties()
    assert properties["RETRY_TOPIC"] == "First"
    assert properties["ORIGIN_MESSAGE_ID"] == "first-id"
    assert properties["DELAY"] == "5"


@pytest.mark.parametrize(
    ("asked", "times", "level"), [(0, 0, 3), (0, 5, 8), (0, 15, 18), (7, 5, 7), (99, 0, 18)]
)
@on_loop
async def test_the_delay_grows_with_the_tries_unless_the_client_says_how_long(
    tmp_path: Path, asked: int, times: int, level: int
) -> None:
    async with core_in(tmp_path) as core:
        await send_back(core, stored(core, times), asked)
        assert last(core).queue_id == level - 1


@pytest.mark.parametrize(
    ("times", "given", "is_dead"),
    [
        (15, {}, False),
        (16, {}, True),
        (0, {"delay_level": -1}, True),
        (3, {"max_reconsume_times": 3}, True),
        (2, {"max_reconsume_times": 3}, False),
        (16, {"max_reconsume_times": 20}, False),
        (0, {"max_reconsume_times": 0}, True),
    ],
)
@on_loop
async def test_a_message_without_attempts_left_goes_to_the_dead_letters(
    tmp_path: Path, times: int, given: dict[str, Any], is_dead: bool
) -> None:
    async with core_in(tmp_path) as core:
        await send_back(core, stored(core, times), **given)
        record = last(core)
        assert (record.topic == DEAD) is is_dead
        assert (DEAD in core.topics) is is_dead


@on_loop
async def test_a_dead_letter_names_its_origin(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await send_back(core, stored(core, 16, DELAY="18", RETRY_TOPIC="First"))
        record = last(core)
    assert (record.queue_id, record.reconsume_times) == (0, 17)
    properties = record.decode_properties()
    assert properties["RETRY_TOPIC"] == "First"
    assert "ORIGIN_MESSAGE_ID" in properties
    assert "DELAY" not in properties


@on_loop
async def test_the_group_says_how_often_and_in_how_many_queues(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        config = GroupConfig(group_name="readers", retry_max_times=2, retry_queue_nums=3)
        await core.tables.groups.update(config)
        await send_back(core, stored(core, 1))
        assert core.topics.require(RETRY).write_queue_nums == 3
        await send_back(core, stored(core, 2))
        assert last(core).topic == DEAD


@on_loop
async def test_messages_of_a_group_without_retries_are_dropped(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await core.tables.groups.update(GroupConfig(group_name="readers", retry_queue_nums=0))
        offset = stored(core)
        assert (await send_back(core, offset)).code == ResponseCode.SUCCESS
        assert len(core.log) == 1


@pytest.mark.parametrize("offset", [-1, 1, 20, 2**40, 2**63 - 1, -(2**63)])
@on_loop
async def test_an_offset_at_which_no_message_begins_is_refused(tmp_path: Path, offset: int) -> None:
    async with core_in(tmp_path) as core:
        stored(core)
        answer = await send_back(core, offset)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"look message by offset failed, {offset}" in (answer.remark or "")
        assert len(core.log) == 1


@on_loop
async def test_an_unknown_group_is_refused_where_groups_are_not_made_on_the_way(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, auto_create_subscription_group=False) as core:
        answer = await send_back(core, stored(core))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "mqadmin updateSubGroup" in (answer.remark or "")


@on_loop
async def test_neither_a_broker_nor_a_topic_that_may_not_be_written_to_takes_it(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, TopicConfig(topic_name=RETRY, perm=4)) as core:
        offset = stored(core)
        assert (await send_back(core, offset)).code == ResponseCode.NO_PERMISSION
        core.cell.apply({"brokerPermission": "4"})
        answer = await send_back(core, offset, group="others")
        assert "the broker[10.0.0.1] sending message is forbidden" in (answer.remark or "")
        assert len(core.log) == 1


@on_loop
async def test_an_unwritable_store_is_reported_by_code_14(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        offset = stored(core)
        core.store.health.refuse(LOG_FILES, "the disk is full")
        answer = await send_back(core, offset)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the disk is full" in (answer.remark or "")


class HeldStore(MemoryStore):
    """A store whose flushes the test completes."""

    def on_flushed(self, listener: Listener) -> None:
        self.tell = listener


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (None, ResponseCode.SUCCESS),
        (StoreUnwritable("the disk fails"), ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
@on_loop
async def test_with_sync_flush_the_answer_reports_the_outcome_of_the_flush(
    tmp_path: Path, failure: StoreUnwritable | None, code: ResponseCode
) -> None:
    store = HeldStore()
    async with core_in(tmp_path, mode=FlushMode.SYNC, store=store) as core:
        offset = stored(core)
        sending = asyncio.create_task(send_back(core, offset))
        await until(lambda: len(core.log) == 2)
        assert not sending.done()
        store.tell(Flushed(0 if failure else store.log.written, failure, 1))
        assert (await sending).code == code


@on_loop
async def test_a_send_back_that_is_not_flushed_is_not_acknowledged(tmp_path: Path) -> None:
    async with core_in(tmp_path, mode=FlushMode.SYNC, store=HeldStore()) as core:
        core.store_cell.apply({"syncFlushTimeout": "1"})
        answer = await send_back(core, stored(core))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "FLUSH_DISK_TIMEOUT" in (answer.remark or "")
