"""The kinds of load on a broker, and what a round of one cost."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import Running
from benchmarks.generators import run_generator
from benchmarks.processes import busy_seconds, cpu_seconds, stolen_seconds
from bolide.admin.client import AdminClient
from bolide.protocol.bodies.topics import TopicConfig

QUEUES = 4
SEND_TOPIC, PULL_TOPIC, LATENCY_TOPIC = "bench-sends", "bench-pulls", "bench-latency"
SEND_BODY, PULL_BODY = 128, 1024
PULL_COUNT, PULL_LENGTH = 32, 25_600
# A few more than are pulled: a send that a busy broker refuses leaves its queue one short.
FILLED = PULL_LENGTH * QUEUES * 11 // 10


@dataclass(frozen=True)
class Shape:
    """One kind of load."""

    title: str
    kind: str
    connections: int
    window: int
    details: tuple[object, ...]
    """The generator's last arguments: topic, queues, body or count, limit or length."""


_SENDS = (SEND_TOPIC, QUEUES, SEND_BODY, 0)
_PULLS = (PULL_TOPIC, QUEUES, PULL_COUNT, PULL_LENGTH)
SHAPES = (
    Shape(f"Sends of {SEND_BODY} bytes by 64 synchronous senders", "send", 64, 1, _SENDS),
    Shape(f"Sends of {SEND_BODY} bytes, 8 connections with 64 under way", "send", 8, 64, _SENDS),
    Shape(
        f"Pulls of {PULL_COUNT} messages of {PULL_BODY} bytes, 8 connections with 2 under way",
        "pull", 8, 2, _PULLS,
    ),
)  # fmt: skip
_FILL = Shape("fill", "send", 8, 8, (PULL_TOPIC, QUEUES, PULL_BODY, FILLED))


@dataclass(frozen=True)
class Round:
    """One round of load on one broker."""

    server: str
    shape: str
    messages: int
    messages_per_second: float
    cpu_us: float
    p50_us: int
    p99_us: int
    failures: int
    generator_cores: float
    neighbour_cores: float
    """What the broker that is not loaded used meanwhile."""
    other_cores: float
    stolen_cores: float


class Loads:
    """Loads one of the brokers that run at a time."""

    def __init__(self, generator: Path, running: Sequence[Running]) -> None:
        self._generator = generator
        self._running = running

    def prepare(self, broker: Running, warm_up: float) -> None:
        """Fill what is pulled later, and have the broker compile and allocate what it will."""
        asyncio.run(_create_topics(broker))
        filled = self.load(broker, _FILL, seconds=60)
        if filled.messages < FILLED:
            sys.exit(f"{broker.name} took {filled.messages} messages of {FILLED} in a minute")
        for shape in SHAPES:
            self.load(broker, shape, warm_up)

    def load(self, broker: Running, shape: Shape, seconds: float) -> Round:
        before, busy, stolen = self._cpu_seconds(), busy_seconds(), stolen_seconds()
        found = run_generator(
            self._generator, shape.kind, "127.0.0.1", broker.port, shape.connections,
            shape.window, seconds, *shape.details,
        )  # fmt: skip
        took, own = found["seconds"], found["generator_cpu_seconds"]
        used = {name: now - before[name] for name, now in self._cpu_seconds().items()}
        by_both = sum(used.values())
        return Round(
            server=broker.name,
            shape=shape.title,
            messages=found["messages"],
            messages_per_second=found["messages"] / took,
            cpu_us=used[broker.name] / max(found["messages"], 1) * 1e6,
            p50_us=found["p50_us"],
            p99_us=found["p99_us"],
            failures=found["failures"],
            generator_cores=own / took,
            neighbour_cores=(by_both - used[broker.name]) / took,
            other_cores=max(busy_seconds() - busy - by_both - own, 0) / took,
            stolen_cores=(stolen_seconds() - stolen) / took,
        )

    def _cpu_seconds(self) -> dict[str, float]:
        return {each.name: cpu_seconds(each.pid) for each in self._running}


async def _create_topics(broker: Running) -> None:
    async with AdminClient(broker.name_server) as admin:
        for topic in (SEND_TOPIC, PULL_TOPIC, LATENCY_TOPIC):
            config = TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            await admin.topics.update(broker.address, config)
