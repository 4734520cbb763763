"""Load by `bolide bench`, that is by our own client."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.brokers import Running
from benchmarks.compare.java_programs import group_at_the_front
from benchmarks.compare.loads import MILLIONS_TOPIC, QUEUES, fill_millions
from benchmarks.compare.rounds import Loaded, Round
from benchmarks.compare.stages import Stage, create_topic

_TOPIC = "bench-ours"
_LEAST_SECONDS = 2.0


@dataclass(frozen=True)
class OurProducer:
    """`bolide bench` with a command that sends."""

    command: str
    arguments: tuple[str, ...] = ()
    warm_up: bool = field(default=True, init=False)

    def prepare(self, stage: Stage, broker: Running) -> None:
        create_topic(broker, _TOPIC, QUEUES)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        arguments = ("-t", _TOPIC, *self.arguments)
        return _run(stage, broker, seconds, self.command, *arguments)


@dataclass(frozen=True)
class OurConsumer:
    """`bolide bench consumer` from the front of a topic of many messages."""

    warm_up: bool = field(default=True, init=False)

    def prepare(self, stage: Stage, broker: Running) -> None:
        fill_millions(stage, broker)

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        group = group_at_the_front(broker)
        return _run(stage, broker, seconds, "consumer", "-t", MILLIONS_TOPIC, "-g", group)


def _run(stage: Stage, broker: Running, seconds: float, command: str, *arguments: str) -> Round:
    """The meter runs beside the whole process, the client's figures leave its start out."""
    words = [sys.executable, "-m", "bolide", "bench", command, "-n", broker.name_server]
    words += [*arguments, "--duration", str(max(seconds, _LEAST_SECONDS)), "--json"]
    with stage.meter(broker) as meter:
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return meter.round(_loaded(json.loads(done.stdout)))


def _loaded(found: Mapping[str, Any]) -> Loaded:
    times = found.get("latency_ms") or found.get("send_ms") or {}
    p50, p99, p999 = (times[name] * 1000 if times else None for name in ("p50", "p99", "p99.9"))
    return Loaded(
        messages=found.get("received", found.get("sent")),
        seconds=found["seconds"],
        client_cpu_seconds=found["client_cpu_seconds"],
        failures=found["failed"],
        p50_us=p50,
        p99_us=p99,
        p999_us=p999,
    )
