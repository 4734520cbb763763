"""Broker statistics under RocketMQ's names (`BrokerStatsManager`, `StoreStatsService`).

A call on the send or pull path looks up the counter of a queue and adds to it. Counters of topics
and groups are the totals of their queues; they are computed when sampled or queried.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bolide.broker.counters import CALLS, COUNT, SIZE, TIME, Counter, Latencies
from bolide.broker.metrics.traffic import Traffic
from bolide.events import Listeners
from bolide.protocol.bodies.stats import BrokerStats, StatsWindow

_HOUR_SAMPLE, _DAY_SAMPLE = 600.0, 3600.0
_MINUTE = 60.0
_MAX_HISTORY = 61


class Totals(NamedTuple):
    """Counts since the start."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    got: int = 0
    """Messages delivered to consumers."""
    found: int = 0
    """Reads that returned messages."""
    missed: int = 0
    """Reads that returned none."""


class Statistics:
    """All counters of a broker. Call `sample` every 10 s; `now` is the wall clock."""

    def __init__(
        self, cluster: str, now: Callable[[], float] = time.time, *, idle_minutes: int = -1
    ) -> None:
        self.idle_minutes = idle_minutes
        """Minutes of inactivity after which counters of a topic or group are dropped; -1: never."""
        self.traffic = Traffic()
        """What metrics count."""
        self.put_latencies = Latencies()
        self.get_latencies = Latencies()
        self.yesterday_morning = Totals()
        self.this_morning = Totals()
        self.before_read: Listeners[[]] = Listeners()
        """Sums are about to be read: parts that count on their own add their pending counts."""
        self._now = now
        self._started = now()
        self._day = _day_of(self._started)
        self._missed = self._failed = 0
        self._put_queues: dict[tuple[str, int], list[float]] = {}
        self._get_queues: dict[tuple[str, str, int], list[float]] = {}
        self._lags: dict[tuple[str, str, int], tuple[int, float]] = {}
        self._views: dict[tuple[str, str], tuple[Counter, int]] = {}
        self._owners: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self._history: deque[tuple[float, Totals]] = deque(
            [(self._started, Totals())], _MAX_HISTORY
        )
        self._next_minute, self._next_hour, self._next_day = (
            self._started + step for step in (_MINUTE, _HOUR_SAMPLE, _DAY_SAMPLE)
        )
        self._broker_put = self._counter("", "", {("BROKER_PUT_NUMS", cluster): COUNT}).sums
        self._broker_get = self._counter("", "", {("BROKER_GET_NUMS", cluster): COUNT}).sums

    # ---- counting

    def _collect(self) -> None:
        self.before_read()

    def sent(self, topic: str, queue_id: int, count: int, size: int, seconds: float) -> None:
        """Count messages stored in a queue by one call, and the duration of the call."""
        sums = self._put_queues.get((topic, queue_id)) or self._new_put_queue(topic, queue_id)
        total, milliseconds = self._broker_put, seconds * 1000
        sums[COUNT] += count
        sums[SIZE] += size
        sums[TIME] += milliseconds
        sums[CALLS] += 1
        total[COUNT] += count
        total[SIZE] += size
        total[CALLS] += 1
        self.put_latencies.add(milliseconds)

    def sent_singly(self, topic: str, queue_id: int, count: int, size: int, seconds: float) -> None:
        """Count messages stored in a queue by one call each; `seconds` is the duration per call.

        Does not update `put_latencies`: the caller uses `add_put_latency`.
        """
        sums = self._put_queues.get((topic, queue_id)) or self._new_put_queue(topic, queue_id)
        total, milliseconds = self._broker_put, seconds * 1000
        sums[COUNT] += count
        sums[SIZE] += size
        sums[TIME] += milliseconds * count
        sums[CALLS] += count
        total[COUNT] += count
        total[SIZE] += size
        total[CALLS] += count

    def add_put_latency(self, count: int, seconds: float) -> None:
        """Add `count` sends of the same duration to the latency histogram."""
        self.put_latencies.add(seconds * 1000, count)

    def failed(self) -> None:
        """Count a message that could not be stored."""
        self._failed += 1

    def got(
        self, group: str, topic: str, queue_id: int, count: int, size: int, seconds: float = 0.0
    ) -> None:
        """Count messages that a group received from a queue, and the duration of the read."""
        self.got_by_calls(1, group, topic, queue_id, count, size, seconds)
        self.get_latencies.add(seconds * 1000)

    def got_by_calls(  # noqa: PLR0913, PLR0917  as `got`
        self,
        calls: int,
        group: str,
        topic: str,
        queue_id: int,
        count: int,
        size: int,
        seconds: float,
    ) -> None:
        """Like `got`, for several reads with a total duration; does not update `get_latencies`."""
        key = (group, topic, queue_id)
        sums = self._get_queues.get(key) or self._new_get_queue(*key)
        total = self._broker_get
        sums[COUNT] += count
        sums[SIZE] += size
        sums[TIME] += seconds * 1000
        sums[CALLS] += calls
        total[COUNT] += count
        total[SIZE] += size
        total[CALLS] += calls

    def got_nothing(self) -> None:
        """Count a read that returned no messages."""
        self._missed += 1

    def fell_behind(self, group: str, topic: str, queue_id: int, size: int, seconds: float) -> None:
        """Record the lag of a group in a queue, in bytes and seconds."""
        self._lags[group, topic, queue_id] = (size, seconds)

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back for redelivery."""
        self._count("SNDBCK_PUT_NUMS", group, topic, 1)

    def dead_lettered(self, group: str, topic: str, count: int) -> None:
        self.traffic.dead_lettered(group, topic, count)
        self._count("DLQ_PUT_NUMS", group, topic, count)
        self._count("SNDBCK2DLQ_TIMES", group, topic, count)

    def popped(self, group: str, topic: str) -> None:
        """Count a pop that returned messages."""
        self._count("GROUP_CK_NUMS", group, topic, 1)

    def acknowledged(self, group: str, topic: str, count: int) -> None:
        self._count("GROUP_ACK_NUMS", group, topic, count)

    # ---- periodic work

    def sample(self) -> None:
        """Sample all counters and drop idle ones."""
        self._collect()
        now = self._now()
        for_hour, for_day = now >= self._next_hour, now >= self._next_day
        for counter in {id(counter): counter for counter, _ in self._views.values()}.values():
            counter.sample(now, for_hour=for_hour, for_day=for_day)
        self._history.append((now, self.totals))
        if now >= self._next_minute:
            self._next_minute = now + _MINUTE
            self.put_latencies.begin_minute()
            self.get_latencies.begin_minute()
        if for_hour:
            self._next_hour = now + _HOUR_SAMPLE
        if for_day:
            self._next_day = now + _DAY_SAMPLE
        self._start_day(now)
        self._drop_idle(now)

    def forget_topic(self, topic: str) -> None:
        self._collect()
        self.traffic.forget_topic(topic)
        self._drop(lambda _, owner: owner == topic)

    def forget_group(self, group: str) -> None:
        self._collect()
        self.traffic.forget_group(group)
        self._drop(lambda owner, _: owner == group)

    # ---- queries

    def view(self, name: str, key: str) -> BrokerStats | None:
        """Find a statistic by RocketMQ's name and key."""
        self._collect()
        if name in {"GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME"}:
            return self._view_lag(name, key)
        found = self._views.get((name, key))
        return found[0].stats(found[1]) if found else None

    def _view_lag(self, name: str, key: str) -> BrokerStats | None:
        queue_id, _, pair = key.partition("@")
        topic, _, group = pair.partition("@")
        if not queue_id.isdecimal() or (group, topic, int(queue_id)) not in self._lags:
            return None
        size, seconds = self._lags[group, topic, int(queue_id)]
        value = size if name == "GROUP_GET_FALL_SIZE" else round(seconds * 1000)
        now = StatsWindow(sum=value)
        return BrokerStats(stats_minute=now, stats_hour=now, stats_day=now)

    def rate(self, name: str, key: str) -> float | None:
        """The rate of a statistic over the last minute, if there is one. Any thread may call it."""
        found = self._views.get((name, key))
        return found[0].tps(found[1]) if found else None

    def minute_sum(self, name: str, key: str) -> int | None:
        """The sum of a statistic over the last minute, if there is one. Any thread may call it."""
        found = self._views.get((name, key))
        minute = found[0].stats(found[1]).stats_minute if found else None
        return minute.sum if minute is not None else None

    def put_tps(self, topic: str) -> float:
        """Messages stored per second over the last minute."""
        found = self._views.get(("TOPIC_PUT_NUMS", topic))
        return found[0].tps() if found else 0.0

    def get_tps(self, group: str, topic: str) -> float:
        """Messages delivered per second over the last minute."""
        found = self._views.get(("GROUP_GET_NUMS", f"{topic}@{group}"))
        return found[0].tps() if found else 0.0

    @property
    def totals(self) -> Totals:
        self._collect()
        put, get = self._broker_put, self._broker_get
        return Totals(
            sent=int(put[COUNT]),
            sent_bytes=int(put[SIZE]),
            failed=self._failed,
            got=int(get[COUNT]),
            found=int(get[CALLS]),
            missed=self._missed,
        )

    def rates(self, of: Callable[[Totals], int]) -> list[float]:
        """Growth per second of a total over the last 10 s, minute and ten minutes."""
        now, totals = self._now(), of(self.totals)
        return [self._rate(of, totals, now, span) for span in (10, 60, 600)]

    def _rate(self, of: Callable[[Totals], int], total: int, now: float, span: int) -> float:
        """Rate since the newest sample that is at least `span` seconds old, or since the start."""
        old = (each for each in reversed(self._history) if now - each[0] >= span)
        then, totals = next(old, self._history[0])
        return (total - of(totals)) / (now - then) if now > then else 0.0

    # ---- inside

    def _new_put_queue(self, topic: str, queue_id: int) -> list[float]:
        number = f"{topic}@{queue_id}"
        queue = self._counter(
            "",
            topic,
            {
                ("QUEUE_PUT_NUMS", number): COUNT,
                ("QUEUE_PUT_SIZE", number): SIZE,
                ("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}"): TIME,
            },
        )
        whole = {("TOPIC_PUT_NUMS", topic): COUNT, ("TOPIC_PUT_SIZE", topic): SIZE}
        self._counter("", topic, whole).parts.append(queue)
        self._put_queues[topic, queue_id] = queue.sums
        return queue.sums

    def _new_get_queue(self, group: str, topic: str, queue_id: int) -> list[float]:
        number = f"{topic}@{queue_id}@{group}"
        queue = self._counter(
            group,
            topic,
            {
                ("QUEUE_GET_NUMS", number): COUNT,
                ("QUEUE_GET_SIZE", number): SIZE,
                ("GROUP_GET_LATENCY", f"{queue_id}@{topic}@{group}"): TIME,
            },
        )
        pair = f"{topic}@{group}"
        whole = {("GROUP_GET_NUMS", pair): COUNT, ("GROUP_GET_SIZE", pair): SIZE}
        self._counter(group, topic, whole).parts.append(queue)
        self._get_queues[group, topic, queue_id] = queue.sums
        return queue.sums

    def _count(self, name: str, group: str, topic: str, count: int) -> None:
        sums = self._counter(group, topic, {(name, f"{topic}@{group}"): COUNT}).sums
        sums[COUNT] += count
        sums[CALLS] += 1

    def _counter(self, group: str, topic: str, views: dict[tuple[str, str], int]) -> Counter:
        """Return the counter with these names and keys; create it if it is missing."""
        found = self._views.get(next(iter(views)))
        if found:
            return found[0]
        counter = Counter(self._now())
        self._views |= {view: (counter, index) for view, index in views.items()}
        self._owners.setdefault((group, topic), set()).update(views)
        return counter

    def _start_day(self, now: float) -> None:
        day = _day_of(now)
        if day != self._day:
            self._day = day
            self.yesterday_morning, self.this_morning = self.this_morning, self.totals

    def _drop_idle(self, now: float) -> None:
        if self.idle_minutes < 0:
            return
        oldest = now - self.idle_minutes * _MINUTE
        idle = {
            owner
            for owner, views in self._owners.items()
            if owner != ("", "") and all(self._views[view][0].changed < oldest for view in views)
        }
        self._drop(lambda group, topic: (group, topic) in idle)

    def _drop(self, is_gone: Callable[[str, str], bool]) -> None:
        for owner in [owner for owner in self._owners if is_gone(*owner)]:
            for view in self._owners.pop(owner):
                del self._views[view]
        self._put_queues = {
            key: sums for key, sums in self._put_queues.items() if not is_gone("", key[0])
        }
        self._get_queues = {
            key: sums for key, sums in self._get_queues.items() if not is_gone(*key[:2])
        }
        self._lags = {key: lag for key, lag in self._lags.items() if not is_gone(*key[:2])}


def _day_of(seconds: float) -> tuple[int, int]:
    moment = time.localtime(seconds)
    return moment.tm_year, moment.tm_yday
