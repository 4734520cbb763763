"""The brokers that run while the cells of a stage are measured."""

import asyncio
import os
import signal
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.brokers import ASYNC_FLUSH, Running, started
from benchmarks.checkouts import Checkout
from benchmarks.compare.results import Results
from benchmarks.compare.rounds import Meter
from bolide.admin.client import AdminClient
from bolide.protocol.bodies.topics import TopicConfig
from tests.interop.processes import is_alive

_ADMIN_TIMEOUT = 60.0


@dataclass
class Stage:
    """Brokers of one flush mode; each starts when a cell first needs it."""

    generator: Path
    results: Results
    millions: float
    flush: str = ASYNC_FLUSH
    checkouts: Mapping[str, Checkout] = field(default_factory=dict)
    """Where brokers come from, by name; others come from the current checkout."""
    access_control: bool = False
    """Whether the brokers have access control, and the loads are signed."""
    running: dict[str, Running] = field(default_factory=dict)
    _warm: set[int] = field(default_factory=set)
    _lasting: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def stop_all(self) -> None:
        """Stop the brokers; later cells start new ones with empty stores."""
        self.running.clear()
        self._lasting.close()

    @contextmanager
    def brokers(self, names: Sequence[str], lasting: Sequence[str]) -> Iterator[list[Running]]:
        """Run the named brokers; those not in `lasting` stop when the block ends."""
        with ExitStack() as brief:
            for name in names:
                if name not in self.running or not is_alive(self.running[name].pid):
                    stack = self._lasting if name in lasting else brief
                    self.running[name] = stack.enter_context(
                        started(
                            name,
                            self.flush,
                            self.checkouts.get(name),
                            access_control=self.access_control,
                        )
                    )
            try:
                yield [self.running[name] for name in names]
            finally:
                for name in names:
                    if name not in lasting:
                        self.running.pop(name, None)

    @contextmanager
    def others_stopped(self, broker: Running) -> Iterator[None]:
        """Suspend the other brokers during the block, so that they use no CPU time."""
        pids = [pid for each in self.running.values() if each is not broker for pid in each.pids]
        try:
            _signal(pids, signal.SIGSTOP)
            yield
        finally:
            _signal(pids, signal.SIGCONT)

    def meter(self, broker: Running) -> Meter:
        """Meter for a load that ends with the block, including work that the broker defers."""
        return Meter(broker, list(self.running.values()))

    def meter_without_tail(self, broker: Running) -> Meter:
        """Meter for a load that continues after the block, or for none: it ends with the block."""
        return Meter(broker, list(self.running.values()), patience=0.0)

    def claim_start_warm_up(self, broker: Running) -> bool:
        """Return True once for each broker process; the caller then warms it up."""
        is_warm = broker.pid in self._warm
        self._warm.add(broker.pid)
        return not is_warm

    def median_rate(self, cell: str, server: str) -> float | None:
        found = [each.per_second for each in self.results.rounds(cell) if each.server == server]
        return statistics.median(found) if found else None


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(pid, number)


def create_topic(broker: Running, topic: str, queues: int, count: int = 0) -> None:
    """Create the topic, or `count` topics with numbers appended to the name."""
    names = [f"{topic}-{number:04d}" for number in range(count)] or [topic]
    asyncio.run(_create_topics(broker, names, queues))


def _admin(broker: Running) -> AdminClient:
    access_key, secret_key = broker.admin_credentials or (None, None)
    return AdminClient(
        broker.name_server, timeout=_ADMIN_TIMEOUT, access_key=access_key, secret_key=secret_key
    )


async def _create_topics(broker: Running, names: Sequence[str], queues: int) -> None:
    async with _admin(broker) as admin:
        for address in broker.addresses:
            for name in names:
                config = TopicConfig(
                    topic_name=name, read_queue_nums=queues, write_queue_nums=queues
                )
                await admin.topics.update(address, config)


def count_stored(broker: Running, topic: str) -> int:
    """Number of messages that the broker stores for the topic."""
    return asyncio.run(_count_stored(broker, topic))


async def _count_stored(broker: Running, topic: str) -> int:
    async with _admin(broker) as admin:
        tables = [await admin.topics.stats_at(each, topic) for each in broker.addresses]
    return sum(
        queue.max_offset - queue.min_offset
        for table in tables
        for queue in table.offset_table.values()
    )
