"""A well-behaved client that must notice nothing of what others do to its server."""

import asyncio
import math
import sys
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from tests.support.aio import ended

_PATIENCE = 0.25
_LONGEST = 1.0
_MOST = 40.0
"""Seconds for a command: the calls that it means are given up after 3 s each."""


class Witness:
    """Looks up a route again and again while its `async with` block runs.

    It does so in a process of its own, `looking`: what the test itself does on its event loop, and
    the garbage of all tests before it, are no fault of the server. Leaving the block fails if one
    call got no answer or took a second, or if more than one in a hundred, and one for a hiccup of
    the machine, took longer than a quarter of a second.
    """

    def __init__(self, address: str) -> None:
        self.latencies: list[float] = []
        self._address = address
        self._done: asyncio.Queue[bool] = asyncio.Queue()
        """For each command that was done True; at last False, when the process is gone."""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.looking",
            self._address,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read())
        async with AsyncExitStack() as unless_it_looks:
            unless_it_looks.push_async_callback(self._stop)
            await self.resume()
            unless_it_looks.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self._tell("end")
        finally:
            await self._stop()
        if kind is None:
            self._judge()

    async def pause(self) -> None:
        """Let it rest; returns when its last call is over."""
        await self._tell("pause")

    async def resume(self) -> None:
        await self._tell("look")

    def _judge(self) -> None:
        passed_over = math.ceil(len(self.latencies) / 100) + 1
        slowest = sorted(self.latencies)
        assert slowest[-1 - passed_over] < _PATIENCE, slowest[-5:]
        assert slowest[-1] < _LONGEST, slowest[-5:]

    async def _tell(self, command: str) -> None:
        assert self._process.stdin is not None
        if not self._reading.done():
            self._process.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(_MOST):
            assert await self._done.get(), f"the witness ended before {command!r}, see stderr"

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line == b"done\n":
                self._done.put_nowait(True)
            else:
                self.latencies.append(float(line))
        self._done.put_nowait(False)

    async def _stop(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it may have ended by itself just now
                self._process.kill()
        await self._reading
        await ended(self._process)
