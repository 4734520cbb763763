"""Measure NATS JetStream and RabbitMQ with their own tools, for orientation only.

Their guarantees differ from RocketMQ's, and their tools load a broker in other ways.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.compare.packages import PackageUnavailable, fetch_jars, require_tool, unpack_debian
from benchmarks.compare.results import Results
from benchmarks.processes import tree_cpu_seconds
from tests.interop import apache
from tests.interop.processes import ChildProcess, ProcessFailed
from tests.support.ports import free_port

_ROUNDS = 3
_MIN_SECONDS = 5.0
_TIMEOUT = 300.0
_SIZE = 128

_RABBIT_PACKAGES = (
    "rabbitmq-server", "erlang-base", "erlang-asn1", "erlang-crypto", "erlang-eldap",
    "erlang-inets", "erlang-mnesia", "erlang-os-mon", "erlang-parsetools", "erlang-public-key",
    "erlang-runtime-tools", "erlang-ssl", "erlang-syntax-tools", "erlang-tools", "erlang-xmerl",
)  # fmt: skip
_PERF_TEST = ("com.rabbitmq", "perf-test", "2.22.1")
_PERF_TEST_RATE = re.compile(r"(?:sending|receiving) rate avg: ([1-9]\d*) msg/s")
_NATS_RATE = re.compile(r"([\d,]+) msgs/sec")
_GET_NATS = "go install github.com/nats-io/natscli/nats@v0.0.35, or its releases on GitHub"


@dataclass
class Context:
    """The rates that a tool reported for one load, round by round."""

    broker: str
    tool: str
    load: str
    rates: list[float] = field(default_factory=list)
    server_cpu_us: list[float] = field(default_factory=list)


def measure_context(results: Results, seconds: float) -> None:
    """Measure the brokers that are available; record why and how to get the others."""
    results.context = []
    for name, measure in (("RabbitMQ", _rabbitmq), ("NATS JetStream", _nats)):
        try:
            results.context += [asdict(each) for each in measure(max(seconds, _MIN_SECONDS))]
            results.missing.pop(name, None)
        except (PackageUnavailable, apache.Unobtainable, ProcessFailed, OSError) as missing:
            results.missing[name] = str(missing)
            print(f"{name}: {missing}", file=sys.stderr)
        results.save()


def _rabbitmq(seconds: float) -> Iterator[Context]:
    root = unpack_debian("rabbitmq", _RABBIT_PACKAGES)
    jars = fetch_jars(*_PERF_TEST)
    java = [apache.tool("java"), "-Xmx512m", "-cp", f"{jars}/*", "com.rabbitmq.perf.PerfTest"]
    with _rabbitmq_server(root) as (server, port):
        common = ["--uri", f"amqp://guest:guest@127.0.0.1:{port}", "-u", "bench", "-f"]
        common += ["persistent", "--auto-delete", "false", "-z", f"{seconds:.0f}"]
        sends = [*java, *common, "-x", "1", "-y", "0", "-s", str(_SIZE), "-c", "1000"]
        reads = [*java, *common, "-x", "0", "-y", "1", "-q", "1000"]
        name = "RabbitMQ of Debian, one durable classic queue"
        sent = Context(name, "PerfTest", f"persistent, {_SIZE} B, 1,000 unconfirmed")
        read = Context(name, "PerfTest", "consumption, prefetch 1,000")
        for _ in range(_ROUNDS):
            _time(sent, sends, _PERF_TEST_RATE, server, seconds)
            _time(read, reads, _PERF_TEST_RATE, server, seconds)
        yield from (sent, read)


@contextmanager
def _rabbitmq_server(root: Path) -> Iterator[tuple[ChildProcess, int]]:
    erlang = root / "usr/lib/erlang"
    _move_erlang(erlang)
    (home,) = root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")
    port, dist, epmd_port = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as data:
        environment = os.environ | {
            "PATH": f"{erlang / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": data,
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_HOME": str(home),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": f"{data}/none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{data}/plugins",
            "RABBITMQ_MNESIA_BASE": f"{data}/mnesia",
            "RABBITMQ_LOG_BASE": f"{data}/log",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(dist),
        }
        # The port mapper is started here: one that the server starts would outlive it.
        mapper = next(erlang.glob("erts-*/bin/epmd"))
        shell = ["/bin/sh", str(home / "sbin/rabbitmq-server")]
        with (
            ChildProcess("epmd", [str(mapper)], environment),
            ChildProcess("rabbitmq-server", shell, environment) as server,
        ):
            server.wait_for_line("Starting broker... completed", _TIMEOUT)
            yield server, port


def _move_erlang(erlang: Path) -> None:
    """Adapt Debian's start script, which has the install directory built in."""
    script = erlang / "bin/erl"
    script.write_text(script.read_text().replace("ROOTDIR=/usr/lib", f"ROOTDIR={erlang.parent}"))


def _nats(seconds: float) -> Iterator[Context]:
    tool = require_tool("nats", _GET_NATS)
    server_file = unpack_debian("nats", ("nats-server",)) / "usr/sbin/nats-server"
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        command = [str(server_file), "-js", "-sd", data, "-a", "127.0.0.1", "-p", str(port)]
        with ChildProcess("nats-server", command, os.environ) as server:
            server.wait_for_line("Server is ready", _TIMEOUT)
            bench = [tool, "-s", f"nats://127.0.0.1:{port}", "bench", "bench", "--js"]
            bench += ["--storage", "file", "--purge", "--no-progress", "--size", str(_SIZE)]
            found = Context("NATS JetStream of Debian", "nats bench", f"{_SIZE} B, asynchronous")
            messages = round(20_000 * seconds)
            for _ in range(_ROUNDS):
                sends = [*bench, "--pub", "1", "--msgs", str(messages)]
                _time(found, sends, _NATS_RATE, server, 0.0)
            yield found


def _time(
    into: Context,
    command: Sequence[str],
    rate: re.Pattern[str],
    server: ChildProcess,
    seconds: float,
) -> None:
    """Run one round; the CPU cost is recorded if the tool runs for a known time."""
    before = tree_cpu_seconds(server.pid)
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT)
    used = tree_cpu_seconds(server.pid) - before
    found = rate.search(done.stdout)
    if done.returncode or found is None:
        raise PackageUnavailable(
            f"{into.tool} printed no rate: {(done.stderr or done.stdout)[-300:]}"
        )
    per_second = float(found[1].replace(",", ""))
    into.rates.append(per_second)
    if seconds:
        into.server_cpu_us.append(used / (per_second * seconds) * 1e6)
