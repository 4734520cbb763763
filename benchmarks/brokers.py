"""The brokers that are compared: ours and Apache's, each with a NameServer of ours."""

import asyncio
import compileall
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import bolide
from benchmarks.processes import cpu_seconds, private_mib, resident_mib, tree, written_bytes
from bolide.admin.client import AdminClient
from bolide.errors import BolideError
from tests.interop import apache
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess, free_port

BOLIDE = "Bolide"
PLAIN = "Bolide without compiler"
WORKERS = "Bolide, 2 workers"
APACHE = f"RocketMQ {apache.releases()['5.x'].version}"
APACHE_4 = f"RocketMQ {apache.releases()['4.9'].version}"

ASYNC_FLUSH, SYNC_FLUSH = "ASYNC_FLUSH", "SYNC_FLUSH"
_WORKERS = 2
_PATIENCE = 30.0
_PACKAGE = Path(bolide.__file__).parent

# A twelfth of the machine's memory, at least 1 and at most 8 GiB, which runbroker.sh takes.
_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
HEAP_GIB = min(max(round(_MEMORY / 12), 1), 8)

# The collector as RocketMQ's runbroker.sh sets it, and both compilers; the tests' own options,
# which come first, are made for quick starts.
JVM = (
    f"-Xms{HEAP_GIB}g", f"-Xmx{HEAP_GIB}g", f"-XX:MaxDirectMemorySize={HEAP_GIB}g",
    "-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow",
)  # fmt: skip

# RocketMQ's defaults, where the tests have others.
APACHE_SETTINGS = {
    "mappedFileSizeCommitLog": 1024**3,
    "mappedFileSizeConsumeQueue": 300_000 * 20,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "diskMaxUsedSpaceRatio": 75,
    "cleanFileForciblyEnable": True,
    "timerWheelEnable": True,
    "waitTimeMillsInSendQueue": 200,
    "osPageCacheBusyTimeOutMills": 1_000,
    # 5.5 spends its first seconds on this at the default of 3 s.
    "transactionMetricFlushInterval": 500,
    "enablePropertyFilter": True,
}


@dataclass(frozen=True)
class Running:
    """A broker that serves."""

    name: str
    pid: int
    ports: tuple[int, ...]
    """One, or that of each worker."""
    pids: tuple[int, ...]
    """Its process, and those that it started."""
    name_server: str
    began: float
    """When it was started, by `time.perf_counter`."""
    start_seconds: float
    stop: Callable[[], None]

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def private_mib(self) -> float:
        return sum(map(private_mib, self.pids))

    def resident_mib(self) -> float:
        return sum(map(resident_mib, self.pids))

    def written_bytes(self) -> int:
        return sum(map(written_bytes, self.pids))


@contextmanager
def started(name: str, flush: str = ASYNC_FLUSH) -> Iterator[Running]:
    """The broker of that name with an empty store, until the block ends."""
    broker = {APACHE: _apache, APACHE_4: _apache_4, PLAIN: _plain, WORKERS: _workers}.get(
        name, _bolide
    )
    write_bytecode()
    with tempfile.TemporaryDirectory() as home, bolide_namesrv(Path(home) / "names") as names:
        begin = time.perf_counter()
        with broker(Path(home), names.address, flush) as server:
            took = time.perf_counter() - begin
            ports = (server.port,) if name != WORKERS else _registered(names.address)
            pid = server.process.pid
            stop = server.process.stop
            yield Running(name, pid, ports, tree(pid), names.address, begin, took, stop)


def start_standalone() -> float:
    """Seconds until `bolide standalone` says that its broker is up."""
    ports = free_port(), free_port(BROKER_NEIGHBOURS)
    write_bytecode()
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "bolide", "standalone", "--data", home]
        command += ["--namesrv-port", str(ports[0]), "--broker-port", str(ports[1])]
        begin = time.perf_counter()
        process = ChildProcess("bolide standalone", command, os.environ | {"HOME": home})
        try:
            process.wait_for_line(r"The broker.*boot success")
            return time.perf_counter() - begin
        finally:
            process.stop()


def write_bytecode(package: Path = _PACKAGE) -> None:
    """As pip does when it installs; without it, each start of ours compiles the package anew."""
    compileall.compile_dir(package, quiet=1)


@contextmanager
def _bolide(home: Path, name_server: str, flush: str, *arguments: str) -> Iterator[Server]:
    settings = {"flushDiskType": flush, "enablePropertyFilter": True}
    with bolide_broker(home / "broker", name_server, *arguments, **settings) as server:
        yield server


@contextmanager
def _plain(home: Path, name_server: str, flush: str) -> Iterator[Server]:
    """As an install without compiler: the choice is made by the environment it starts in."""
    with ExitStack() as stack:
        with _environment("BOLIDE_KERNEL", "python"):
            server = stack.enter_context(_bolide(home, name_server, flush))
        yield server


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


@contextmanager
def _workers(home: Path, name_server: str, flush: str) -> Iterator[Server]:
    with _bolide(home, name_server, flush, "--workers", str(_WORKERS)) as server:
        yield server


@contextmanager
def _apache(home: Path, name_server: str, flush: str, release: str = "5.x") -> Iterator[Server]:
    settings = APACHE_SETTINGS | {"flushDiskType": flush}
    with Bench(home / "apache") as bench:
        yield bench.broker(release, name_server, jvm=JVM, **settings)


@contextmanager
def _apache_4(home: Path, name_server: str, flush: str) -> Iterator[Server]:
    with _apache(home, name_server, flush, "4.9") as server:
        yield server


def _registered(name_server: str) -> tuple[int, ...]:
    """The ports of all workers, once the NameServer knows them."""
    deadline = time.monotonic() + _PATIENCE
    while len(addresses := asyncio.run(_masters(name_server))) < _WORKERS:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(addresses)} of {_WORKERS} workers registered in {_PATIENCE} s"
            )
        time.sleep(0.05)
    return tuple(sorted(int(each.rpartition(":")[2]) for each in addresses))


async def _masters(name_server: str) -> list[str]:
    async with AdminClient(name_server) as admin:
        try:
            info = await admin.clusters.info()
        except BolideError:
            return []  # none has registered yet
    found = (brokers.broker_addrs for brokers in info.broker_addr_table.values())
    return [addresses[0] for addresses in found if 0 in addresses]
