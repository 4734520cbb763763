"""What came out of a benchmark, for people and for programs."""

from dataclasses import dataclass
from typing import Any

from bolide.bench.counters import ConsumeCounters, SendCounters
from bolide.bench.histogram import Histogram
from bolide.bench.runner import Took


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures under their JSON names; durations under theirs without the `_ms`."""

    command: str
    figures: dict[str, float]
    times: dict[str, Histogram]
    last_failure: str | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether all that was tried failed."""
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
        rows += [(f"{name} ms".replace("_", " "), _spread(h)) for name, h in self.times.items()]
        if self.last_failure is not None:
            rows.append(("last failure", self.last_failure))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def of_sends(command: str, counters: SendCounters, took: Took) -> Summary:
    return Summary(
        command=command,
        figures=send_figures(counters, took),
        times={"send": counters.times},
        last_failure=counters.last_failure,
    )


def of_consumption(command: str, counters: ConsumeCounters, took: Took) -> Summary:
    figures = {
        "received": counters.born.count,
        "failed": counters.failed,
        **_time_figures(took),
        "received_per_second": _per_second(counters.born.count, took.seconds),
    }
    times = {"born_to_consume": counters.born, "store_to_consume": counters.stored}
    return Summary(command=command, figures=figures, times=times)


def send_figures(counters: SendCounters, took: Took) -> dict[str, float]:
    return {
        "sent": counters.messages,
        "failed": counters.messages_failed,
        **_time_figures(took),
        "sent_per_second": _per_second(counters.messages, took.seconds),
    }


def _time_figures(took: Took) -> dict[str, float]:
    """The CPU time is this process's own: it shows whether the client was the bottleneck."""
    return {"seconds": round(took.seconds, 3), "client_cpu_seconds": round(took.cpu_seconds, 3)}


def _per_second(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0


def _number(value: float) -> str:
    return f"{value:,}"


def _spread(times: Histogram) -> str:
    return "  ".join(f"{name} {value:,.3f}" for name, value in times.in_ms().items())
