"""Starts, stops, memory and idle connections."""

import json
import socket
import struct
import subprocess
import time
from dataclasses import dataclass, field, replace

from benchmarks.brokers import Running, start_standalone, started
from benchmarks.compare.rounds import LoadResult, ResourceUsage, Round
from benchmarks.compare.stages import Stage

STANDALONE = "bolide standalone"
_TOPIC = "BenchmarkTest"  # a system topic of both brokers
_TIMEOUT = 60.0
_SETTLE_SECONDS = 1.0
_MIN_WINDOW = 3.0


def start(name: str) -> Round:
    """Start a broker with an empty store, measure its idle memory and stop it."""
    if name == STANDALONE:
        return Round(
            name, LoadResult(0, 0.0, 0.0, extra={"start_s": start_standalone()}), ResourceUsage()
        )
    with started(name) as broker:
        accepted = _first_send(broker)
        time.sleep(_SETTLE_SECONDS)
        used = ResourceUsage(private_mib=broker.private_mib(), resident_mib=broker.resident_mib())
        begin = time.perf_counter()
        broker.stop()
        stopped = time.perf_counter() - begin
    extra = {"start_s": broker.start_seconds, "first_send_s": accepted, "stop_s": stopped}
    return Round(name, LoadResult(1, accepted, 0.0, extra=extra), used)


@dataclass(frozen=True)
class IdleConnections:
    """Memory and CPU time that idle connections cost the broker."""

    connections: int
    warm_up: bool = field(default=False, init=False)
    _before: dict[int, float] = field(default_factory=dict, init=False, compare=False)
    """MiB by process, read once: a process may keep the memory of closed connections."""

    def prepare(self, stage: Stage, broker: Running) -> None:
        self._before[broker.pid] = broker.private_mib()

    def round(self, stage: Stage, broker: Running, seconds: float) -> Round:
        before, window = self._before[broker.pid], max(seconds, _MIN_WINDOW)
        command = [str(stage.generator), "idle", "127.0.0.1", str(broker.port)]
        command.append(str(self.connections))
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            if not holder.stdout.readline().startswith(f"{self.connections} "):
                raise ConnectionError(
                    f"{broker.name} did not accept {self.connections} connections"
                )
            time.sleep(_SETTLE_SECONDS)
            with stage.meter_without_tail(broker) as meter:
                time.sleep(window)
            found = meter.round(LoadResult(self.connections, window, 0.0))
        added = (found.used.private_mib - before) * 1024 / self.connections
        extra = {"kib_each": added, "cores": found.used.cpu_seconds / window}
        return replace(found, loaded=replace(found.loaded, extra=extra))


def _first_send(broker: Running) -> float:
    """Seconds from the broker's start to the first accepted send."""
    while not _accepts(broker.port):
        if time.perf_counter() - broker.began > _TIMEOUT:
            raise TimeoutError(f"{broker.name} accepted no send within {_TIMEOUT} s")
        time.sleep(0.01)
    return time.perf_counter() - broker.began


def _accepts(port: int) -> bool:
    fields = dict(zip("abcdefghijkm", _FIELDS, strict=True))
    header = {"code": 310, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1}
    text = json.dumps(header | {"serializeTypeCurrentRPC": "JSON", "version": 479}).encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT) as peer:
            peer.sendall(struct.pack(">II", 4 + len(text) + 1, len(text)) + text + b"x")
            return b'"code":0,' in peer.recv(4096)
    except OSError:
        return False  # not listening yet


_FIELDS = (
    "bench_producer", _TOPIC, "TBW102", "4", "0", "0", "0", "0", "WAIT\x01true", "0", "false",
    "false",
)  # fmt: skip
