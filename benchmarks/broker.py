"""What a message costs a broker: sends and pulls, ours beside Apache RocketMQ's.

Run as `make bench-broker`; prints Markdown, and writes it between the marks in docs/benchmarks.md
with `--into`. Both brokers run during the whole measurement and are loaded in turns by the same
generator, written in C. The CPU time is that of the whole broker process.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.brokers import BOLIDE, Running, contenders, start_standalone, started
from benchmarks.generators import compile_generator, run_generator
from benchmarks.processes import busy_seconds, cpu_seconds, machine, private_mib, stolen_seconds
from bolide.admin.client import AdminClient
from bolide.protocol.bodies.topics import TopicConfig

QUEUES = 4
SEND_TOPIC, PULL_TOPIC, LATENCY_TOPIC = "bench-sends", "bench-pulls", "bench-latency"
SEND_BODY, PULL_BODY = 128, 1024
PULL_COUNT, PULL_LENGTH = 32, 25_600
BEGIN, END = "<!-- written by make bench-broker -->", "<!-- end of make bench-broker -->"


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
# A few more than are pulled: a send that a busy broker refuses leaves its queue one short.
FILLED = PULL_LENGTH * QUEUES * 11 // 10
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
    other_cores: float
    stolen_cores: float


@dataclass(frozen=True)
class Start:
    """One start of a broker with an empty store."""

    server: str
    seconds: float
    idle_mib: float


def main() -> None:
    options = _options()
    generator = compile_generator("brokerload")
    names = contenders()
    starts = [_start(name) for _ in range(options.starts) for name in names]
    standalone = [start_standalone() for _ in range(options.starts)]
    with ExitStack() as stack:
        running = [stack.enter_context(started(name)) for name in names]
        for each in running:
            _prepare(each, generator, options.warm_up)
        rounds = [
            _load(each, shape, generator, options.seconds)
            for _ in range(options.rounds)
            for shape in SHAPES
            for each in running
        ]
        after = {each.name: [private_mib(each.pid)] for each in running}
        latencies = {each.name: _latency(each, options) for each in running}
    report = [
        *_head(options),
        *_loads(rounds, names),
        *_latencies(latencies, options),
        *_footprint(starts, standalone, after),
    ]
    _publish("\n".join(report), options.into)
    if options.json:
        raw = {
            "starts": [asdict(each) for each in starts],
            "standalone": standalone,
            "rounds": [asdict(each) for each in rounds],
            "private_mib_after": after,
            "latencies": latencies,
        }
        options.json.write_text(json.dumps(raw, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round")
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds for each kind of load")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1000.0, help="messages/s for latencies")
    parser.add_argument("--latency-seconds", type=float, default=30.0)
    parser.add_argument("--into", type=Path, help="page whose marked part is written anew")
    parser.add_argument("--json", type=Path, help="where to write every round")
    return parser.parse_args()


# ---- measuring


def _start(name: str) -> Start:
    with started(name) as running:
        time.sleep(1.0)
        return Start(name, running.start_seconds, private_mib(running.pid))


def _prepare(broker: Running, generator: Path, warm_up: float) -> None:
    asyncio.run(_create_topics(broker))
    filled = _load(broker, _FILL, generator, seconds=60)
    if filled.messages < FILLED:
        sys.exit(f"{broker.name} took {filled.messages} messages of {FILLED} in a minute")
    for shape in SHAPES:
        _load(broker, shape, generator, warm_up)


async def _create_topics(broker: Running) -> None:
    async with AdminClient(broker.name_server) as admin:
        for topic in (SEND_TOPIC, PULL_TOPIC, LATENCY_TOPIC):
            config = TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            await admin.topics.update(broker.address, config)


def _load(broker: Running, shape: Shape, generator: Path, seconds: float) -> Round:
    used, busy, stolen = cpu_seconds(broker.pid), busy_seconds(), stolen_seconds()
    found = run_generator(
        generator, shape.kind, "127.0.0.1", broker.port, shape.connections, shape.window,
        seconds, *shape.details,
    )  # fmt: skip
    took, own = found["seconds"], found["generator_cpu_seconds"]
    used = cpu_seconds(broker.pid) - used
    return Round(
        server=broker.name,
        shape=shape.title,
        messages=found["messages"],
        messages_per_second=found["messages"] / took,
        cpu_us=used / max(found["messages"], 1) * 1e6,
        p50_us=found["p50_us"],
        p99_us=found["p99_us"],
        failures=found["failures"],
        generator_cores=own / took,
        other_cores=max(busy_seconds() - busy - used - own, 0) / took,
        stolen_cores=(stolen_seconds() - stolen) / took,
    )


def _latency(broker: Running, options: argparse.Namespace) -> Any:
    command = [sys.executable, "-m", "bolide", "bench", "latency", "-n", broker.name_server]
    command += [
        "-t",
        LATENCY_TOPIC,
        "--rate",
        str(options.rate),
        "--duration",
        str(options.latency_seconds),
        "--json",
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


# ---- telling


def _head(options: argparse.Namespace) -> list[str]:
    return [
        f"Measured with `make bench-broker` on {machine()}.",
        "",
        (
            f"Medians of {options.rounds} rounds of {options.seconds:g} s in turns, least and most"
            f" in brackets; each kind of load warmed up for {options.warm_up:g} s."
        ),
    ]


def _loads(rounds: Sequence[Round], names: Sequence[str]) -> Iterable[str]:
    for shape in SHAPES:
        of_shape = [each for each in rounds if each.shape == shape.title]

        def row(title: str, field: str, digits: int = 0, of: Sequence[Round] = of_shape) -> str:
            values = {
                name: [getattr(each, field) for each in of if each.server == name] for name in names
            }
            return tables.row(title, values, digits)

        yield from ("", f"### {shape.title}", "", *tables.head(names))
        yield row("server CPU per message, µs", "cpu_us", 2)
        yield row("messages per second", "messages_per_second")
        yield row("p50 of a request, µs", "p50_us")
        yield row("p99 of a request, µs", "p99_us")
        yield row("failed requests", "failures")
        yield row("cores used by the generator", "generator_cores", 2)
        yield row("cores used by others on the machine", "other_cores", 2)
        yield row("cores the host gave to others", "stolen_cores", 2)


def _latencies(found: dict[str, Any], options: argparse.Namespace) -> Iterable[str]:
    title = f"From send to listener at {options.rate:g} messages/s"
    yield from ("", f"### {title}", "")
    yield (
        f"`bolide bench latency --rate {options.rate:g} --duration {options.latency_seconds:g}`:"
        " our client sends and listens in one process; ms."
    )
    yield from ("", "| | " + " | ".join(found) + " |", "| --- |" + " --- |" * len(found))
    for name in ("p50", "p90", "p99", "p99.9", "max"):
        cells = (f"{each['latency_ms'][name]:.2f}" for each in found.values())
        yield f"| {name} | " + " | ".join(cells) + " |"
    counts = (f"{each['received']:,} of {each['sent']:,}" for each in found.values())
    yield "| received | " + " | ".join(counts) + " |"


def _footprint(
    starts: Sequence[Start], standalone: Sequence[float], after: dict[str, list[float]]
) -> Iterable[str]:
    def values(field: str) -> dict[str, list[float]]:
        return {
            name: [getattr(each, field) for each in starts if each.server == name] for name in after
        }

    alone = {name: standalone if name == BOLIDE else [] for name in after}
    yield from ("", "### Start-up and memory", "", *tables.head(list(after)))
    yield tables.row("start-up of a broker with an empty store, s", values("seconds"), 2)
    yield tables.row("start-up of `bolide standalone`, s", alone, 2)
    yield tables.row("private memory, idle, MiB", values("idle_mib"), 1)
    yield tables.row("private memory after the load, MiB", after, 1)


def _publish(report: str, page: Path | None) -> None:
    print(report)
    if page is not None:
        text = page.read_text(encoding="utf-8")
        before, found, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        if not found or not after:
            sys.exit(f"{page} has no lines {BEGIN!r} and {END!r}: nothing was written there")
        page.write_text(f"{before}{BEGIN}\n{report}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
