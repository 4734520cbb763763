"""The brokers that are compared: ours and Apache's, each with a NameServer of ours."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop import apache
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess, free_port

BOLIDE = "Bolide"

# The collector as RocketMQ's runbroker.sh sets it, both compilers, and a heap that a small load
# cannot fill; the tests' own options, which come first, are made for quick starts.
JVM = (
    "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=512m", "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0",
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
}


@dataclass(frozen=True)
class Running:
    """A broker that serves."""

    name: str
    pid: int
    port: int
    name_server: str
    start_seconds: float

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def contenders() -> list[str]:
    return [BOLIDE, f"RocketMQ {apache.releases()['5.x'].version}"]


@contextmanager
def started(name: str) -> Iterator[Running]:
    """The broker of that name with an empty store, until the block ends."""
    with tempfile.TemporaryDirectory() as home, bolide_namesrv(Path(home) / "names") as names:
        begin = time.perf_counter()
        broker = _bolide if name == BOLIDE else _apache
        with broker(Path(home), names.address) as server:
            took = time.perf_counter() - begin
            yield Running(name, server.process.pid, server.port, names.address, took)


def start_standalone() -> float:
    """Seconds until `bolide standalone` says that its broker is up."""
    ports = free_port(), free_port(BROKER_NEIGHBOURS)
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


@contextmanager
def _bolide(home: Path, name_server: str) -> Iterator[Server]:
    with bolide_broker(home / "broker", name_server) as server:
        yield server


@contextmanager
def _apache(home: Path, name_server: str) -> Iterator[Server]:
    with Bench(home / "apache") as bench:
        yield bench.broker("5.x", name_server, jvm=JVM, **APACHE_SETTINGS)
