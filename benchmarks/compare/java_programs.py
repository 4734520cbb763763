"""Load by RocketMQ's own benchmark programs (`org.apache.rocketmq.example.benchmark`)."""

import asyncio
import re
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks.brokers import Running
from benchmarks.compare.loads import MILLIONS_TOPIC, QUEUES, fill_millions
from benchmarks.compare.rounds import Loaded, Round
from benchmarks.compare.stages import Stage, create_topic
from benchmarks.processes import cpu_seconds
from bolide.admin.client import AdminClient
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.groups import GroupConfig
from tests.interop.bench import Bench
from tests.interop.processes import ChildProcess

_PACKAGE = "org.apache.rocketmq.example.benchmark"
_TOPIC = "bench-java"
_PATIENCE = 60.0

# As the benchmarks' runclass.sh: a heap of 1 GiB, and the JVM's choice of compilers.
_JVM = (
    "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=512m", "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC", "-XX:+UseG1GC",
)  # fmt: skip

# A program takes a snapshot each second and keeps ten: a line is about the last nine seconds.
_RATE = re.compile(r"(?:Send|Consume) TPS:\s*(\d+)")
_MESSAGE_RATE = re.compile(r"Send MPS:\s*(\d+)")  # of batches, whose TPS are requests
_FAILURES = re.compile(r"(?:Send Failed|Response Failed|Consume Fail):\s*(\d+)")
_SECONDS_OF_A_LINE = 9

_numbers = count(1)


@dataclass(frozen=True)
class JavaProducer:
    """One of the programs that send; it runs anew for each round."""

    program: str
    alone: bool = False
    """The other brokers stand still: RocketMQ's keeps a core busy for minutes with what it got."""
    warm_up: bool = field(default=False, init=False)

    def prepare(self, stage: Stage, broker: Running) -> None:
        create_topic(broker, _TOPIC, QUEUES)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        with stage.others_stopped(broker) if self.alone else nullcontext():
            return _run(stage, broker, self.program, "-t", _TOPIC)


@dataclass(frozen=True)
class JavaConsumer:
    """The program that consumes, from the front of a topic of many messages."""

    warm_up: bool = field(default=False, init=False)

    def prepare(self, stage: Stage, broker: Running) -> None:
        fill_millions(stage, broker)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        group = group_at_the_front(broker)
        return _run(stage, broker, "Consumer", "-t", MILLIONS_TOPIC, "-g", group)


def group_at_the_front(broker: Running) -> str:
    """A new consumer group that begins with the first of the millions of messages."""
    group = f"bench-group-{next(_numbers)}"
    asyncio.run(_put_at_the_front(broker, group))
    return group


async def _put_at_the_front(broker: Running, group: str) -> None:
    async with AdminClient(broker.name_server) as admin:
        await admin.groups.update(broker.address, GroupConfig(group_name=group))
        for queue_id in range(QUEUES):
            queue = MessageQueue(MILLIONS_TOPIC, "broker-a", queue_id)
            await admin.offsets.commit(broker.address, group, queue, 0)


def _run(stage: Stage, broker: Running, program: str, *arguments: str) -> Round:
    """From the first line that the program prints on, when it is warm, to the last about then."""
    where = ("-n", broker.name_server, "-ri", "1000")
    with tempfile.TemporaryDirectory() as home, Bench(Path(home)) as bench:
        process = bench.client("5.x", f"{_PACKAGE}.{program}", *where, *arguments, jvm=_JVM)
        process.wait_for_line(_RATE.pattern, _PATIENCE)
        seen = len(_lines(process))
        before = cpu_seconds(process.pid)
        with stage.meter_of_a_part(broker) as meter:
            last = _wait_for_lines(process, seen + _SECONDS_OF_A_LINE)
            client = cpu_seconds(process.pid) - before
    rate, failures = read_line(last)
    messages = rate * _SECONDS_OF_A_LINE
    return meter.round(Loaded(messages, _SECONDS_OF_A_LINE, client, failures))


def _lines(process: ChildProcess) -> list[str]:
    return [line for line in process.stdout if _RATE.search(line)]


def _wait_for_lines(process: ChildProcess, wanted: int) -> str:
    deadline = time.monotonic() + _PATIENCE
    while len(found := _lines(process)) < wanted:
        if time.monotonic() > deadline or not process.running:
            raise process.failure(f"printed {len(found)} lines of {wanted}")
        time.sleep(0.05)
    return found[wanted - 1]


def read_line(line: str) -> tuple[int, int]:
    """Messages per second and failures, of what one of the programs printed."""
    rate = _MESSAGE_RATE.search(line) or _RATE.search(line)
    if rate is None:
        raise ValueError(f"no rate in {line!r}")
    return int(rate[1]), sum(map(int, _FAILURES.findall(line)))
