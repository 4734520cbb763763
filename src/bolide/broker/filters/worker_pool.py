"""Processes that run filter functions: started when first needed, killed when they hang."""

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
    MAX_ANSWER,
    Answer,
    Judge,
    Load,
    Question,
    decode_answer,
    encode,
)
from bolide.errors import BolideError
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)

_WORKER = "bolide.broker.filters.function_worker"
_ENDING = "the broker is ending"
_START_SECONDS = 30.0
_TURN_SECONDS = 5.0
_GRACE = 2.0
"""Seconds later than the broker a worker ends itself: for when the broker is no more."""


class WorkerFailed(BolideError):
    """A worker gave no answer: it took too long, or died. Nothing is known of the messages."""


class WorkersBusy(BolideError):
    """There was no worker to ask: others kept them all."""


@dataclass(frozen=True, slots=True)
class Code:
    """A function as workers get it: another `version` is another function."""

    name: str
    source: str
    version: int


class WorkerPool:
    """At most so many workers, each with one question at a time; belongs to one event loop.

    Args:
        count: how many.
        seconds: what a batch of messages may take.
        memory: bytes that a function may use.
    """

    def __init__(self, count: int, *, seconds: float, memory: int) -> None:
        self._seconds = seconds
        self._memory = memory
        self._count = count
        self._turns = asyncio.Semaphore(count)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._stopped = False

    async def judge(self, code: Code, records: list[bytes]) -> Answer:
        """Which records a function accepts.

        Raises:
            WorkerFailed: nobody knows; the worker is replaced.
            WorkersBusy: nobody was asked.
        """
        return await uninterrupted(self._ask(code, records))

    async def check(self, code: Code) -> str:
        """Why a source makes no function; empty if it does.

        Raises:
            WorkerFailed: it took too long to say.
            WorkersBusy: nobody was asked.
        """
        return (await uninterrupted(self._ask(code, None))).error

    async def stop(self) -> None:
        """End all workers; those who wait for one are told that it failed."""
        self._stopped = True
        self._idle.clear()
        await asyncio.gather(*(worker.kill() for worker in list(self._all)))

    async def _ask(self, code: Code, records: list[bytes] | None) -> Answer:
        await self._turn()
        try:
            return await self._ask_one(code, records)
        finally:
            self._turns.release()

    async def _turn(self) -> None:
        """Not for ever: whoever waits holds messages in memory, and their client asks again."""
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._turns.acquire()
        except TimeoutError as exc:
            raise WorkersBusy(
                f"filter functions keep their {self._count} processes busy: raise filterServerNums"
            ) from exc

    async def _ask_one(self, code: Code, records: list[bytes] | None) -> Answer:
        worker = await self._take()
        try:
            async with asyncio.timeout(self._seconds):
                answer = await worker.run(code, records)
        except (TimeoutError, OSError, EOFError, msgspec.MsgspecError) as exc:
            await self._replace(worker)
            raise WorkerFailed(self._reason(code, exc)) from exc
        self._idle.append(worker)
        return answer

    async def _take(self) -> "_Worker":
        while self._idle:
            worker = self._idle.pop()
            if worker.process.returncode is None:
                return worker
            self._all.discard(worker)
        if self._stopped:
            raise WorkerFailed(_ENDING)
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
        if self._stopped:  # while it was being started
            await self._replace(worker)
            raise WorkerFailed(_ENDING)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await worker.answer()
        except (TimeoutError, OSError, EOFError, msgspec.MsgspecError) as exc:
            await self._replace(worker)
            raise WorkerFailed("the process for filter functions does not start") from exc
        return worker

    async def _replace(self, worker: "_Worker") -> None:
        """The next question starts another."""
        self._all.discard(worker)
        await worker.kill()

    def _reason(self, code: Code, exc: Exception) -> str:
        if isinstance(exc, TimeoutError):
            return f"filter function {code.name!r} took more than {self._seconds:g} s for a batch"
        return f"filter function {code.name!r} ended its process, out of memory perhaps"


@dataclass(eq=False, slots=True)
class _Worker:
    process: Process
    loaded: dict[str, int] = field(default_factory=dict)

    async def run(self, code: Code, records: list[bytes] | None) -> Answer:
        if self.loaded.get(code.name) != code.version or records is None:
            self.loaded.pop(code.name, None)
            answer = await self._ask(Load(code.name, code.source))
            if answer.error or records is None:
                return answer
            self.loaded[code.name] = code.version
        return await self._ask(Judge(code.name, records))

    async def _ask(self, question: Question) -> Answer:
        assert self.process.stdin is not None
        self.process.stdin.write(encode(question))
        await self.process.stdin.drain()
        return await self.answer()

    async def answer(self) -> Answer:
        """Raises EOFError, OSError or MsgspecError."""
        assert self.process.stdout is not None
        (size,) = LENGTH.unpack(await self.process.stdout.readexactly(LENGTH.size))
        if size > MAX_ANSWER:
            raise EOFError
        return decode_answer(await self.process.stdout.readexactly(size))

    async def kill(self) -> None:
        """With all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        # What it forked may keep the pipes open for a while, or for ever.
        self.process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
