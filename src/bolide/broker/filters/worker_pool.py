"""Worker processes for filter functions: started on first use, killed when they hang."""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from bolide.broker.filters.function_worker import (
    LENGTH,
    MAX_REPLY,
    EvaluateRequest,
    LoadRequest,
    WorkerReply,
    WorkerRequest,
    decode_reply,
    encode,
)
from bolide.errors import BolideError
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)

_WORKER = "bolide.broker.filters.function_worker"
_CLOSING = "the broker is ending"
_START_TIMEOUT = 30.0
_ACQUIRE_TIMEOUT = 5.0
_GRACE = 2.0
"""Seconds after the timeout of the broker at which a worker kills itself, in case the broker
died."""


class WorkerFailed(BolideError):
    """A worker did not reply: it timed out or died. The records were not evaluated."""


class WorkersBusy(BolideError):
    """All workers were in use."""


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """The source of a function; another `version` is another function."""

    name: str
    source: str
    version: int


class WorkerPool:
    """At most `count` workers, each with one request in flight; belongs to one event loop.

    Args:
        count: number of workers.
        seconds: time limit of a batch of records.
        memory: bytes that a function may use.
    """

    def __init__(self, count: int, *, seconds: float, memory: int) -> None:
        self._seconds = seconds
        self._memory = memory
        self._count = count
        self._free_workers = asyncio.Semaphore(count)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._stopped = False

    async def evaluate(self, code: FunctionCode, records: list[bytes]) -> WorkerReply:
        """Return which records a function accepts.

        Raises:
            WorkerFailed: the worker failed and is replaced.
            WorkersBusy: no worker became free.
        """
        return await uninterrupted(self._submit(code, records))

    async def check(self, code: FunctionCode) -> str:
        """Return why a source cannot be loaded; empty if it can.

        Raises:
            WorkerFailed: loading timed out.
            WorkersBusy: no worker became free.
        """
        return (await uninterrupted(self._submit(code, None))).error

    async def stop(self) -> None:
        """Kill all workers; requests in flight fail with WorkerFailed."""
        self._stopped = True
        self._idle.clear()
        await asyncio.gather(*(worker.kill() for worker in list(self._all)))

    async def _submit(self, code: FunctionCode, records: list[bytes] | None) -> WorkerReply:
        await self._acquire()
        try:
            return await self._run(code, records)
        finally:
            self._free_workers.release()

    async def _acquire(self) -> None:
        """Wait for a free worker, but not long: the caller holds messages in memory, and its
        client retries."""
        try:
            async with asyncio.timeout(_ACQUIRE_TIMEOUT):
                await self._free_workers.acquire()
        except TimeoutError as exc:
            raise WorkersBusy(
                f"filter functions keep their {self._count} processes busy: raise filterServerNums"
            ) from exc

    async def _run(self, code: FunctionCode, records: list[bytes] | None) -> WorkerReply:
        worker = await self._checkout()
        try:
            async with asyncio.timeout(self._seconds):
                reply = await worker.run(code, records)
        except (TimeoutError, OSError, EOFError, msgspec.MsgspecError) as exc:
            await self._replace(worker)
            raise WorkerFailed(self._reason(code, exc)) from exc
        self._idle.append(worker)
        return reply

    async def _checkout(self) -> "_Worker":
        while self._idle:
            worker = self._idle.pop()
            if worker.process.returncode is None:
                return worker
            self._all.discard(worker)
        if self._stopped:
            raise WorkerFailed(_CLOSING)
        return await self._start()

    async def _start(self) -> "_Worker":
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _WORKER, str(self._seconds + _GRACE), str(self._memory),
                stdin=PIPE, stdout=PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as exc:
            raise WorkerFailed(f"no process for filter functions can be started: {exc}") from exc
        worker = _Worker(process)
        self._all.add(worker)
        if self._stopped:  # stopped during the start
            await self._replace(worker)
            raise WorkerFailed(_CLOSING)
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                await worker.read_reply()
        except (TimeoutError, OSError, EOFError, msgspec.MsgspecError) as exc:
            await self._replace(worker)
            raise WorkerFailed("the process for filter functions does not start") from exc
        return worker

    async def _replace(self, worker: "_Worker") -> None:
        """Kill a worker; the next request starts another."""
        self._all.discard(worker)
        await worker.kill()

    def _reason(self, code: FunctionCode, exc: Exception) -> str:
        if isinstance(exc, TimeoutError):
            return f"filter function {code.name!r} took more than {self._seconds:g} s for a batch"
        return f"filter function {code.name!r} ended its process, out of memory perhaps"


@dataclass(eq=False, slots=True)
class _Worker:
    process: Process
    loaded: dict[str, int] = field(default_factory=dict)

    async def run(self, code: FunctionCode, records: list[bytes] | None) -> WorkerReply:
        if self.loaded.get(code.name) != code.version or records is None:
            self.loaded.pop(code.name, None)
            reply = await self._request(LoadRequest(code.name, code.source))
            if reply.error or records is None:
                return reply
            self.loaded[code.name] = code.version
        return await self._request(EvaluateRequest(code.name, records))

    async def _request(self, request: WorkerRequest) -> WorkerReply:
        assert self.process.stdin is not None
        self.process.stdin.write(encode(request))
        await self.process.stdin.drain()
        return await self.read_reply()

    async def read_reply(self) -> WorkerReply:
        """Raises EOFError, OSError or MsgspecError."""
        assert self.process.stdout is not None
        (size,) = LENGTH.unpack(await self.process.stdout.readexactly(LENGTH.size))
        if size > MAX_REPLY:
            raise EOFError
        return decode_reply(await self.process.stdout.readexactly(size))

    async def kill(self) -> None:
        """Kill the worker and all processes it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        # Processes it forked may keep the pipes open indefinitely.
        self.process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
