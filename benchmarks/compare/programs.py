"""Load by benchmark programs: RocketMQ's own, and `bolide bench` with our client.

RocketMQ's are those of the package `org.apache.rocketmq.example.benchmark`.
"""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.brokers import Running
from benchmarks.compare.loads import MILLIONS_TOPIC, QUEUES, fill_millions
from benchmarks.compare.rounds import LoadResult, Round
from benchmarks.compare.stages import Stage, create_topic
from benchmarks.processes import cpu_seconds
from bolide.admin.client import AdminClient
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.groups import GroupConfig
from tests.interop.bench import Bench
from tests.interop.processes import ChildProcess

_PACKAGE = "org.apache.rocketmq.example.benchmark"
_JAVA_TOPIC, _OUR_TOPIC = "bench-java", "bench-ours"
_MIN_SECONDS = 2.0
_PATIENCE = 60.0

# As in the benchmarks' runclass.sh: a heap of 1 GiB and the JVM's default compilers.
_JVM = (
    "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=512m", "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC", "-XX:+UseG1GC",
)  # fmt: skip

# A program keeps ten snapshots, one per second, so a line covers the last nine seconds.
_RATE = re.compile(r"(?:Send|Consume) TPS:\s*(\d+)")
_MESSAGE_RATE = re.compile(r"Send MPS:\s*(\d+)")  # for batches, whose TPS counts requests
_FAILURES = re.compile(r"(?:Send Failed|Response Failed|Consume Fail):\s*(\d+)")
_SECONDS_OF_A_LINE = 9

_numbers = count(1)


@dataclass(frozen=True)
class JavaProducer:
    """A RocketMQ program that sends; each round is a new process."""

    program: str
    alone: bool = False
    """Whether the other brokers are suspended: RocketMQ's keeps a core busy for minutes."""
    warm_up: bool = field(default=False, init=False)

    def prepare(self, stage: Stage, broker: Running) -> None:
        create_topic(broker, _JAVA_TOPIC, QUEUES)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        with stage.others_stopped(broker) if self.alone else nullcontext():
            return _run_java(stage, broker, self.program, "-t", _JAVA_TOPIC)


@dataclass(frozen=True)
class JavaConsumer:
    """RocketMQ's consumer, from the first message of a large topic."""

    warm_up: bool = field(default=False, init=False)

    def prepare(self, stage: Stage, broker: Running) -> None:
        fill_millions(stage, broker)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        group = create_group_at_first_message(broker)
        return _run_java(stage, broker, "Consumer", "-t", MILLIONS_TOPIC, "-g", group)


def create_group_at_first_message(broker: Running) -> str:
    """Create a consumer group that starts at the first message of the large topic."""
    group = f"bench-group-{next(_numbers)}"
    asyncio.run(_commit_first_offsets(broker, group))
    return group


async def _commit_first_offsets(broker: Running, group: str) -> None:
    async with AdminClient(broker.name_server) as admin:
        await admin.groups.update(broker.address, GroupConfig(group_name=group))
        for queue_id in range(QUEUES):
            queue = MessageQueue(MILLIONS_TOPIC, "broker-a", queue_id)
            await admin.offsets.commit(broker.address, group, queue, 0)


def _run_java(stage: Stage, broker: Running, program: str, *arguments: str) -> Round:
    """Measure the span of one line, after the first line ended the program's warm-up."""
    where = ("-n", broker.name_server, "-ri", "1000")
    with tempfile.TemporaryDirectory() as home, Bench(Path(home)) as bench:
        process = bench.client("5.x", f"{_PACKAGE}.{program}", *where, *arguments, jvm=_JVM)
        process.wait_for_line(_RATE.pattern, _PATIENCE)
        seen = len(_lines(process))
        before = cpu_seconds(process.pid)
        with stage.meter_without_tail(broker) as meter:
            last = _wait_for_lines(process, seen + _SECONDS_OF_A_LINE)
            client = cpu_seconds(process.pid) - before
    rate, failures = read_line(last)
    messages = rate * _SECONDS_OF_A_LINE
    return meter.round(LoadResult(messages, _SECONDS_OF_A_LINE, client, failures))


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
    """Parse messages per second and failures from a program's line."""
    rate = _MESSAGE_RATE.search(line) or _RATE.search(line)
    if rate is None:
        raise ValueError(f"no rate in {line!r}")
    return int(rate[1]), sum(map(int, _FAILURES.findall(line)))


@dataclass(frozen=True)
class OurProducer:
    """A command of `bolide bench` that sends."""

    command: str
    arguments: tuple[str, ...] = ()
    warm_up: bool = field(default=True, init=False)

    def prepare(self, stage: Stage, broker: Running) -> None:
        create_topic(broker, _OUR_TOPIC, QUEUES)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        arguments = ("-t", _OUR_TOPIC, *self.arguments)
        return _run_ours(stage, broker, seconds, self.command, *arguments)


@dataclass(frozen=True)
class OurConsumer:
    """`bolide bench consumer`, from the first message of a large topic."""

    warm_up: bool = field(default=True, init=False)

    def prepare(self, stage: Stage, broker: Running) -> None:
        fill_millions(stage, broker)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        group = create_group_at_first_message(broker)
        return _run_ours(stage, broker, seconds, "consumer", "-t", MILLIONS_TOPIC, "-g", group)


def _run_ours(
    stage: Stage, broker: Running, seconds: float, command: str, *arguments: str
) -> Round:
    """The meter covers the whole process; the client's own figures exclude its start."""
    words = [sys.executable, "-m", "bolide", "bench", command, "-n", broker.name_server]
    words += [*arguments, "--duration", str(max(seconds, _MIN_SECONDS)), "--json"]
    with stage.meter(broker) as meter:
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return meter.round(_loaded(json.loads(done.stdout)))


def _loaded(found: Mapping[str, Any]) -> LoadResult:
    times = found.get("latency_ms") or found.get("send_ms") or {}
    p50, p99, p999 = (times[name] * 1000 if times else None for name in ("p50", "p99", "p99.9"))
    return LoadResult(
        messages=found.get("received", found.get("sent")),
        seconds=found["seconds"],
        client_cpu_seconds=found["client_cpu_seconds"],
        failures=found["failed"],
        p50_us=p50,
        p99_us=p99,
        p999_us=p999,
    )
