"""The brokers that run while some of the cells are measured."""

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

_PATIENCE = 60.0


@dataclass
class Stage:
    """Brokers of one flush mode, started when a cell first needs them."""

    generator: Path
    results: Results
    millions: float
    flush: str = ASYNC_FLUSH
    checkouts: Mapping[str, Checkout] = field(default_factory=dict)
    """Where brokers come from, by name; others come from the current checkout."""
    running: dict[str, Running] = field(default_factory=dict)
    _warm: set[int] = field(default_factory=set)
    _lasting: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def stop_all(self) -> None:
        """Who asks for brokers again gets new ones with empty stores."""
        self.running.clear()
        self._lasting.close()

    @contextmanager
    def brokers(self, names: Sequence[str], lasting: Sequence[str]) -> Iterator[list[Running]]:
        """The named brokers; those that do not last end with the block."""
        with ExitStack() as brief:
            for name in names:
                if name not in self.running or not is_alive(self.running[name].pid):
                    stack = self._lasting if name in lasting else brief
                    self.running[name] = stack.enter_context(
                        started(name, self.flush, self.checkouts.get(name))
                    )
            try:
                yield [self.running[name] for name in names]
            finally:
                for name in names:
                    if name not in lasting:
                        self.running.pop(name, None)

    @contextmanager
    def others_stopped(self, broker: Running) -> Iterator[None]:
        """The brokers that are not loaded get no CPU time meanwhile."""
        pids = [pid for each in self.running.values() if each is not broker for pid in each.pids]
        try:
            _signal(pids, signal.SIGSTOP)
            yield
        finally:
            _signal(pids, signal.SIGCONT)

    def meter(self, broker: Running) -> Meter:
        """Of a load that ends with the block."""
        return Meter(broker, list(self.running.values()))

    def meter_of_a_part(self, broker: Running) -> Meter:
        """Of a load that goes on behind the block, or of none: nothing is waited for."""
        return Meter(broker, list(self.running.values()), patience=0.0)

    def is_cold(self, broker: Running) -> bool:
        """Whether this is the first question about it: who asks then warms it up."""
        known = broker.pid in self._warm
        self._warm.add(broker.pid)
        return not known

    def median_rate(self, cell: str, server: str) -> float | None:
        found = [each.per_second for each in self.results.rounds(cell) if each.server == server]
        return statistics.median(found) if found else None


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, number)


def create_topic(broker: Running, topic: str, queues: int, count: int = 0) -> None:
    """The topic, or that many of them with numbers behind their names."""
    names = [f"{topic}-{number:04d}" for number in range(count)] or [topic]
    asyncio.run(_create_topics(broker, names, queues))


async def _create_topics(broker: Running, names: Sequence[str], queues: int) -> None:
    async with AdminClient(broker.name_server, timeout=_PATIENCE) as admin:
        for address in broker.addresses:
            for name in names:
                config = TopicConfig(
                    topic_name=name, read_queue_nums=queues, write_queue_nums=queues
                )
                await admin.topics.update(address, config)


def stored(broker: Running, topic: str) -> int:
    """How many messages of the topic the broker has."""
    return asyncio.run(_stored(broker, topic))


async def _stored(broker: Running, topic: str) -> int:
    async with AdminClient(broker.name_server, timeout=_PATIENCE) as admin:
        tables = [await admin.topics.stats_at(each, topic) for each in broker.addresses]
    return sum(
        queue.max_offset - queue.min_offset
        for table in tables
        for queue in table.offset_table.values()
    )
