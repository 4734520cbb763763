"""Requests for settings and runtime figures."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Event

import pytest

from bolide.broker.admin.runtime import RuntimeHandlers, human_size
from bolide.broker.background import COLD_READS
from bolide.broker.settings.config import BrokerConfig, check
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell, read_file
from bolide.properties import parse
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import KvTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.runtime import BrokerConfigReply
from bolide.protocol.refusals import InvalidParameter, NoPermission
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables, Caller, served
from tests.support.store import draft, small_config

# All keys of RocketMQ 5.3, except those that contain a level or a path.
KEYS = """
bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes
putMessageSizeTotal putMessageDistributeTime putMessageAverageSize dispatchMaxBuffer
getMessageEntireTimeMax putTps getFoundTps getMissTps getTotalTps getTransferredTps putLatency99
putLatency999 commitLogDiskRatio consumeQueueDiskRatio commitLogMinOffset commitLogMaxOffset
brokerActive brokerVersionDesc brokerVersion msgPutTotalYesterdayMorning msgPutTotalTodayMorning
msgPutTotalTodayNow msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow
dispatchBehindBytes pageCacheLockTimeMills earliestMessageTimeStamp startAcceptSendRequestTimeStamp
timerReadBehind timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps
remainTransientStoreBufferNumbs remainHowManyDataToFlush commitLogDirCapacity
sendThreadPoolQueueSize sendThreadPoolQueueCapacity pullThreadPoolQueueSize
pullThreadPoolQueueCapacity litePullThreadPoolQueueSize litePullThreadPoolQueueCapacity
queryThreadPoolQueueSize queryThreadPoolQueueCapacity ackThreadPoolQueueSize
ackThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills
litePullThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueHeadWaitTimeMills
EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
"""


TIMER_FIGURES = dict.fromkeys(
    ("timerReadBehind", "timerOffsetBehind", "timerCongestNum"), "0"
) | dict.fromkeys(("timerEnqueueTps", "timerDequeueTps"), "0.0")


class FakeDelay:
    """One message of level 3 is delivered, another is pending."""

    def progress(self) -> dict[int, tuple[int, int]]:
        return {3: (1, 2)}


@dataclass
class Running:
    """Runtime handlers behind a connection, with their store and statistics."""

    caller: Caller
    store: MessageStore
    statistics: Statistics

    async def info(self) -> dict[str, str]:
        found = await self.caller.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        return fastjson.decode(found.body, KvTable).table


@asynccontextmanager
async def running(tables: BrokerTables) -> AsyncIterator[Running]:
    config = BrokerConfig(
        broker_name="broker-a", broker_config_path=tables.directory / "broker.conf"
    )
    tables.cell = ConfigCell(config, check)
    files = small_config(tables.directory / "store")
    statistics = Statistics("DefaultCluster", tables.clock)
    with MessageStore(files, clock=tables.clock, background=False) as store:
        handlers = RuntimeHandlers(
            store=store,
            statistics=statistics,
            cell=tables.cell,
            store_cell=store.config,
            delay=FakeDelay(),
            figures=lambda: TIMER_FIGURES,
            boot_time=tables.clock(),
            ignored={"popCkMaxBufferSize": "77"},
            now=tables.clock,
        )
        async with served(tables, handlers) as caller:
            yield Running(caller, store, statistics)


@on_loop
async def test_every_key_of_the_runtime_information_is_there(tables: BrokerTables) -> None:
    async with running(tables) as broker:
        info = await broker.info()
    assert not set(KEYS.split()) - info.keys()
    assert info["scheduleMessageOffset_3"] == "1,2"
    assert f"commitLogDiskRatio_{tables.directory / 'store' / 'commitlog'}" in info


@on_loop
async def test_javas_tools_can_read_the_numbers(tables: BrokerTables) -> None:
    async with running(tables) as broker:
        info = await broker.info()
    for key in ("putTps", "getTransferredTps", "getFoundTps", "getMissTps", "getTotalTps"):
        assert len([float(word) for word in info[key].split(" ")]) == 3
    for key in KEYS.split():
        if key.startswith(("msgPut", "msgGet")):
            int(info[key])
    assert 0 <= float(info["commitLogDiskRatio"]) <= 1
    assert info["brokerActive"] == "true"
    assert info["brokerVersionDesc"] == "V5_3_3"


@on_loop
async def test_runtime_figures_report_the_statistics(tables: BrokerTables) -> None:
    async with running(tables) as broker:
        appended = broker.store.append(draft("T"))
        broker.statistics.sent("T", 0, 1, appended.size, 0.0042)
        broker.statistics.got("g", "T", 0, 1, appended.size, 0.0021)
        tables.clock.advance(86_400 + 3600 + 60 + 1)
        info = await broker.info()
    expected = {
        "bootTimestamp": "1000000",
        "runtime": "[ 1 days, 1 hours, 1 minutes, 1 seconds ]",
        "putMessageTimesTotal": "1",
        "putMessageSizeTotal": str(appended.size),
        "putMessageAverageSize": str(float(appended.size)),
        "putMessageEntireTimeMax": "4",
        "getMessageEntireTimeMax": "2",
        "putLatency99": "4.20",
        "msgPutTotalTodayNow": "1",
        "msgGetTotalTodayNow": "1",
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": str(appended.size),
        "remainHowManyDataToFlush": f"{appended.size} B",
        "dispatchBehindBytes": "0",
        "earliestMessageTimeStamp": "1000000",
    }
    assert {key: info[key] for key in expected} == expected


@on_loop
async def test_figures_tell_what_waits_for_threads(
    tables: BrokerTables,
) -> None:
    may_end = Event()
    async with running(tables) as broker:
        busy = [COLD_READS.submit(may_end.wait) for _ in range(10)]  # 8 of them run
        await asyncio.sleep(0.05)
        info = await broker.info()
        may_end.set()
        await asyncio.gather(*map(asyncio.wrap_future, busy))
        after = await broker.info()
    assert info["pullThreadPoolQueueSize"] == "2"
    assert int(info["pullThreadPoolQueueHeadWaitTimeMills"]) >= 20
    assert (after["pullThreadPoolQueueSize"], after["queryThreadPoolQueueSize"]) == ("0", "0")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")],
)
def test_sizes_are_written_as_rocketmq_writes_them(size: int, text: str) -> None:
    assert human_size(size) == text


@on_loop
async def test_all_settings_are_shown_with_their_version(tables: BrokerTables) -> None:
    async with running(tables) as broker:
        found = await broker.caller.call(RequestCode.GET_BROKER_CONFIG)
    texts = parse(found.body.decode())
    assert texts["brokerName"] == "broker-a"
    assert texts["mappedFileSizeCommitLog"] == "4096"
    assert texts["popCkMaxBufferSize"] == "77"
    version = json.loads(BrokerConfigReply.from_fields(found.fields).version)
    assert version == {"counter": 0, "stateVersion": 0, "timestamp": 1_000_000}


@on_loop
async def test_settings_are_changed_in_force_and_on_the_disk(tables: BrokerTables) -> None:
    async with running(tables) as broker:
        body = b"brokerPermission=4\nfileReservedTime=24\nbrokerName=b\n"
        found = await broker.caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert found.remark == "in effect after a restart: brokerName"
        assert tables.cell.value.broker_permission == 4
        assert broker.store.config.value.file_reserved_hours == 24
        shown = await broker.caller.call(RequestCode.GET_BROKER_CONFIG)
    assert parse(shown.body.decode())["brokerName"] == "b"
    version = json.loads(BrokerConfigReply.from_fields(shown.fields).version)
    assert version["counter"] == 1
    assert read_file(tables.directory / "broker.conf") == {
        "brokerPermission": "4",
        "fileReservedTime": "24",
        "brokerName": "b",
    }


@on_loop
async def test_a_change_that_cannot_be_made_is_refused(tables: BrokerTables) -> None:
    async with running(tables) as broker:
        update = RequestCode.UPDATE_BROKER_CONFIG
        with pytest.raises(NoPermission, match="black list"):
            await broker.caller.call(update, body=b"brokerConfigPath=/elsewhere")
        with pytest.raises(InvalidParameter, match="maxBatchCount"):
            await broker.caller.call(update, body=b"maxBatchCount=0")
        with pytest.raises(InvalidParameter, match="over the limit"):
            await broker.caller.call(update, body=b"#" * 70_000)


@on_loop
async def test_expired_files_are_deleted_soon_on_request(tables: BrokerTables) -> None:
    async with running(tables) as broker:
        for _ in range(80):
            broker.store.append(draft("T", b"x" * 100))
        broker.store.flush()
        broker.store.config.apply({"deleteWhen": "23", "fileReservedTime": "1"})
        tables.clock.now += 7200
        if broker.store.retention.run():
            pytest.fail("files went without being asked to")
        await broker.caller.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert broker.store.retention.run()
        await broker.caller.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
