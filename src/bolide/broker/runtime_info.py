"""What mqadmin brokerStatus and clusterList show of a broker, under RocketMQ's keys.

Java's tools read some of the values without a look whether they are there, so all keys are always
given; what has no counterpart here is told as it is: nothing waits in a queue that is not there.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from bolide.broker.ignored import IGNORED
from bolide.broker.statistics import Statistics, Totals
from bolide.store.message_store import MessageStore
from bolide.version import ROCKETMQ_VERSION, ROCKETMQ_VERSION_NAME, __version__

_UNITS = "KMGTPE"
_POOLS = ("send", "pull", "litePull", "query", "ack")

_WITHOUT_COUNTERPART = {
    "dispatchMaxBuffer": "0",
    "dispatchBehindBytes": "0",
    "pageCacheLockTimeMills": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": IGNORED["endTransactionPoolQueueCapacity"].default,
}


def counted(statistics: Statistics, boot_time: float, now: float) -> dict[str, str]:
    """What the statistics tell."""
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


def stored(store: MessageStore) -> dict[str, str]:
    """What the store and its disk tell. Blocks."""
    config = store.config.value
    ratios = {str(path): _used_ratio(path) for path in config.new_log_directories}
    return {
        "commitLogDiskRatio": str(min(ratios.values())),
        **{f"commitLogDiskRatio_{path}": str(ratio) for path, ratio in ratios.items()},
        "consumeQueueDiskRatio": str(_used_ratio(config.root)),
        "commitLogMinOffset": str(store.log.min_offset),
        "commitLogMaxOffset": str(store.log.written),
        "commitLogDirCapacity": _capacity(config.root),
        "remainHowManyDataToFlush": human_size(max(store.log.written - store.flushed, 0)),
        "earliestMessageTimeStamp": str(store.earliest_log_time()),
    }


def described(
    progress: Mapping[int, tuple[int, int]], accepts_from: float, *, active: bool
) -> dict[str, str]:
    """What remains: versions, delayed messages by level, and the queues of thread pools."""
    return {
        "brokerActive": "true" if active else "false",
        "brokerVersionDesc": ROCKETMQ_VERSION_NAME,
        "brokerVersion": str(ROCKETMQ_VERSION),
        "bolideVersion": __version__,
        "startAcceptSendRequestTimeStamp": str(int(accepts_from * 1000)),
        **{
            f"scheduleMessageOffset_{level}": f"{delivered},{end}"
            for level, (delivered, end) in progress.items()
        },
        **_thread_pools(),
        **_WITHOUT_COUNTERPART,
    }


def human_size(size: int) -> str:
    """As RocketMQ writes it: 1.5 KiB."""
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
    # mqadmin of 4.9 looks for its own spelling, and stumbles without it.
    rates["getTransferedTps"] = rates["getTransferredTps"]
    return {key: " ".join(map(str, spans)) for key, spans in rates.items()}


def _day_totals(statistics: Statistics) -> dict[str, str]:
    moments: dict[str, Totals] = {
        "YesterdayMorning": statistics.yesterday_morning,
        "TodayMorning": statistics.this_morning,
        "TodayNow": statistics.totals,
    }
    puts = {f"msgPutTotal{moment}": str(totals.sent) for moment, totals in moments.items()}
    return puts | {f"msgGetTotal{moment}": str(totals.got) for moment, totals in moments.items()}


def _thread_pools() -> dict[str, str]:
    table = {}
    for pool in _POOLS:
        name = f"{pool}ThreadPoolQueue"
        table[f"{name}Size"] = table[f"{name}HeadWaitTimeMills"] = "0"
        table[f"{name}Capacity"] = IGNORED[f"{name}Capacity"].default
    return table


def _duration(seconds: float) -> str:
    minutes, second = divmod(max(int(seconds), 0), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"[ {day} days, {hour} hours, {minute} minutes, {second} seconds ]"


def _used_ratio(path: Path) -> float:
    """How full a partition is, from 0 to 1; the directory may have yet to be made."""
    while not path.exists():
        path = path.parent
    usage = shutil.disk_usage(path)
    return usage.used / max(usage.used + usage.free, 1)


def _capacity(path: Path) -> str:
    usage = shutil.disk_usage(path)
    return f"Total : {human_size(usage.total)}, Free : {human_size(usage.free)}."
