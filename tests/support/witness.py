"""A well-behaved client that must notice nothing of what others do to its server."""

import asyncio
import math
import sys
from types import TracebackType
from typing import Self

from tests.support.aio import PATIENCE

_PATIENCE = 0.25
_LONGEST = 1.0


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
        self._told = asyncio.Event()

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
        await self.resume()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
            await asyncio.gather(self._reading, self._process.wait())
            return
        await self._tell("end")
        await self._reading
        assert await self._process.wait() == 0, "it says why on stderr"
        passed_over = math.ceil(len(self.latencies) / 100) + 1
        slowest = sorted(self.latencies)
        assert slowest[-1 - passed_over] < _PATIENCE, slowest[-5:]
        assert slowest[-1] < _LONGEST, slowest[-5:]

    async def pause(self) -> None:
        """Let it rest; returns when its last call is over."""
        await self._tell("pause")

    async def resume(self) -> None:
        await self._tell("look")

    async def _tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._told.clear()
        self._process.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(PATIENCE):
            await self._told.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line == b"done\n":
                self._told.set()
            else:
                self.latencies.append(float(line))
        self._told.set()  # it is gone
