"""Broker statistics under RocketMQ's names (`BrokerStatsManager`, `StoreStatsService`).

A call on the send or pull path looks up the counter of a queue and adds to it. Counters of topics
and groups are the totals of their queues; they are computed when sampled or queried.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import get_ident
from typing import Final, NamedTuple

from bolide.broker.counters import CALLS, COUNT, SIZE, TIME, TIMED, Counter, Latencies
from bolide.broker.metrics.traffic import Traffic
from bolide.broker.pairs import Pairs
from bolide.events import Listeners
from bolide.model.names import SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from bolide.protocol.bodies.stats import BrokerStats, StatsWindow

_HOUR_SAMPLE, _DAY_SAMPLE = 600.0, 3600.0
_MINUTE = 60.0
_MAX_HISTORY = 61
_SLICE = 500
"""Counters that are sampled at a time: some two milliseconds."""
_SHORT_IDLE, _LEAST_IDLE = 10, 30
"""Minutes: RocketMQ reads a limit of up to 10 as 30."""
_BY_CALL = {COUNT: CALLS, SIZE: CALLS, TIME: TIMED}

SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
"""Delivers messages with a delay level, as far as the statistics are concerned."""
CHANNEL_EVENTS: Final = ("CONNECT", "CLOSE", "EXCEPTION", "IDLE")


class Totals(NamedTuple):
    """Counts since the start."""

    sent: int = 0
    """Messages stored, by clients and by the broker itself."""
    sent_bytes: int = 0
    failed: int = 0
    got: int = 0
    """Messages delivered to consumers."""
    found: int = 0
    """Reads that returned messages."""
    missed: int = 0
    """Reads that returned none."""
    user_sent: int = 0
    """Messages stored in topics that are not system topics."""
    user_got: int = 0
    """Messages delivered from topics that are not system topics."""


class View(NamedTuple):
    """What a name and key of RocketMQ show of a counter."""

    counter: Counter
    shown: int
    """Index of the sum that it shows."""
    calls: int | None
    """The sum that averages are by; RocketMQ counts no calls for figures of the broker."""


class _Queue(NamedTuple):
    """The sums that an operation on a queue adds to."""

    sums: list[float]
    broker: list[float]


class _Owned(NamedTuple):
    """What is kept of a group and topic; without a group, of what is sent to the topic."""

    views: set[tuple[str, str]]
    queues: set[int]
    """Queues that have sums."""
    lags: dict[int, tuple[int, float]]
    """Bytes and seconds by queue."""


def is_system_topic(topic: str) -> bool:
    """Whether every broker has this topic as a system topic; its settings add more."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


class Statistics:
    """All counters of a broker. Call `sample` every 10 s; `now` is the wall clock."""

    def __init__(
        self,
        cluster: str,
        now: Callable[[], float] = time.time,
        *,
        idle_minutes: int = -1,
        is_system: Callable[[str], bool] = is_system_topic,
    ) -> None:
        self.idle_minutes = _LEAST_IDLE if 0 <= idle_minutes <= _SHORT_IDLE else idle_minutes
        """Minutes of inactivity after which counters of a topic or group are dropped; -1: never."""
        self.traffic = Traffic()
        """What metrics count."""
        self.put_latencies = Latencies()
        self.get_latencies = Latencies()
        self.yesterday_morning = Totals()
        self.this_morning = Totals()
        self.before_read: Listeners[[]] = Listeners()
        """Sums are about to be read: parts that count on their own add their pending counts."""
        self.in_slices: list[Callable[[], Iterator[None]]] = []
        """What adds pending counts of many queues little by little, ahead of `before_read`."""
        self._thread = get_ident()
        self._now = now
        self._is_system = is_system
        self._started = now()
        self._day = _day_of(self._started)
        self._missed = self._failed = self._unreported = self._unreported_bytes = 0
        self._put_queues: dict[tuple[str, int], _Queue] = {}
        self._get_queues: dict[tuple[str, str, int], _Queue] = {}
        self._views: dict[tuple[str, str], View] = {}
        self._counters: dict[Counter, None] = {}
        self._owners: dict[tuple[str, str], _Owned] = {}
        """By group and topic."""
        self._pairs = Pairs()
        """The keys of `_owners`."""
        self._history: deque[tuple[float, Totals]] = deque(
            [(self._started, Totals())], _MAX_HISTORY
        )
        self._next_minute, self._next_hour, self._next_day = (
            self._started + step for step in (_MINUTE, _HOUR_SAMPLE, _DAY_SAMPLE)
        )
        self._put, self._user_put = self._broker_counter("PUT", cluster)
        self._get, self._user_get = self._broker_counter("GET", cluster)
        self._acks, self._checkpoints, self._consumer_beats, self._producer_beats = (
            self._counter("", "", {(name, cluster): COUNT}, calls)
            for name, calls in {
                "BROKER_ACK_NUMS": None,
                "BROKER_CK_NUMS": None,
                "CONSUMER_REGISTER_TIME": CALLS,
                "PRODUCER_REGISTER_TIME": CALLS,
            }.items()
        )
        self._channels = [
            self._counter("", "", {("CHANNEL_ACTIVITY", event): COUNT}, CALLS)
            for event in CHANNEL_EVENTS
        ]

    # ---- counting

    def _collect(self) -> None:
        """Have pending counts added; threads that only read see what was collected before."""
        if get_ident() == self._thread:
            self.before_read()

    def collect_in_slices(self) -> Iterator[None]:
        """Have pending counts added; yields every few milliseconds, so that other work can run."""
        for report in self.in_slices:
            yield from report()
        self._collect()

    def sent(self, topic: str, queue_id: int, count: int, size: int, seconds: float) -> None:
        """Count messages that a client's call stored in a queue, and the duration of the call."""
        self._add_sent(topic, queue_id, count, size, 1, seconds)
        self.put_latencies.add(seconds * 1000)

    def sent_singly(self, topic: str, queue_id: int, count: int, size: int, seconds: float) -> None:
        """Count messages stored in a queue by one call each; `seconds` is the duration per call.

        Does not update `put_latencies`: the caller uses `add_put_latency`.
        """
        self._add_sent(topic, queue_id, count, size, count, seconds)

    def _add_sent(
        self, topic: str, queue_id: int, count: int, size: int, calls: int, seconds: float
    ) -> None:
        found = self._put_queues.get((topic, queue_id)) or self._new_put_queue(topic, queue_id)
        sums, total = found
        sums[COUNT] += count
        sums[SIZE] += size
        sums[TIME] += seconds * 1000 * calls
        sums[CALLS] += calls
        sums[TIMED] += calls
        total[COUNT] += count
        total[SIZE] += size
        total[CALLS] += calls

    def add_put_latency(self, count: int, seconds: float) -> None:
        """Add `count` sends of the same duration to the latency histogram."""
        self.put_latencies.add(seconds * 1000, count)

    def stored(self, topic: str, queue_id: int, size: int) -> None:
        """Count a message that the broker itself stored for delivery; no client waited for it."""
        sums, total = self._put_queues.get((topic, queue_id)) or self._new_put_queue(
            topic, queue_id
        )
        for each in (sums, total):
            each[COUNT] += 1
            each[SIZE] += size
            each[CALLS] += 1

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
        seconds: float | None,
    ) -> None:
        """Like `got`, for several reads with a total duration; does not update `get_latencies`.

        Args:
            seconds: None for reads of a pop, which `popped` is told the duration of.
        """
        key = (group, topic, queue_id)
        sums, total = self._get_queues.get(key) or self._new_get_queue(*key)
        sums[COUNT] += count
        sums[SIZE] += size
        sums[CALLS] += calls
        if seconds is not None:
            sums[TIME] += seconds * 1000
            sums[TIMED] += calls
        total[COUNT] += count
        total[SIZE] += size
        total[CALLS] += calls

    def got_nothing(self) -> None:
        """Count a read that returned no messages."""
        self._missed += 1

    def fell_behind(self, group: str, topic: str, queue_id: int, size: int, seconds: float) -> None:
        """Record the lag of a group in a queue, in bytes and seconds."""
        self._owned(group, topic).lags[queue_id] = (size, seconds)

    def caught_up(self, group: str, topic: str, queue_id: int) -> None:
        """Record that a group has read a queue to its end."""
        owned = self._owners.get((group, topic))
        if owned is not None and queue_id in owned.lags:
            owned.lags[queue_id] = (0, 0.0)

    def delivered_delayed(self, queue_id: int, topic: str, to_queue: int, size: int) -> None:
        """Count a message with a delay level that was moved to its topic."""
        self.traffic.delayed_delivered(topic, size)
        sums, _ = self._get_queues.get(
            (SCHEDULE_GROUP, SCHEDULE_TOPIC, queue_id)
        ) or self._new_get_queue(SCHEDULE_GROUP, SCHEDULE_TOPIC, queue_id)
        sums[COUNT] += 1
        sums[SIZE] += size
        sums[CALLS] += 1
        self.stored(topic, to_queue, size)

    def sent_back(self, group: str, topic: str, size: int, delayed_in: int | None) -> None:
        """Count a message that a consumer sent back for redelivery.

        As RocketMQ does, the topic counts that holds it until then, and the broker when it is
        delivered; a dead letter is in neither.

        Args:
            delayed_in: the queue of delayed messages that it went to, None if to none.
        """
        self._count("SNDBCK_PUT_NUMS", group, f"{topic}@{group}", topic, 1)
        self._unreported += 1
        self._unreported_bytes += size
        if delayed_in is not None:
            sums, _ = self._put_queues.get((SCHEDULE_TOPIC, delayed_in)) or self._new_put_queue(
                SCHEDULE_TOPIC, delayed_in
            )
            sums[COUNT] += 1
            sums[SIZE] += size
            sums[CALLS] += 1

    def dead_lettered(self, group: str, topic: str, *, by_broker: bool) -> None:
        """Count a message moved to the dead letters: sent back, or by a client that retries."""
        self.traffic.dead_lettered(group, topic, 1)
        self._count("DLQ_PUT_NUMS", group, f"{topic}@{group}", topic, 1)
        if by_broker:  # the key begins with the owner of an account, which is never there
            self._count(
                "SNDBCK2DLQ_TIMES", group, f"null@{topic}@{group}@SEND_BACK_TO_DLQ", topic, 1
            )

    def popped(self, group: str, topic: str, queue_id: int, seconds: float) -> None:
        """Count a pop that returned messages; it may have named no queue."""
        self.get_latencies.add(seconds * 1000)
        if queue_id >= 0:
            sums = (
                self._get_queues.get((group, topic, queue_id))
                or self._new_get_queue(group, topic, queue_id)
            ).sums
        else:
            view = ("GROUP_GET_LATENCY", f"{queue_id}@{topic}@{group}")
            sums = self._counter(group, topic, {view: TIME}).sums
            sums[CALLS] += 1
        sums[TIME] += seconds * 1000
        sums[TIMED] += 1

    def leased(self, group: str, topic: str, count: int = 1) -> None:
        """Count checkpoints: one for each queue of a pop, and for each changed invisible time."""
        self._count("GROUP_CK_NUMS", group, f"{topic}@{group}", topic, count)
        self._checkpoints.sums[COUNT] += count

    def acknowledged(self, group: str, topic: str, count: int) -> None:
        self._count("GROUP_ACK_NUMS", group, f"{topic}@{group}", topic, count)
        self._acks.sums[COUNT] += count

    def registered(self, consumers: int, producers: int, seconds: float) -> None:
        """Count the groups that a heartbeat registers, and how long it took for each of them."""
        for counter, groups in (
            (self._consumer_beats, consumers),
            (self._producer_beats, producers),
        ):
            counter.sums[COUNT] += seconds * 1000 * groups
            counter.sums[CALLS] += groups

    def channels(self, counts: Sequence[int]) -> None:
        """Take over how often connections were opened, closed, broken and closed as idle."""
        for counter, count in zip(self._channels, counts, strict=True):
            counter.sums[COUNT] = counter.sums[CALLS] = count

    # ---- periodic work

    def sample(self) -> None:
        """Sample all counters and drop idle ones."""
        for _ in self.sample_in_slices():
            pass

    def sample_in_slices(self) -> Iterator[None]:
        """As `sample`; yields every few milliseconds, so that other work can run."""
        yield from self.collect_in_slices()
        now = self._now()
        for_hour, for_day = now >= self._next_hour, now >= self._next_day
        for number, counter in enumerate(list(self._counters)):
            if number and number % _SLICE == 0:
                yield
            counter.sample(now, for_hour=for_hour, for_day=for_day)
        self._history.append((now, self.totals))
        if now >= self._next_minute:
            self._next_minute = now + _MINUTE
            self.put_latencies.begin_minute()
            self.get_latencies.begin_minute()
            self._drop_idle(now)
        if for_hour:
            self._next_hour = now + _HOUR_SAMPLE
        if for_day:
            self._next_day = now + _DAY_SAMPLE
        self._start_day(now)

    def forget_topic(self, topic: str) -> None:
        self._collect()
        self.traffic.forget_topic(topic)
        self._drop(self._pairs.of_topic(topic))

    def forget_group(self, group: str) -> None:
        self._collect()
        self.traffic.forget_group(group)
        self._drop(self._pairs.of_group(group))

    # ---- queries

    def view(self, name: str, key: str) -> BrokerStats | None:
        """Find a statistic by RocketMQ's name and key."""
        self._collect()
        if name in {"GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME"}:
            return self._view_lag(name, key)
        found = self._views.get((name, key))
        if found is None:
            return None
        counter, index, calls = found
        if index == TIME and not counter.totals()[TIMED]:
            return None  # no client has waited for this queue yet
        return counter.stats(self._now(), index, calls)

    def _view_lag(self, name: str, key: str) -> BrokerStats | None:
        queue_id, _, pair = key.partition("@")
        topic, _, group = pair.partition("@")
        owned = self._owners.get((group, topic))
        if owned is None or not queue_id.isdecimal() or int(queue_id) not in owned.lags:
            return None
        size, seconds = owned.lags[int(queue_id)]
        value = size if name == "GROUP_GET_FALL_SIZE" else round(seconds * 1000)
        now = StatsWindow(sum=value)
        return BrokerStats(stats_minute=now, stats_hour=now, stats_day=now)

    def rate(self, name: str, key: str) -> float | None:
        """The rate of a statistic over the last minute, if there is one. Any thread may call it."""
        found = self._views.get((name, key))
        return found.counter.tps(self._now(), found.shown) if found else None

    def minute_sum(self, name: str, key: str) -> int | None:
        """The sum of a statistic over the last minute, if there is one. Any thread may call it."""
        found = self._views.get((name, key))
        return found.counter.sum(self._now(), found.shown) if found else None

    def put_tps(self, topic: str) -> float:
        """Messages stored per second over the last minute."""
        found = self._views.get(("TOPIC_PUT_NUMS", topic))
        return found.counter.tps(self._now()) if found else 0.0

    def get_tps(self, group: str, topic: str) -> float:
        """Messages delivered per second over the last minute."""
        found = self._views.get(("GROUP_GET_NUMS", f"{topic}@{group}"))
        return found.counter.tps(self._now()) if found else 0.0

    @property
    def totals(self) -> Totals:
        self._collect()
        put, get = self._put.totals(), self._get.totals()
        return Totals(
            sent=int(put[COUNT]) + self._unreported,
            sent_bytes=int(put[SIZE]) + self._unreported_bytes,
            failed=self._failed,
            got=int(get[COUNT]),
            found=int(get[CALLS]),
            missed=self._missed,
            user_sent=int(self._user_put.sums[COUNT]),
            user_got=int(self._user_get.sums[COUNT]),
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

    def _broker_counter(self, verb: str, cluster: str) -> tuple[Counter, Counter]:
        """The counter of all topics, and its part of those that are not system topics."""
        whole = self._counter("", "", {(f"BROKER_{verb}_NUMS", cluster): COUNT}, None)
        user = self._counter(
            "", "", {(f"BROKER_{verb}_NUMS_WITHOUT_SYSTEM_TOPIC", cluster): COUNT}, None
        )
        whole.parts += [user, Counter(self._started)]
        return whole, user

    def _broker_sums(self, whole: Counter, topic: str) -> list[float]:
        user, system = whole.parts
        return (system if self._is_system(topic) else user).sums

    def _new_put_queue(self, topic: str, queue_id: int) -> _Queue:
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
        found = _Queue(queue.sums, self._broker_sums(self._put, topic))
        self._put_queues[topic, queue_id] = found
        self._owned("", topic).queues.add(queue_id)
        return found

    def _new_get_queue(self, group: str, topic: str, queue_id: int) -> _Queue:
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
        found = _Queue(queue.sums, self._broker_sums(self._get, topic))
        self._get_queues[group, topic, queue_id] = found
        self._owned(group, topic).queues.add(queue_id)
        return found

    def _count(self, name: str, group: str, key: str, topic: str, count: int) -> None:
        sums = self._counter(group, topic, {(name, key): COUNT}).sums
        sums[COUNT] += count
        sums[CALLS] += 1

    def _counter(
        self, group: str, topic: str, views: dict[tuple[str, str], int], calls: int | None = CALLS
    ) -> Counter:
        """Return the counter with these names and keys; create it if it is missing.

        Args:
            calls: None for a figure without averages.
        """
        found = self._views.get(next(iter(views)))
        if found:
            return found.counter
        counter = Counter(self._now())
        self._counters[counter] = None
        self._views |= {
            view: View(counter, index, calls and _BY_CALL[index]) for view, index in views.items()
        }
        self._owned(group, topic).views.update(views)
        return counter

    def _owned(self, group: str, topic: str) -> _Owned:
        found = self._owners.get((group, topic))
        if found is None:
            found = self._owners[group, topic] = _Owned(set(), set(), {})
            self._pairs.add(group, topic)
        return found

    def _start_day(self, now: float) -> None:
        day = _day_of(now)
        if day != self._day:
            self._day = day
            self.yesterday_morning, self.this_morning = self.this_morning, self.totals

    def _drop_idle(self, now: float) -> None:
        if self.idle_minutes < 0:
            return
        oldest = now - self.idle_minutes * _MINUTE
        idle = [
            pair
            for pair, owned in self._owners.items()
            if pair != ("", "")
            and owned.views
            and all(self._views[view].counter.changed < oldest for view in owned.views)
        ]
        self._drop(idle)

    def _drop(self, pairs: Iterable[tuple[str, str]]) -> None:
        for group, topic in pairs:
            owned = self._owners.pop((group, topic))
            self._pairs.discard(group, topic)
            for view in owned.views:
                self._counters.pop(self._views.pop(view).counter, None)
            for queue_id in owned.queues:
                self._get_queues.pop((group, topic, queue_id), None)
                if not group:
                    self._put_queues.pop((topic, queue_id), None)


def _day_of(seconds: float) -> tuple[int, int]:
    moment = time.localtime(seconds)
    return moment.tm_year, moment.tm_yday
