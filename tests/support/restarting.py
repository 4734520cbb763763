"""A broker process that can be stopped or killed, and started again where it was."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.bench import BROKER_NEIGHBOURS, Server
from tests.interop.ours import bolide_broker
from tests.support.ports import free_port


class RestartingBroker:
    """Runs in its `async with` block, on one port and with one set of files for all its lives."""

    def __init__(self, name: str, directory: Path, name_server: str, **properties: object) -> None:
        self.name = name
        self.log: list[str] = []
        """What it said in its lives that are over."""
        self._directory = directory / name
        self._name_server = name_server
        self._properties = {
            "brokerName": name,
            "listenPort": free_port(BROKER_NEIGHBOURS),
            "mappedFileSizeCommitLog": 16 * 2**20,
            **properties,
        }
        self._stack = ExitStack()
        self.server: Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._stack.close)

    async def start(self) -> None:
        """Returns when it serves."""
        made = bolide_broker(self._directory, self._name_server, **self._properties)
        self.server = await asyncio.to_thread(self._stack.enter_context, made)

    async def stop(self) -> None:
        """SIGTERM; it must end by itself, and well."""
        assert self.server is not None
        await asyncio.to_thread(self.server.stop)
        self.server.process.wait()
        self.log += self.server.process.output

    async def kill(self) -> None:
        """SIGKILL."""
        assert self.server is not None
        await asyncio.to_thread(self.server.kill)
        self.log += self.server.process.output
