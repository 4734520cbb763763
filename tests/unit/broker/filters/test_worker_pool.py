"""Worker processes for filter functions."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.broker.filters import worker_pool
from bolide.broker.filters.function_worker import LENGTH, LoadRequest, decode_reply, encode
from bolide.broker.filters.worker_pool import FunctionCode, WorkerFailed, WorkerPool, WorkersBusy
from bolide.protocol.record import encode_record
from tests.interop.processes import is_alive
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.store import draft

RECORD = bytes(encode_record(draft(body=b"hello")))


@asynccontextmanager
async def pool(count: int = 1, seconds: float = PATIENCE) -> AsyncIterator[WorkerPool]:
    workers = WorkerPool(count, seconds=seconds, memory=256 * 1024 * 1024)
    try:
        yield workers
    finally:
        await workers.stop()


def code(body: str, version: int = 1) -> FunctionCode:
    return FunctionCode("f", f"import os, time\ndef accept(message):\n    {body}", version)


@on_loop
async def test_a_worker_is_used_again_and_gets_each_version_of_a_function() -> None:
    async with pool() as workers:
        pid = await _pid(workers)
        for version, verdict in ((2, True), (3, False)):
            answer = await workers.evaluate(code(f"return {verdict}", version), [RECORD, RECORD])
            assert answer.verdicts == [verdict, verdict]
        assert await _pid(workers) == pid
        [worker] = workers._all
        os.kill(pid, signal.SIGKILL)  # while it is idle
        await until(lambda: worker.process.returncode is not None)
        answer = await workers.evaluate(code("return message.body == b'hello'", 9), [RECORD])
        assert answer.verdicts == [True]
        assert await _pid(workers) != pid


@on_loop
async def test_each_question_has_a_worker_of_its_own_up_to_their_number() -> None:
    async with pool(2) as workers:
        both = code("time.sleep(0.2); print(os.getpid()); return True")
        answers = await asyncio.gather(*(workers.evaluate(both, [RECORD]) for _ in range(4)))
        assert [answer.verdicts for answer in answers] == [[True]] * 4
        assert len(workers._all) == 2


@on_loop
async def test_those_who_wait_for_a_worker_are_told_when_the_pool_stops() -> None:
    async with pool() as workers:
        waiting = asyncio.create_task(workers.evaluate(code("time.sleep(60)"), [RECORD]))
        await until(lambda: workers._all)
        await workers.stop()
        with pytest.raises(WorkerFailed):
            await waiting
        with pytest.raises(WorkerFailed, match="ending"):
            await workers.evaluate(code("return True"), [RECORD])


def test_a_worker_ends_with_its_broker_even_in_the_middle_of_a_function() -> None:
    worker = "bolide.broker.filters.function_worker"
    command = [sys.executable, "-m", worker, "0.5", str(2**28)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
        assert idle.stdin is not None
        idle.stdin.close()  # as if the broker were killed
        assert idle.wait(PATIENCE) == 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdin is not None
        busy.stdin.write(encode(LoadRequest("f", "while True: pass")))
        busy.stdin.flush()
        assert busy.wait(PATIENCE) == -signal.SIGALRM


def test_what_functions_have_started_ends_with_the_broker_too() -> None:
    source = """
import subprocess, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
child = subprocess.Popen(["sleep", "300"])
def accept(message): return True
"""
    command = [sys.executable, "-m", "bolide.broker.filters.function_worker", "60", str(2**28)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(encode(LoadRequest("f", source)))
        worker.stdin.flush()
        for _ in ("ready", "loaded"):
            (size,) = LENGTH.unpack(worker.stdout.read(LENGTH.size))
            assert decode_reply(worker.stdout.read(size)).error == ""
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        worker.stdin.close()  # as if the broker were killed
        assert worker.wait(PATIENCE) == -signal.SIGKILL
        assert len(children) == 1
        assert not is_alive(int(children[0]))


@on_loop
async def test_whatever_a_function_raises_is_told() -> None:
    raising = (
        ("raise ValueError('\\udc80')", r"ValueError in line 3: \udc80"),
        ("raise type('Mute', (Exception,), {'__str__': None})", "Mute in line 3: no message"),
    )
    async with pool() as workers:
        for version, (body, error) in enumerate(raising):
            answer = await workers.evaluate(code(body, version), [RECORD])
            assert (answer.verdicts, answer.failed) == ([False], 1)
            assert answer.error.startswith(error)


@on_loop
async def test_a_function_that_forks_answers_once() -> None:
    async with pool() as workers:
        forks = code("os.fork(); return message.body == b'hello'")
        other = bytes(encode_record(draft(body=b"other")))
        for record, verdict in ((RECORD, True), (other, False), (RECORD, True)):
            assert (await workers.evaluate(forks, [record])).verdicts == [verdict]


@on_loop
async def test_nobody_waits_for_a_worker_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_ACQUIRE_TIMEOUT", 0.05)
    async with pool() as workers:
        maintenance = asyncio.create_task(workers.evaluate(code("time.sleep(60)"), [RECORD]))
        await until(lambda: workers._all)
        with pytest.raises(WorkersBusy, match="raise filterServerNums"):
            await workers.evaluate(code("return True"), [RECORD])
        await workers.stop()
        with pytest.raises(WorkerFailed):
            await maintenance


async def _pid(workers: WorkerPool) -> int:
    answer = await workers.evaluate(code("raise ValueError(os.getpid())"), [RECORD])
    assert (answer.verdicts, answer.failed) == ([False], 1)
    return int(answer.error.rpartition(" ")[2])
