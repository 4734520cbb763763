"""Brokers that were slow or failed, and for how long they are passed over (`MQFaultStrategy`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from bolide.errors import ConfigError

FAILURE = 30.0
"""Seconds of latency that a send counts with if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTable:
    """A send that took at least so long keeps its broker out for so long; seconds. RocketMQ 4.9's.

    The two lists belong together, item by item.
    """

    latencies: Sequence[float] = (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0)
    durations: Sequence[float] = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)

    def __post_init__(self) -> None:
        if len(self.latencies) != len(self.durations):
            raise ConfigError(
                f"latencies and durations differ in length:"
                f" {len(self.latencies)} and {len(self.durations)}"
            )
        if list(self.latencies) != sorted(self.latencies):
            raise ConfigError(f"latencies={self.latencies}: must ascend")

    def duration(self, latency: float) -> float:
        pairs = zip(self.latencies, self.durations, strict=True)
        return max(((least, out) for least, out in pairs if latency >= least), default=(0, 0.0))[1]


class _Fault(NamedTuple):
    latency: float
    until: float


class Faults:
    """What is known of brokers by name; one that nothing is known of is available."""

    def __init__(self, table: FaultTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        self._faults: dict[str, _Fault] = {}
        self._turn = count()

    def sent(self, broker_name: str, seconds: float) -> None:
        """A send to it took so long."""
        self._faults[broker_name] = _Fault(seconds, self._now() + self._table.duration(seconds))

    def failed(self, broker_name: str, seconds: float) -> None:
        """A send to it failed after so long."""
        self._faults[broker_name] = _Fault(seconds, self._now() + self._table.duration(FAILURE))

    def is_available(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or self._now() >= fault.until

    def best_of(self, broker_names: Sequence[str]) -> str:
        """When all are out: one of the better half, in turn."""
        ranked = sorted(set(broker_names), key=self._rank)
        return ranked[next(self._turn) % max(1, len(ranked) // 2)]

    def _rank(self, broker_name: str) -> tuple[bool, float, float]:
        fault = self._faults.get(broker_name, _Fault(0.0, 0.0))
        return not self.is_available(broker_name), fault.latency, fault.until
