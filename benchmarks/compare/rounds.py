"""One round of load on one broker, and what it used."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from benchmarks.brokers import Running
from benchmarks.processes import busy_seconds, stolen_seconds

_STEP, _REST = 0.2, 0.5
_QUIET = 0.05
"""Cores above what the broker uses at rest: a JVM has 0.05 to 0.2 of its own."""
_PATIENCE = 3.0


@dataclass(frozen=True)
class Loaded:
    """What a client says of a round."""

    messages: int
    seconds: float
    client_cpu_seconds: float
    failures: int = 0
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Used:
    """What the broker and the machine used meanwhile."""

    cpu_seconds: float = 0.0
    later_cpu_seconds: float = 0.0
    """Of those, what it used when the load had ended."""
    written_bytes: int = 0
    private_mib: float = 0.0
    resident_mib: float = 0.0
    neighbour_cores: float = 0.0
    """What the brokers that are not loaded used."""
    other_cores: float = 0.0
    stolen_cores: float = 0.0


@dataclass(frozen=True)
class Round:
    """A round as it is kept."""

    server: str
    loaded: Loaded
    used: Used

    @property
    def per_second(self) -> float:
        return self.loaded.messages / self.loaded.seconds if self.loaded.seconds else 0.0

    @property
    def cpu_us(self) -> float:
        """Of the server for each message; the same number is CPU seconds per million."""
        return self.used.cpu_seconds / max(self.loaded.messages, 1) * 1e6

    @property
    def per_cpu_second(self) -> float:
        return self.loaded.messages / self.used.cpu_seconds if self.used.cpu_seconds > 0 else 0.0

    @property
    def later_part(self) -> float:
        """Of the server's CPU time, what it used when the load had ended."""
        used = self.used
        return used.later_cpu_seconds / used.cpu_seconds if used.cpu_seconds > 0 else 0.0

    @property
    def failed_part(self) -> float:
        """Of the requests; where these are batches it is at least this."""
        failures = self.loaded.failures
        return failures / (self.loaded.messages + failures) if failures else 0.0

    @property
    def client_cpu_us(self) -> float:
        return self.loaded.client_cpu_seconds / max(self.loaded.messages, 1) * 1e6

    @property
    def written_per_message(self) -> float:
        return self.used.written_bytes / max(self.loaded.messages, 1)


class Meter:
    """Measures around a block what one broker uses, and what everything else does.

    A broker may leave work for later, RocketMQ's its queues and index: so the measurement goes on
    behind the block until the broker is as quiet as before it. What it uses at rest is not
    counted for that time.
    """

    def __init__(
        self, broker: Running, neighbours: Sequence[Running] = (), patience: float = _PATIENCE
    ) -> None:
        """With a patience of 0 the measurement ends with the block."""
        self._broker = broker
        self._neighbours = [each for each in neighbours if each is not broker]
        self._patience = patience
        self._later = 0.0

    def __enter__(self) -> Self:
        self._rest = self._cores(_REST) if self._patience else 0.0
        self._before = self._read()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        begin, used = time.perf_counter(), self._broker.cpu_seconds()
        if failed is None:
            self._wait_for_quiet(begin + self._patience)
        self._after = self._read()
        waited, after = self._after[0] - begin, self._after[1] - used
        self._later = max(after - self._rest * waited, 0.0)
        self._at_rest = after - self._later

    def _wait_for_quiet(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            if self._cores(_STEP) < self._rest + _QUIET:
                return

    def _cores(self, seconds: float) -> float:
        """What the broker uses from now on for that time."""
        begin, used = time.perf_counter(), self._broker.cpu_seconds()
        time.sleep(seconds)
        return (self._broker.cpu_seconds() - used) / (time.perf_counter() - begin)

    def used(self, client_cpu_seconds: float = 0.0) -> Used:
        """Of the block; the client's own CPU time is not that of others."""
        wall, cpu, written, neighbours, busy, stolen = (
            after - before for before, after in zip(self._before, self._after, strict=True)
        )
        others = busy - cpu - neighbours - client_cpu_seconds
        return Used(
            cpu_seconds=cpu - self._at_rest,
            later_cpu_seconds=self._later,
            written_bytes=round(written),
            private_mib=self._broker.private_mib(),
            resident_mib=self._broker.resident_mib(),
            neighbour_cores=neighbours / wall,
            other_cores=max(others, 0.0) / wall,
            stolen_cores=stolen / wall,
        )

    def round(self, loaded: Loaded) -> Round:
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
