"""The cells: loads on our broker and on the reference server, and our client."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.generators import compile_generator, run_generator
from benchmarks.processes import cpu_seconds
from benchmarks.smoke import batches
from benchmarks.smoke.clients import CONSUMED
from bolide.admin.client import AdminClient
from tests.interop.bench import BROKER_NEIGHBOURS
from tests.interop.ours import bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.support.ports import free_port

SECONDS = 0.5
"""Duration of one load of a round."""
QUEUES = 4
TOPIC, FILLED_TOPIC = "smoke", "smoke-filled"
BODY, FILLED_BODY, PULL_COUNT = 128, 1024, 32
MAX_ROUNDS = 9
FILLED = CONSUMED * (MAX_ROUNDS + 1) // QUEUES
"""Messages in each queue that is pulled from and consumed."""

Pair = tuple[float, float]
Load = Callable[[int], int]
"""Loads the server at a port and returns the number of responses."""


@dataclass(frozen=True)
class Server:
    pid: int
    port: int

    def cost(self, load: Load) -> float:
        """Microseconds of CPU time per request."""
        begun = cpu_seconds(self.pid)
        requests = load(self.port)
        return (cpu_seconds(self.pid) - begun) / requests * 1e6


class Bench:
    """Our broker and the reference server, and the loads for both."""

    def __init__(self, broker: Server, reference: Server, name_server: str, slow: float) -> None:
        self._broker, self._reference = broker, reference
        self._name_server = name_server
        self._slow = slow
        self._loads: dict[str, Load] = {
            "send, 64 senders": lambda port: _send(port, (64, 1)),
            "send, pipelined": lambda port: _send(port, (8, 64)),
            "send, batches": lambda port: batches.load(port, SECONDS, TOPIC),
            "pull": _pull,
        }
        self._clients = {
            "client, send": ("send", TOPIC),
            "client, consume": ("consume", FILLED_TOPIC),
        }

    @property
    def cells(self) -> list[str]:
        return [*self._loads, *self._clients]

    def prepare(self) -> None:
        """Create the topics, fill the one that is read, and warm up both servers."""
        asyncio.run(_create_topics(self._name_server))
        limit = FILLED * QUEUES
        stored = _generate("send", self._broker.port, (8, 8), 60, FILLED_TOPIC, FILLED_BODY, limit)
        if stored < limit:
            sys.exit(f"the broker stored {stored} of {limit} messages in a minute")
        for load in self._loads.values():
            self._pair(load)

    def measure(self, cells: Sequence[str], rounds: int) -> dict[str, list[Pair]]:
        """The costs of each cell and of its reference, in alternating rounds."""
        found: dict[str, list[Pair]] = {name: [] for name in cells}
        for _ in range(rounds):
            for name in cells:
                if name in self._loads:
                    found[name].append(self._pair(self._loads[name]))
        for name in cells:
            if name in self._clients:
                found[name] = self._client(*self._clients[name], rounds)
        return found

    def _pair(self, load: Load) -> Pair:
        return self._broker.cost(load), self._reference.cost(load)

    def _client(self, kind: str, topic: str, rounds: int) -> list[Pair]:
        module = "benchmarks.smoke.clients"
        command = [*program(module, self._slow), kind, self._name_server, topic, str(rounds)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return [(cost, reference) for cost, reference in json.loads(done.stdout)]


@contextmanager
def bench(slow: float = 0.0) -> Iterator[Bench]:
    """Run both servers until the block ends.

    Args:
        slow: additional CPU time that our code burns, in percent.
    """
    port = free_port(BROKER_NEIGHBOURS)
    with tempfile.TemporaryDirectory() as home, bolide_namesrv(Path(home) / "names") as names:
        settings = {
            "brokerName": "smoke-broker", "bindAddress": "127.0.0.1", "listenPort": port,
            "storePathRootDir": f"{home}/store", "namesrvAddr": names.address,
        }  # fmt: skip
        words = [f"{key}={value}" for key, value in settings.items()]
        command = [*program("bolide", slow), "broker", *words]
        reference = [sys.executable, "-m", "benchmarks.smoke.reference"]
        with (
            ChildProcess("the broker", command, os.environ | {"HOME": home}) as broker,
            ChildProcess("the reference", reference, os.environ) as plain,
        ):
            broker.wait_for_line("boot success")
            plain_port = int(plain.wait_for_line("serves on port").split()[-1])
            servers = Server(broker.pid, port), Server(plain.pid, plain_port)
            found = Bench(*servers, names.address, slow)
            found.prepare()
            yield found


def program(module: str, slow: float) -> list[str]:
    slowed = ("-m", "benchmarks.smoke.slowed", str(slow), module) if slow else ("-m", module)
    return [sys.executable, *slowed]


def _send(port: int, shape: tuple[int, int]) -> int:
    return _generate("send", port, shape, SECONDS, TOPIC, BODY, 0)


def _pull(port: int) -> int:
    return _generate("pull", port, (8, 2), SECONDS, FILLED_TOPIC, PULL_COUNT, FILLED)


def _generate(
    kind: str, port: int, shape: tuple[int, int], seconds: float, topic: str, *sizes: int
) -> int:
    """Load a server with the C program; return the number of responses."""
    where = ("127.0.0.1", port, *shape, seconds, topic, QUEUES)
    done = run_generator(_generator(), kind, *where, *sizes)
    if done["failures"]:
        sys.exit(f"{done['failures']} requests failed, {kind} by {shape}")
    return int(done["answers"])


@cache
def _generator() -> Path:
    return compile_generator("brokerload")


async def _create_topics(name_server: str) -> None:
    async with AdminClient(name_server) as admin:
        for topic in (TOPIC, FILLED_TOPIC):
            await admin.topics.create(topic, "DefaultCluster", queues=QUEUES)
