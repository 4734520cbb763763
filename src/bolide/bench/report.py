"""Output of a benchmark: progress lines while it runs, and the summary at its end.

The progress lines have the format of RocketMQ's own benchmark programs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bolide.bench.counters import (
    ConsumeCounters,
    ConsumeTotals,
    Histogram,
    SendCounters,
    SendTotals,
)
from bolide.bench.runner import RunTime

Emit = Callable[[str], None]
Clock = Callable[[], float]


class SendProgress:
    """Emits a line about the sends since the previous line; `batched` adds message counts."""

    def __init__(
        self, counters: SendCounters, emit: Emit, *, batched: bool = False, now: Clock = time.time
    ) -> None:
        self._counters = counters
        self._emit = emit
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
        self._emit(f"Current Time: {_time_text(self._time)} | {text}")

    def complete(self, seconds: float) -> None:
        totals = self._counters.totals()
        text = self._line(totals, totals, seconds, self._counters.times.longest)
        done = totals.requests + totals.send_failed + totals.response_failed
        self._emit(f"[Complete] Send Total: {done} | {text}")


class ConsumeProgress:
    """Emits a line about the messages consumed since the previous line."""

    def __init__(self, counters: ConsumeCounters, emit: Emit, *, now: Clock = time.time) -> None:
        self._counters = counters
        self._emit = emit
        self._now = now
        self._time, self._totals = now(), counters.totals()

    def __call__(self) -> None:
        time_before, before = self._time, self._totals
        self._time, self._totals = self._now(), self._counters.totals()
        change = self._totals.since(before)
        text = consume_line(change, self._time - time_before, self._counters.reset_longest())
        self._emit(f"Current Time: {_time_text(self._time)} | {text}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Result of a run: figures by JSON name, and histograms by JSON name without `_ms`."""

    command: str
    figures: dict[str, float]
    times: dict[str, Histogram]
    last_failure: str | None = None

    @property
    def all_failed(self) -> bool:
        """Whether there were failures and nothing was sent or received."""
        return self.last_failure is not None and not any(
            self.figures.get(name) for name in ("sent", "received")
        )

    def as_json(self) -> dict[str, Any]:
        times = {f"{name}_ms": found.in_ms() for name, found in self.times.items()}
        return {
            "command": self.command,
            **self.figures,
            **times,
            "last_failure": self.last_failure,
        }

    def as_text(self) -> str:
        rows = [(name.replace("_", " "), f"{_number(v)}") for name, v in self.figures.items()]
        rows += [
            (f"{name} ms".replace("_", " "), _percentiles(h)) for name, h in self.times.items()
        ]
        if self.last_failure is not None:
            rows.append(("last failure", self.last_failure))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def send_summary(command: str, counters: SendCounters, run_time: RunTime) -> Summary:
    return Summary(
        command=command,
        figures=send_figures(counters, run_time),
        times={"send": counters.times},
        last_failure=counters.last_failure,
    )


def consume_summary(command: str, counters: ConsumeCounters, run_time: RunTime) -> Summary:
    figures = {
        "received": counters.born.count,
        "failed": counters.failed,
        **_time_figures(run_time),
        "received_per_second": _per_second(counters.born.count, run_time.seconds),
    }
    times = {"born_to_consume": counters.born, "store_to_consume": counters.stored}
    return Summary(command=command, figures=figures, times=times)


def send_figures(counters: SendCounters, run_time: RunTime) -> dict[str, float]:
    return {
        "sent": counters.messages,
        "failed": counters.messages_failed,
        **_time_figures(run_time),
        "sent_per_second": _per_second(counters.messages, run_time.seconds),
    }


def _time_figures(run_time: RunTime) -> dict[str, float]:
    """Wall and CPU time of this process, which shows whether the client was the bottleneck."""
    return {
        "seconds": round(run_time.seconds, 3),
        "client_cpu_seconds": round(run_time.cpu_seconds, 3),
    }


def _per_second(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0


def _number(value: float) -> str:
    return f"{value:,}"


def _percentiles(times: Histogram) -> str:
    return "  ".join(f"{name} {value:,.3f}" for name, value in times.in_ms().items())
