"""One round of load on one broker, and the resources that it used."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from benchmarks.brokers import Running
from benchmarks.processes import busy_seconds, is_runnable, stolen_seconds

_STEP, _IDLE_SAMPLE = 0.2, 0.5
_IDLE_MARGIN = 0.05
"""Cores above the idle usage of a broker, which is 0.05 to 0.2 cores for a JVM."""
_PATIENCE = 3.0


@dataclass(frozen=True)
class LoadResult:
    """The client's report of a round."""

    messages: int
    seconds: float
    client_cpu_seconds: float
    failures: int = 0
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ResourceUsage:
    """Resources that the broker and the machine used during a round."""

    cpu_seconds: float = 0.0
    later_cpu_seconds: float = 0.0
    """The part of `cpu_seconds` that the broker used after the load had ended."""
    written_bytes: int = 0
    private_mib: float = 0.0
    resident_mib: float = 0.0
    neighbour_cores: float = 0.0
    """Used by the brokers without load."""
    other_cores: float = 0.0
    stolen_cores: float = 0.0


@dataclass(frozen=True)
class Round:
    """A measured round."""

    server: str
    loaded: LoadResult
    used: ResourceUsage

    @property
    def per_second(self) -> float:
        return self.loaded.messages / self.loaded.seconds if self.loaded.seconds else 0.0

    @property
    def cpu_us(self) -> float:
        """Server CPU time per message in µs, equal to CPU seconds per million messages."""
        return self.used.cpu_seconds / max(self.loaded.messages, 1) * 1e6

    @property
    def per_cpu_second(self) -> float:
        return self.loaded.messages / self.used.cpu_seconds if self.used.cpu_seconds > 0 else 0.0

    @property
    def slave_cpu_seconds(self) -> float:
        return self.loaded.extra.get("slave_cpu_seconds", 0.0)

    @property
    def later_part(self) -> float:
        """Share of the server's CPU time that it used after the load had ended."""
        used = self.used
        return used.later_cpu_seconds / used.cpu_seconds if used.cpu_seconds > 0 else 0.0

    @property
    def failed_part(self) -> float:
        """Share of failed requests, a lower bound for batches."""
        failures = self.loaded.failures
        return failures / (self.loaded.messages + failures) if failures else 0.0

    @property
    def client_cpu_us(self) -> float:
        return self.loaded.client_cpu_seconds / max(self.loaded.messages, 1) * 1e6

    @property
    def written_per_message(self) -> float:
        return self.used.written_bytes / max(self.loaded.messages, 1)


class Meter:
    """Context manager that measures the resources of a broker and of the rest of the machine.

    Brokers defer work: RocketMQ builds its queues and index asynchronously. The measurement
    therefore continues after the block until the broker is as idle as before it. The idle usage
    of that extra time is subtracted.
    """

    def __init__(
        self, broker: Running, neighbours: Sequence[Running] = (), patience: float = _PATIENCE
    ) -> None:
        """With a patience of 0 s the measurement ends with the block."""
        self._broker = broker
        self._neighbours = [each for each in neighbours if each is not broker]
        self._patience = patience
        self._later = 0.0

    def __enter__(self) -> Self:
        self._idle_cores = self._cores(_IDLE_SAMPLE) if self._patience else 0.0
        self._before = self._read()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        begin, used = time.perf_counter(), self._broker.cpu_seconds()
        if failed is None:
            self._wait_until_idle(begin + self._patience)
        self._after = self._read()
        waited, after = self._after[0] - begin, self._after[1] - used
        self._later = max(after - self._idle_cores * waited, 0.0)
        self._idle_cpu = after - self._later

    def _wait_until_idle(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            is_idle = self._cores(_STEP) < self._idle_cores + _IDLE_MARGIN
            # On a busy machine a broker with work to do may get as little time as an idle one.
            if is_idle and not any(map(is_runnable, self._broker.pids)):
                return

    def _cores(self, seconds: float) -> float:
        """Sample the broker's CPU usage for that time."""
        begin, used = time.perf_counter(), self._broker.cpu_seconds()
        time.sleep(seconds)
        return (self._broker.cpu_seconds() - used) / (time.perf_counter() - begin)

    def used(self, client_cpu_seconds: float = 0.0) -> ResourceUsage:
        """Usage during the block; the client's CPU time does not count as that of others."""
        wall, cpu, written, neighbours, busy, stolen = (
            after - before for before, after in zip(self._before, self._after, strict=True)
        )
        others = busy - cpu - neighbours - client_cpu_seconds
        return ResourceUsage(
            cpu_seconds=cpu - self._idle_cpu,
            later_cpu_seconds=self._later,
            written_bytes=round(written),
            private_mib=self._broker.private_mib(),
            resident_mib=self._broker.resident_mib(),
            neighbour_cores=neighbours / wall,
            other_cores=max(others, 0.0) / wall,
            stolen_cores=stolen / wall,
        )

    def round(self, loaded: LoadResult) -> Round:
        return Round(self._broker.name, loaded, self.used(loaded.client_cpu_seconds))

    def _read(self) -> tuple[float, ...]:
        return (
            time.perf_counter(),
            self._broker.cpu_seconds(),
            self._broker.written_bytes(),
            sum(each.cpu_seconds() for each in self._neighbours),
            busy_seconds(),
            stolen_seconds(),
        )
