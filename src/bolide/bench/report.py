"""The lines that RocketMQ's benchmark programs print while they run."""

import time
from collections.abc import Callable
from datetime import datetime

from bolide.bench.counters import ConsumeCounters, ConsumeTotals, SendCounters, SendTotals

Say = Callable[[str], None]
Clock = Callable[[], float]


class SendProgress:
    """Tells of the sends since its last line; `batched` ones with their messages."""

    def __init__(
        self, counters: SendCounters, say: Say, *, batched: bool = False, now: Clock = time.time
    ) -> None:
        self._counters = counters
        self._say = say
        self._line = batch_line if batched else send_line
        self._now = now
        self._time, self._totals = now(), counters.totals()

    def __call__(self) -> None:
        time_before, before = self._time, self._totals
        self._time, self._totals = self._now(), self._counters.totals()
        text = self._line(
            self._totals.since(before),
            self._totals,
            self._time - time_before,
            self._counters.times.longest,
        )
        self._say(f"Current Time: {_time_text(self._time)} | {text}")

    def complete(self, seconds: float) -> None:
        totals = self._counters.totals()
        text = self._line(totals, totals, seconds, self._counters.times.longest)
        done = totals.requests + totals.send_failed + totals.response_failed
        self._say(f"[Complete] Send Total: {done} | {text}")


class ConsumeProgress:
    """Tells of what was consumed since its last line."""

    def __init__(self, counters: ConsumeCounters, say: Say, *, now: Clock = time.time) -> None:
        self._counters = counters
        self._say = say
        self._now = now
        self._time, self._totals = now(), counters.totals()

    def __call__(self) -> None:
        time_before, before = self._time, self._totals
        self._time, self._totals = self._now(), self._counters.totals()
        change = self._totals.since(before)
        text = consume_line(change, self._time - time_before, self._counters.take_longest())
        self._say(f"Current Time: {_time_text(self._time)} | {text}")


def send_line(change: SendTotals, totals: SendTotals, seconds: float, longest: float) -> str:
    return (
        f"Send TPS: {_rate(change.requests, seconds)} | Max RT(ms): {longest * 1000:.0f}"
        f" | Average RT(ms): {_mean_ms(change.seconds, change.requests)}"
        f" | Send Failed: {totals.send_failed} | Response Failed: {totals.response_failed}"
    )


def batch_line(change: SendTotals, totals: SendTotals, seconds: float, longest: float) -> str:
    return (
        f"Send TPS: {_rate(change.requests, seconds)}"
        f" | Send MPS: {_rate(change.messages, seconds)} | Max RT(ms): {longest * 1000:.0f}"
        f" | Average RT(ms): {_mean_ms(change.seconds, change.requests)}"
        f" | Average Message RT(ms): {_mean_ms(change.seconds, change.messages)}"
        f" | Send Failed: {totals.send_failed + totals.response_failed}"
        f" | Send Message Failed: {totals.messages_failed}"
    )


def consume_line(change: ConsumeTotals, seconds: float, longest: tuple[float, float]) -> str:
    born, stored = longest
    return (
        f"Consume TPS: {_rate(change.messages, seconds)}"
        f" | AVG(B2C) RT(ms): {_mean_ms(change.born_seconds, change.messages)}"
        f" | AVG(S2C) RT(ms): {_mean_ms(change.store_seconds, change.messages)}"
        f" | MAX(B2C) RT(ms): {born * 1000:.0f} | MAX(S2C) RT(ms): {stored * 1000:.0f}"
        f" | Consume Fail: {change.failed}"
    )


def _rate(count: int, seconds: float) -> int:
    return int(count / seconds) if seconds > 0 else 0


def _mean_ms(seconds: float, count: int) -> str:
    return f"{seconds / count * 1000 if count else 0.0:7.3f}"


def _time_text(timestamp: float) -> str:
    moment = datetime.fromtimestamp(timestamp).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"
