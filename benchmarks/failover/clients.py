"""Clients that send one message after the other, and note when each send began and ended."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.failover.groups import RELEASE
from bolide.client.producer.producer import Producer
from bolide.errors import BolideError
from bolide.model.message import Message
from bolide.protocol.message_id import OffsetId
from bolide.remoting.address import format_address
from tests.interop.bench import Bench
from tests.interop.processes import ChildProcess

CLIENTS = {
    "python": "Python client, send timeout 1 s",
    "java": "Java client, send timeout 1 s, its default route poll of 30 s",
    "java-poll-1s": "Java client, send timeout 1 s, route poll 1 s",
}
_PAUSE = 0.02
_OK = "SEND_OK"


@dataclass(frozen=True, slots=True)
class Send:
    """One send; times are seconds of the monotonic clock."""

    id: str
    began: float
    ended: float
    status: str
    """A send status, or the name of an error."""
    broker: str = ""
    """The address of the broker that stored it."""

    @property
    def is_acknowledged(self) -> bool:
        return self.status == _OK

    @classmethod
    def parse(cls, line: str) -> "Send":
        """From a line of TimedSends.java."""
        id_, began, ended, status, offset_id = line.split()
        broker = _stored_at(offset_id) if status == _OK else ""
        return cls(id_, int(began) / 1e9, int(ended) / 1e9, status, broker)


class Client(Protocol):
    """A client that sends."""

    def sends(self) -> Sequence[Send]:
        """All sends that have ended."""
        ...


class _PythonClient:
    def __init__(self) -> None:
        self._sends: list[Send] = []

    def sends(self) -> list[Send]:
        return self._sends

    async def run(self, producer: Producer, topic: str) -> None:
        number = 0
        while True:
            id_, number = f"python-{number}", number + 1
            began, broker = time.monotonic(), ""
            try:
                sent = await producer.send(Message(topic, id_.encode()))
                status = sent.status.name
                if status == _OK:
                    broker = _stored_at(sent.offset_message_id)
            except BolideError as exc:
                status = type(exc).__name__
            self._sends.append(Send(id_, began, time.monotonic(), status, broker))
            await asyncio.sleep(_PAUSE)


class _JavaClient:
    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._sends: list[Send] = []

    def sends(self) -> list[Send]:
        fresh = self._process.stdout[len(self._sends) :]
        self._sends += map(Send.parse, fresh)
        return self._sends


@asynccontextmanager
async def sending(
    names: Sequence[str], name_servers: str, topic: str, directory: Path
) -> AsyncIterator[dict[str, Client]]:
    """The clients, by name, sending while the block runs."""
    async with AsyncExitStack() as stack:
        bench = stack.enter_context(Bench(directory))
        clients: dict[str, Client] = {}
        for name in names:
            if name == "python":
                client = _PythonClient()
                producer = await stack.enter_async_context(
                    Producer("failover", name_server=name_servers, send_timeout=1.0)
                )
                task = asyncio.create_task(client.run(producer, topic))
                stack.push_async_callback(_end, task)
                clients[name] = client
            else:
                poll = 1000 if name == "java-poll-1s" else 30_000
                clients[name] = _JavaClient(
                    bench.client(
                        RELEASE, "TimedSends", name_servers, topic, f"{name}-",
                        jvm=(f"-DpollMillis={poll}",),
                    )
                )  # fmt: skip
        yield clients


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _stored_at(offset_id: str) -> str:
    host = OffsetId.decode(offset_id).host
    return format_address((host.ip, host.port))
