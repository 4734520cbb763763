"""Route look-ups of our NameServer beside Apache RocketMQ's, by one load generator in one run.

Both servers run at the same time and rounds alternate between them, so that noise of the machine
affects both. Both are warmed up first. Run as `make bench`; prints Markdown. `--json FILE` writes
the raw rounds.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import markdown
from benchmarks.generators import compile_generator, run_generator
from benchmarks.processes import cpu_seconds, machine, resident_mib, stolen_seconds
from bolide.protocol import fastjson
from bolide.protocol.bodies.registration import RegisterBrokerBody
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import RegisterBrokerHeader
from bolide.remoting.client import RemotingClient
from tests.interop import apache
from tests.interop.bench import NAMESRV
from tests.interop.processes import ChildProcess
from tests.support.ports import free_port


@dataclass(frozen=True)
class Round:
    """One round of load on one server."""

    server: str
    look_ups_per_second: float
    look_ups_per_cpu_second: float
    p50_us: int
    p99_us: int
    failures: int
    generator_cores: float
    stolen_cores: float


@dataclass(frozen=True)
class Start:
    """One start of a server."""

    server: str
    seconds: float
    idle_mib: float


class Contender:
    """A NameServer to start; each start uses a new port."""

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self, port: int, home: Path) -> list[str]:
        if self.name == "Bolide":
            settings = [f"listenPort={port}", f"kvConfigPath={home / 'kv.json'}"]
            return [sys.executable, "-m", "bolide", "namesrv", *settings]
        configuration = home / "namesrv.conf"
        configuration.write_text(f"listenPort={port}\n")
        # 512 MiB is ample for 1,000 topics; all other options are the JVM's defaults.
        heap = ["-Xms512m", "-Xmx512m", "-Dtls.server.mode=disabled", f"-Duser.home={home}"]
        classpath = apache.obtain("5.x").classpath(home)
        return [apache.tool("java"), *heap, "-cp", classpath, NAMESRV, "-c", str(configuration)]

    @contextmanager
    def started(self) -> Iterator[tuple[ChildProcess, int, float]]:
        """Yield the process, its port and the seconds until it reported that it is up."""
        port = free_port()
        with tempfile.TemporaryDirectory() as home:
            environment = os.environ | {"HOME": home, "ROCKETMQ_HOME": home}
            begin = time.perf_counter()
            process = ChildProcess(self.name, self.command(port, Path(home)), environment)
            try:
                process.wait_for_line("boot success", 60)
                yield process, port, time.perf_counter() - begin
            finally:
                process.stop()


def main() -> None:
    options = _options()
    generator = compile_generator("loadgen")
    contenders = [Contender("Bolide"), Contender(f"RocketMQ {apache.releases()['5.x'].version}")]
    starts = [_start(each) for _ in range(options.starts) for each in contenders]
    rounds = asyncio.run(_compare(contenders, generator, options))
    print(_report(rounds, starts, options))
    if options.json:
        raw = {"starts": [asdict(s) for s in starts], "rounds": [asdict(r) for r in rounds]}
        options.json.write_text(json.dumps(raw, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.namesrv", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _start(contender: Contender) -> Start:
    with contender.started() as (process, _, seconds):
        time.sleep(1.0)
        return Start(contender.name, seconds, resident_mib(process.pid))


async def _compare(
    contenders: list[Contender], generator: Path, options: argparse.Namespace
) -> list[Round]:
    with ExitStack() as stack:
        running = [(each, *stack.enter_context(each.started())[:2]) for each in contenders]
        async with RemotingClient() as client:
            for _, _, port in running:
                await _register(client, f"127.0.0.1:{port}", options.topics)
            for each, process, port in running:
                await asyncio.to_thread(
                    _load, each, process, port, generator, options, options.warm_up
                )
            return [
                await asyncio.to_thread(
                    _load, each, process, port, generator, options, options.seconds
                )
                for _ in range(options.rounds)
                for each, process, port in running
            ]


async def _register(client: RemotingClient, address: str, topics: int) -> None:
    """Register a broker with the topics that the generator looks up."""
    names = [f"bench-{number:04d}" for number in range(topics)]
    header = RegisterBrokerHeader(
        broker_name="broker-a",
        broker_addr="127.0.0.1:10911",
        cluster_name="DefaultCluster",
        ha_server_addr="127.0.0.1:10912",
        broker_id=0,
        heartbeat_timeout_millis=3_600_000,
    )
    table = {name: TopicConfig(topic_name=name) for name in names}
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=MappedTopicConfigTable(topic_config_table=table)
    )
    await client.call(
        address, RequestCode.REGISTER_BROKER, header, body=fastjson.encode(body), within=30
    )


def _load(
    contender: Contender,
    process: ChildProcess,
    port: int,
    generator: Path,
    options: argparse.Namespace,
    seconds: float,
) -> Round:
    before, stolen = cpu_seconds(process.pid), stolen_seconds()
    found = run_generator(
        generator, "127.0.0.1", port, options.connections, 1, seconds, options.topics
    )
    used = cpu_seconds(process.pid) - before
    return Round(
        server=contender.name,
        look_ups_per_second=found["answers"] / found["seconds"],
        look_ups_per_cpu_second=found["answers"] / used,
        p50_us=found["p50_us"],
        p99_us=found["p99_us"],
        failures=found["failures"],
        generator_cores=found["generator_cpu_seconds"] / found["seconds"],
        stolen_cores=(stolen_seconds() - stolen) / found["seconds"],
    )


def _report(rounds: list[Round], starts: list[Start], options: argparse.Namespace) -> str:
    names = list(dict.fromkeys(each.server for each in rounds))
    load = (
        f"{options.connections} connections with one request in flight on each, {options.topics}"
        f" topics; medians of {options.rounds} alternating rounds of {options.seconds:g} s, minimum"
        f" and maximum in brackets."
    )
    lines = [
        f"Measured with `make bench` on {machine()}.",
        "",
        load,
        "",
        *markdown.head(names),
        _row("look-ups per second", rounds, names, "look_ups_per_second"),
        _row("look-ups per CPU-second of the server", rounds, names, "look_ups_per_cpu_second"),
        _row("p50, µs", rounds, names, "p50_us"),
        _row("p99, µs", rounds, names, "p99_us"),
        _row("failed look-ups", rounds, names, "failures"),
        _row("cores used by the generator", rounds, names, "generator_cores", digits=2),
        _row("stolen cores", rounds, names, "stolen_cores", digits=2),
        _row("start-up, s", starts, names, "seconds", digits=2),
        _row("idle resident memory, MiB", starts, names, "idle_mib", digits=1),
    ]
    return "\n".join(lines)


def _row(
    title: str,
    samples: list[Round] | list[Start],
    names: list[str],
    field: str,
    digits: int = 0,
) -> str:
    return markdown.row(
        title,
        {
            name: [float(getattr(each, field)) for each in samples if each.server == name]
            for name in names
        },
        digits,
    )


if __name__ == "__main__":
    main()
