"""What a broker counts, as RocketMQ counts it (`BrokerStatsManager`, `StoreStatsService`).

The calls on the paths of sends and pulls look up one record and add to it. Topics and groups are
the sums of their queues; that and everything else is worked out when somebody asks.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bolide.broker.counters import CALLS, COUNT, SIZE, TIME, Counter, Latencies
from bolide.protocol.bodies.stats import BrokerStats, StatsWindow

_HOUR_SAMPLE, _DAY_SAMPLE = 600.0, 3600.0
_MINUTE = 60.0
_KEPT_TOTALS = 61


class Totals(NamedTuple):
    """Counts since the start."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    got: int = 0
    found: int = 0
    missed: int = 0


class Statistics:
    """One for a broker. Times are of the wall clock; `sample` is to be called every 10 s."""

    def __init__(
        self, cluster: str, now: Callable[[], float] = time.time, *, idle_minutes: int = -1
    ) -> None:
        self.idle_minutes = idle_minutes
        """Minutes without a count after which a topic or group is forgotten; -1 is never."""
        self.put_latencies = Latencies()
        self.get_latencies = Latencies()
        self.yesterday_morning = Totals()
        self.this_morning = Totals()
        self._tellers: list[Callable[[], None]] = []
        self._now = now
        self._started = now()
        self._day = _day_of(self._started)
        self._missed = self._failed = 0
        self._put_queues: dict[tuple[str, int], list[float]] = {}
        self._get_queues: dict[tuple[str, str, int], list[float]] = {}
        self._behind: dict[tuple[str, str, int], tuple[int, float]] = {}
        self._views: dict[tuple[str, str], tuple[Counter, int]] = {}
        self._owners: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self._history: deque[tuple[float, Totals]] = deque(
            [(self._started, Totals())], _KEPT_TOTALS
        )
        self._next_minute, self._next_hour, self._next_day = (
            self._started + step for step in (_MINUTE, _HOUR_SAMPLE, _DAY_SAMPLE)
        )
        self._broker_put = self._counter("", "", {("BROKER_PUT_NUMS", cluster): COUNT}).sums
        self._broker_get = self._counter("", "", {("BROKER_GET_NUMS", cluster): COUNT}).sums

    # ---- counting

    def ask_first(self, tell: Callable[[], None]) -> None:
        """Have `tell` called before sums are looked at: who counts for itself says how many."""
        self._tellers.append(tell)

    def _ask(self) -> None:
        for tell in self._tellers:
            tell()

    def sent(self, topic: str, queue_id: int, count: int, size: int, seconds: float) -> None:
        """Messages were stored in a queue, in one call that took so long."""
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
        """Messages were stored in a queue, each in so long, of which `took` tells too."""
        sums = self._put_queues.get((topic, queue_id)) or self._new_put_queue(topic, queue_id)
        total, milliseconds = self._broker_put, seconds * 1000
        sums[COUNT] += count
        sums[SIZE] += size
        sums[TIME] += milliseconds * count
        sums[CALLS] += count
        total[COUNT] += count
        total[SIZE] += size
        total[CALLS] += count

    def took(self, count: int, seconds: float) -> None:
        """So many messages were stored, each in so long."""
        self.put_latencies.add(seconds * 1000, count)

    def failed(self) -> None:
        """A message could not be stored."""
        self._failed += 1

    def got(
        self, group: str, topic: str, queue_id: int, count: int, size: int, seconds: float = 0.0
    ) -> None:
        """A group got messages of a queue, read in so long."""
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
        """As `got`, but for `get_latencies`, with so many calls in so long altogether."""
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
        self._missed += 1

    def fell_behind(self, group: str, topic: str, queue_id: int, size: int, seconds: float) -> None:
        """How far a group is behind the end of a queue, in bytes and in time."""
        self._behind[group, topic, queue_id] = (size, seconds)

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer gave a message back to have it again later."""
        self._count("SNDBCK_PUT_NUMS", group, topic, 1)

    def dead_lettered(self, group: str, topic: str, count: int) -> None:
        self._count("DLQ_PUT_NUMS", group, topic, count)
        self._count("SNDBCK2DLQ_TIMES", group, topic, count)

    def popped(self, group: str, topic: str) -> None:
        """A group took messages that it has to acknowledge."""
        self._count("GROUP_CK_NUMS", group, topic, 1)

    def acknowledged(self, group: str, topic: str, count: int) -> None:
        self._count("GROUP_ACK_NUMS", group, topic, count)

    # ---- keeping

    def sample(self) -> None:
        """Note how far the counters are."""
        self._ask()
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
        self._turn_day(now)
        self._forget_idle(now)

    def forget_topic(self, topic: str) -> None:
        self._ask()
        self._forget(lambda _, owner: owner == topic)

    def forget_group(self, group: str) -> None:
        self._ask()
        self._forget(lambda owner, _: owner == group)

    # ---- telling

    def view(self, name: str, key: str) -> BrokerStats | None:
        """A statistic by the name and key that it has in RocketMQ."""
        self._ask()
        if name in {"GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME"}:
            return self._view_behind(name, key)
        found = self._views.get((name, key))
        return found[0].stats(found[1]) if found else None

    def _view_behind(self, name: str, key: str) -> BrokerStats | None:
        queue_id, _, pair = key.partition("@")
        topic, _, group = pair.partition("@")
        if not queue_id.isdecimal() or (group, topic, int(queue_id)) not in self._behind:
            return None
        size, seconds = self._behind[group, topic, int(queue_id)]
        value = size if name == "GROUP_GET_FALL_SIZE" else round(seconds * 1000)
        now = StatsWindow(sum=value)
        return BrokerStats(stats_minute=now, stats_hour=now, stats_day=now)

    def put_tps(self, topic: str) -> float:
        """Messages stored a second, over the last minute."""
        found = self._views.get(("TOPIC_PUT_NUMS", topic))
        return found[0].tps() if found else 0.0

    def get_tps(self, group: str, topic: str) -> float:
        """Messages got a second, over the last minute."""
        found = self._views.get(("GROUP_GET_NUMS", f"{topic}@{group}"))
        return found[0].tps() if found else 0.0

    @property
    def totals(self) -> Totals:
        self._ask()
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
        """How much a total grew a second over the last 10 s, minute and ten minutes."""
        now, totals = self._now(), of(self.totals)
        return [self._rate(of, totals, now, span) for span in (10, 60, 600)]

    def _rate(self, of: Callable[[Totals], int], total: int, now: float, span: int) -> float:
        """Since the youngest sample of that age; since the start if there is none so old."""
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
        """The counter that is seen under these names and keys, made if there is none."""
        found = self._views.get(next(iter(views)))
        if found:
            return found[0]
        counter = Counter(self._now())
        self._views |= {view: (counter, slot) for view, slot in views.items()}
        self._owners.setdefault((group, topic), set()).update(views)
        return counter

    def _turn_day(self, now: float) -> None:
        day = _day_of(now)
        if day != self._day:
            self._day = day
            self.yesterday_morning, self.this_morning = self.this_morning, self.totals

    def _forget_idle(self, now: float) -> None:
        if self.idle_minutes < 0:
            return
        oldest = now - self.idle_minutes * _MINUTE
        idle = {
            owner
            for owner, views in self._owners.items()
            if owner != ("", "") and all(self._views[view][0].changed < oldest for view in views)
        }
        self._forget(lambda group, topic: (group, topic) in idle)

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        for owner in [owner for owner in self._owners if is_gone(*owner)]:
            for view in self._owners.pop(owner):
                del self._views[view]
        self._put_queues = {
            key: sums for key, sums in self._put_queues.items() if not is_gone("", key[0])
        }
        self._get_queues = {
            key: sums for key, sums in self._get_queues.items() if not is_gone(*key[:2])
        }
        self._behind = {key: lag for key, lag in self._behind.items() if not is_gone(*key[:2])}


def _day_of(seconds: float) -> tuple[int, int]:
    moment = time.localtime(seconds)
    return moment.tm_year, moment.tm_yday
