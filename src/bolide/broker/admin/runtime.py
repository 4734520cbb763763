"""Requests about the broker as a whole: settings, runtime figures, clean-ups, replica metadata.

Java's tools read some runtime figures without checking that they exist, so a reply always has all
of RocketMQ's keys. Keys without a counterpart here have a constant value.

A request is not queued for a thread: it is served in the turn of the event loop in which it was
received. The wait at the head of RocketMQ's queues of sends and acknowledgements is here the
duration of a turn. What needs the disk does wait for threads, and so do queries of administrators.
"""

import asyncio
import logging
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from bolide import kernel, properties
from bolide.broker.background import ADMIN, COLD_READS, TRANSACTIONS, on_thread
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.settings.live import Settings
from bolide.broker.settings.without_effect import IGNORED
from bolide.broker.statistics import Statistics, Totals
from bolide.config import ConfigCell
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import KvTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.runtime import BrokerConfigReply
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore
from bolide.version import ROCKETMQ_VERSION, ROCKETMQ_VERSION_NAME, __version__

log = logging.getLogger(__name__)

_MAX_CHANGE = 64 * 1024
_UNITS = "KMGTPE"
_POOLS = ("send", "pull", "litePull", "query", "ack")
_ON_THREADS = {"pull": COLD_READS, "query": ADMIN}
_ON_LOOP = {"send", "ack"}

_CONSTANT_FIGURES = {
    "dispatchMaxBuffer": "0",  # RocketMQ sets it nowhere
    # The log is locked within one step of the event loop, never while another request is served.
    "pageCacheLockTimeMills": "0",
    "remainTransientStoreBufferNumbs": "2147483647",  # as RocketMQ says without such a pool
    "EndTransactionThreadPoolQueueCapacity": IGNORED["endTransactionPoolQueueCapacity"].default,
}


class DelayProgress(Protocol):
    """The scheduler of delayed messages, as far as the runtime figures need it."""

    def progress(self) -> Mapping[int, tuple[int, int]]: ...


class RuntimeHandlers:
    """Reports runtime figures, and shows and changes settings.

    Args:
        ignored: keys of the configuration file that have no effect, with their values.
    """

    def __init__(  # noqa: PLR0913  it reports on every component
        self,
        *,
        store: MessageStore,
        statistics: Statistics,
        cell: ConfigCell[BrokerConfig],
        store_cell: ConfigCell[StoreConfig],
        delay: DelayProgress,
        figures: Callable[[], Mapping[str, str]] = dict,
        boot_time: float,
        ignored: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._statistics = statistics
        self.settings = Settings(cell, store_cell, ignored, now)
        self._cell = cell
        self._delay = delay
        self._figures = figures
        self._boot_time = boot_time
        self._now = now

    @handles(NoHeader, RequestCode.UPDATE_BROKER_CONFIG, max_body=_MAX_CHANGE)
    async def update_config(self, request: Request[NoHeader]) -> Reply:
        texts = properties.parse(request.body.decode(errors="replace"))
        change = await self.settings.update(texts, request.connection.peer)
        return Reply(remark=change.remark)

    @handles(NoHeader, RequestCode.GET_BROKER_CONFIG)
    def config(self, request: Request[NoHeader]) -> Reply:
        version = fastjson.encode(self.settings.version).decode()
        body = properties.render(self.settings.texts()).encode()
        return Reply(header=BrokerConfigReply(version), body=body)

    @handles(NoHeader, RequestCode.GET_BROKER_RUNTIME_INFO)
    async def runtime_info(self, request: Request[NoHeader]) -> Reply:
        accepts_from = self._cell.value.start_accept_send_request_time_stamp
        begun = time.monotonic()
        await asyncio.sleep(0)
        turn = time.monotonic() - begun
        table = (
            statistics_figures(self._statistics, self._boot_time, self._now())
            | broker_figures(self._delay.progress(), accepts_from, active=True, turn=turn)
            | {"bolideBeforeRestart": fastjson.encode(self.settings.before_restart()).decode()}
            | dict(self._figures())
            | await on_thread(ADMIN, store_figures, self._store)
        )
        return Reply(body=fastjson.encode(KvTable(table=table)))

    @handles(NoHeader, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_queues(self, request: Request[NoHeader]) -> Reply:
        """Succeed without work: retention trims queues whenever it deletes log files."""
        log.info("%s requested a clean-up of consume queues", request.connection.peer)
        return Reply()

    @handles(NoHeader, RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_expired(self, request: Request[NoHeader]) -> Reply:
        log.info("%s requested the deletion of expired log files", request.connection.peer)
        self._store.retention.delete_expired_soon()
        return Reply()


def statistics_figures(statistics: Statistics, boot_time: float, now: float) -> dict[str, str]:
    totals = statistics.totals
    puts, gets = statistics.put_latencies, statistics.get_latencies
    return {
        "bootTimestamp": str(int(boot_time * 1000)),
        "runtime": _duration(now - boot_time),
        "putMessageEntireTimeMax": str(int(puts.longest)),
        "getMessageEntireTimeMax": str(int(gets.longest)),
        "putMessageTimesTotal": str(totals.sent),
        "putMessageFailedTimes": str(totals.failed),
        "putMessageSizeTotal": str(totals.sent_bytes),
        "putMessageAverageSize": str(totals.sent_bytes / max(totals.sent, 1)),
        "putMessageDistributeTime": puts.distribution(),
        "putLatency99": f"{puts.percentile(0.99):.2f}",
        "putLatency999": f"{puts.percentile(0.999):.2f}",
        **_rates(statistics),
        **_day_totals(statistics),
    }


def store_figures(store: MessageStore) -> dict[str, str]:
    """Figures of the store and its disks. Blocks."""
    config = store.config.value
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    ratios = {str(path): _used_ratio(path) for path in config.new_log_directories}
    return {
        "commitLogDiskRatio": str(min(ratios.values())),
        **{f"commitLogDiskRatio_{path}": str(ratio) for path, ratio in ratios.items()},
        "consumeQueueDiskRatio": str(_used_ratio(config.root)),
        "commitLogMinOffset": str(store.log.min_offset),
        "commitLogMaxOffset": str(store.log.written),
        "commitLogDirCapacity": _capacity(config.root),
        "dispatchBehindBytes": str(max(store.log.written - store.sound_end, 0)),
        "remainHowManyDataToFlush": human_size(max(store.log.written - store.flushed, 0)),
        "earliestMessageTimeStamp": str(store.earliest_log_time()),
        "bolideOpenFileLimit": str(sys.maxsize if soft == resource.RLIM_INFINITY else soft),
        **_map_limit(),
    }


def _map_limit() -> dict[str, str]:
    """The limit of memory maps of a process, where the system has one."""
    try:
        text = Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii")
    except OSError:
        return {}
    return {"bolideMapLimit": text.strip()}


def broker_figures(
    progress: Mapping[int, tuple[int, int]],
    accepts_from: float,
    *,
    active: bool,
    turn: float = 0.0,
) -> dict[str, str]:
    """Versions, delayed messages by level, what waits, and constants for unused keys."""
    return {
        "brokerActive": "true" if active else "false",
        "brokerVersionDesc": ROCKETMQ_VERSION_NAME,
        "brokerVersion": str(ROCKETMQ_VERSION),
        "bolideVersion": __version__,
        "bolideKernel": "compiled" if kernel.COMPILED else "python",
        "startAcceptSendRequestTimeStamp": str(int(accepts_from * 1000)),
        **{
            f"scheduleMessageOffset_{level}": f"{delivered},{end}"
            for level, (delivered, end) in progress.items()
        },
        **_thread_pools(turn),
        "EndTransactionQueueSize": str(TRANSACTIONS.waiting[0]),
        **_CONSTANT_FIGURES,
    }


def human_size(size: int) -> str:
    """Format a size as RocketMQ does: 1.5 KiB."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}iB"


def _rates(statistics: Statistics) -> dict[str, str]:
    rates = {
        "putTps": statistics.rates(lambda totals: totals.sent),
        "getFoundTps": statistics.rates(lambda totals: totals.found),
        "getMissTps": statistics.rates(lambda totals: totals.missed),
        "getTotalTps": statistics.rates(lambda totals: totals.found + totals.missed),
        "getTransferredTps": statistics.rates(lambda totals: totals.got),
    }
    # mqadmin 4.9 reads this misspelled key and fails without it.
    rates["getTransferedTps"] = rates["getTransferredTps"]
    return {key: " ".join(map(str, spans)) for key, spans in rates.items()}


def _day_totals(statistics: Statistics) -> dict[str, str]:
    moments: dict[str, Totals] = {
        "YesterdayMorning": statistics.yesterday_morning,
        "TodayMorning": statistics.this_morning,
        "TodayNow": statistics.totals,
    }
    puts = {f"msgPutTotal{moment}": str(each.user_sent) for moment, each in moments.items()}
    return puts | {f"msgGetTotal{moment}": str(each.user_got) for moment, each in moments.items()}


def _thread_pools(turn: float) -> dict[str, str]:
    table = {}
    for pool in _POOLS:
        name = f"{pool}ThreadPoolQueue"
        waiting, oldest = _ON_THREADS[pool].waiting if pool in _ON_THREADS else (0, 0.0)
        seconds = turn if pool in _ON_LOOP else oldest
        table[f"{name}Size"] = str(waiting)
        table[f"{name}HeadWaitTimeMills"] = str(int(seconds * 1000))
        table[f"{name}Capacity"] = IGNORED[f"{name}Capacity"].default
    return table


def _duration(seconds: float) -> str:
    minutes, second = divmod(max(int(seconds), 0), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"[ {day} days, {hour} hours, {minute} minutes, {second} seconds ]"


def _used_ratio(path: Path) -> float:
    """Used share of a partition, from 0 to 1; the directory itself need not exist yet."""
    while not path.exists():
        path = path.parent
    usage = shutil.disk_usage(path)
    return usage.used / max(usage.used + usage.free, 1)


def _capacity(path: Path) -> str:
    usage = shutil.disk_usage(path)
    return f"Total : {human_size(usage.total)}, Free : {human_size(usage.free)}."
