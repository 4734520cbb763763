"""Start the brokers to compare, Bolide's and Apache's, each with a Bolide NameServer."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import credentials
from benchmarks.checkouts import Checkout
from benchmarks.credentials import Credentials
from benchmarks.processes import cpu_seconds, private_mib, resident_mib, tree, written_bytes
from bolide.admin.client import AdminClient
from bolide.errors import BolideError
from tests.interop import apache
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.ours import bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.support.ports import free_port

BOLIDE = "Bolide"
PLAIN = "Bolide without compiler"
WORKERS = "Bolide, 2 workers"
BASELINE = "Bolide, baseline"
"""The broker of another checkout."""
APACHE = f"RocketMQ {apache.releases()['5.x'].version}"
APACHE_4 = f"RocketMQ {apache.releases()['4.9'].version}"
ASYNC_SLAVE = f"{BOLIDE}, ASYNC_MASTER and a slave"
SYNC_SLAVE = f"{BOLIDE}, SYNC_MASTER and a slave"
APACHE_SYNC_SLAVE = f"{APACHE}, SYNC_MASTER and a slave"
_RELEASES = {APACHE: "5.x", APACHE_4: "4.9", APACHE_SYNC_SLAVE: "5.x"}
JAVA = tuple(_RELEASES)
"""The brokers that run in a JVM."""

ASYNC_MASTER, SYNC_MASTER, SLAVE = "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"
_WITH_SLAVE = {ASYNC_SLAVE: ASYNC_MASTER, SYNC_SLAVE: SYNC_MASTER, APACHE_SYNC_SLAVE: SYNC_MASTER}
"""The role of the master, for brokers with a slave."""

ASYNC_FLUSH, SYNC_FLUSH = "ASYNC_FLUSH", "SYNC_FLUSH"
_WORKERS = 2
_REGISTRATION_TIMEOUT = 30.0
_BOOT_TIMEOUT = 20.0
_SYNC_TIMEOUT = 30.0

# A twelfth of the machine's memory, at least 1 GiB and at most the 8 GiB of runbroker.sh.
_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
HEAP_GIB = min(max(round(_MEMORY / 12), 1), 8)

# The garbage collector of RocketMQ's runbroker.sh and both JIT compilers. These options override
# those of the tests, which come first and favour quick starts.
JVM = (
    f"-Xms{HEAP_GIB}g", f"-Xmx{HEAP_GIB}g", f"-XX:MaxDirectMemorySize={HEAP_GIB}g",
    "-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow",
)  # fmt: skip

# RocketMQ's defaults for the settings that the tests change.
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
    # At the default of 3,000 ms, 5.5 keeps a core busy with this in its first seconds.
    "transactionMetricFlushInterval": 500,
    "enablePropertyFilter": True,
}


@dataclass(frozen=True)
class Running:
    """A running broker."""

    name: str
    pid: int
    ports: tuple[int, ...]
    """One port, or one per worker."""
    pids: tuple[int, ...]
    """The broker's process and its descendants."""
    name_server: str
    began: float
    """Time of the start, by `time.perf_counter`."""
    start_seconds: float
    stop: Callable[[], None]
    credentials: Credentials | None = None
    """Of the user whose load it takes; None if it takes that of anybody."""
    admin_credentials: Credentials | None = None
    slave: "Running | None" = None
    """The slave that replicates it; its resources are not counted as those of the broker."""

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
def started(
    name: str,
    flush: str = ASYNC_FLUSH,
    checkout: Checkout | None = None,
    *,
    access_control: bool = False,
) -> Iterator[Running]:
    """Run the named broker with an empty store until the block ends.

    Args:
        name: one of the constants of this module.
        flush: the broker's `flushDiskType`.
        checkout: where Bolide's broker comes from; by default the current checkout.
        access_control: with ACL 2.0, and a user that may send to and read the topics of loads.
    """
    checkout = checkout or Checkout.current()
    write_bytecode(checkout.package, checkout.python)
    with tempfile.TemporaryDirectory() as home, bolide_namesrv(Path(home) / "names") as names:
        more = credentials.SETTINGS if access_control else {}
        if name in _RELEASES and access_control:
            more = {**more, **credentials.APACHE_SETTINGS}
        starter = _Starter(name, Path(home), names.address, flush, checkout)
        with starter.running({**more, **_master_settings(name)}) as broker:
            if access_control:
                asyncio.run(credentials.create_user(broker.addresses))
                user, admin = credentials.USER, credentials.ADMIN
                yield replace(broker, credentials=user, admin_credentials=admin)
            elif name in _WITH_SLAVE:
                with starter.running({"brokerRole": SLAVE, "brokerId": "1"}) as slave:
                    replicated = replace(broker, slave=slave)
                    wait_in_sync(replicated)
                    yield replicated
            else:
                yield broker


def _master_settings(name: str) -> dict[str, str]:
    """In RocketMQ 5.x a SYNC_MASTER waits for no slave unless `inSyncReplicas` says so."""
    if name not in _WITH_SLAVE:
        return {}
    counts = {"inSyncReplicas": "2", "totalReplicas": "2"} if name in _RELEASES else {}
    return {"brokerRole": _WITH_SLAVE[name], **counts}


@dataclass(frozen=True)
class _Starter:
    """Starts brokers of one kind that share a NameServer."""

    name: str
    home: Path
    name_server: str
    flush: str
    checkout: Checkout

    @contextmanager
    def running(self, more: Mapping[str, str]) -> Iterator[Running]:
        """Run a broker with these additional settings until the block ends."""
        begin = time.perf_counter()
        home = self.home / more.get("brokerRole", "broker").lower()
        home.mkdir()
        broker = self._apache if self.name in _RELEASES else self._bolide
        with broker(home, more) as server:
            took = time.perf_counter() - begin
            ports = (server.port,) if self.name != WORKERS else _registered(self.name_server)
            process = server.process
            yield Running(
                self.name, process.pid, ports, tree(process.pid), self.name_server, begin, took,
                process.stop,
            )  # fmt: skip

    @contextmanager
    def _bolide(self, directory: Path, more: Mapping[str, str]) -> Iterator[Server]:
        port = free_port(BROKER_NEIGHBOURS)
        settings = {
            "listenPort": port,
            "namesrvAddr": self.name_server,
            "storePathRootDir": directory / "store",
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "flushDiskType": self.flush,
            "enablePropertyFilter": "true",
            **more,
        }
        file = directory / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [str(self.checkout.python), "-m", "bolide", "broker", "-c", str(file)]
        environment = os.environ | {"HOME": str(directory), "ROCKETMQ_HOME": str(directory)}
        if self.name == WORKERS:
            command += ["--workers", str(_WORKERS)]
        if self.name == PLAIN:
            environment["BOLIDE_KERNEL"] = "python"
        process = ChildProcess(self.name, command, environment)
        try:
            process.wait_for_line("boot success", _BOOT_TIMEOUT)
            yield Server(process, port, directory)
        finally:
            process.stop()

    @contextmanager
    def _apache(self, directory: Path, more: Mapping[str, str]) -> Iterator[Server]:
        settings = APACHE_SETTINGS | {"flushDiskType": self.flush, **more}
        with Bench(directory) as bench:
            release = _RELEASES[self.name]
            yield bench.broker(release, self.name_server, jvm=JVM, **settings)


def wait_in_sync(broker: Running, seconds: float = _SYNC_TIMEOUT) -> None:
    """Wait until the slave of a broker has its whole log.

    Raises:
        TimeoutError: the slave does not follow, or is too slow.
    """
    deadline = time.monotonic() + seconds
    while not asyncio.run(_is_in_sync(broker)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the slave of {broker.name} lacks messages after {seconds} s")
        time.sleep(0.05)


async def _is_in_sync(broker: Running) -> bool:
    async with AdminClient(broker.name_server) as admin:
        status = await admin.brokers.ha_status(broker.address)
    return any(not each.diff for each in status.ha_connection_info)


def start_standalone() -> float:
    """Seconds until `bolide standalone` reports that its broker is up."""
    ports = free_port(), free_port(BROKER_NEIGHBOURS)
    write_bytecode(Checkout.current().package)
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "bolide", "standalone", "--data", home]
        command += ["--namesrv-port", str(ports[0]), "--broker-port", str(ports[1])]
        begin = time.perf_counter()
        process = ChildProcess(
            "bolide standalone", command, os.environ | {"HOME": home, "BOLIDE_CONSOLE": "false"}
        )
        try:
            process.wait_for_line(r"The broker.*boot success")
            return time.perf_counter() - begin
        finally:
            process.stop()


def write_bytecode(package: Path, python: Path = Path(sys.executable)) -> None:
    """Compile the package's modules as pip does at an install, so that starts do not."""
    subprocess.run([str(python), "-m", "compileall", "-q", str(package)], check=False)


def _registered(name_server: str) -> tuple[int, ...]:
    """Wait until all workers have registered; return their ports."""
    deadline = time.monotonic() + _REGISTRATION_TIMEOUT
    while len(addresses := asyncio.run(_masters(name_server))) < _WORKERS:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(addresses)} of {_WORKERS} workers registered in {_REGISTRATION_TIMEOUT} s"
            )
        time.sleep(0.05)
    return tuple(sorted(int(each.rpartition(":")[2]) for each in addresses))


async def _masters(name_server: str) -> list[str]:
    async with AdminClient(name_server) as admin:
        try:
            info = await admin.clusters.info()
        except BolideError:
            return []  # no broker has registered yet
    found = (brokers.broker_addrs for brokers in info.broker_addr_table.values())
    return [addresses[0] for addresses in found if 0 in addresses]
