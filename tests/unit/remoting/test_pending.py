"""Calls that wait for their response."""

import asyncio

import pytest

from bolide.protocol.frame import Frame
from bolide.remoting.errors import ConnectionLost
from bolide.remoting.pending import PendingCalls
from tests.support.aio import on_loop


async def waiting(calls: PendingCalls) -> tuple[int, asyncio.Task[Frame]]:
    """A call that has begun to wait."""
    opaque = calls.number()
    task = asyncio.create_task(calls.wait(opaque))
    await asyncio.sleep(0)
    return opaque, task


@on_loop
async def test_a_response_reaches_the_call_of_its_number() -> None:
    calls = PendingCalls("peer")
    first, second = await waiting(calls), await waiting(calls)
    assert calls.resolve(Frame(opaque=second[0], body=b"second"))
    assert calls.resolve(Frame(opaque=first[0], body=b"first"))
    assert (await first[1]).body == b"first"
    assert (await second[1]).body == b"second"
    assert len(calls) == 0


@on_loop
async def test_a_response_nobody_waits_for_is_told_apart() -> None:
    calls = PendingCalls("peer")
    opaque, task = await waiting(calls)
    assert not calls.resolve(Frame(opaque=opaque + 1))
    assert calls.resolve(Frame(opaque=opaque, body=b"first"))
    assert not calls.resolve(Frame(opaque=opaque, body=b"twice"))
    assert (await task).body == b"first"
    assert not calls.resolve(Frame(opaque=opaque))


@on_loop
async def test_a_cancelled_call_is_forgotten() -> None:
    calls = PendingCalls("peer")
    opaque, task = await waiting(calls)
    assert len(calls) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(calls) == 0
    assert not calls.resolve(Frame(opaque=opaque))


@on_loop
async def test_all_calls_fail_with_the_connection_and_answered_ones_do_not() -> None:
    calls = PendingCalls("10.0.0.1:1")
    opaque, answered = await waiting(calls)
    _, lost = await waiting(calls)
    calls.resolve(Frame(opaque=opaque))
    calls.fail_all()
    calls.fail_all()
    assert (await answered).opaque == opaque
    with pytest.raises(ConnectionLost, match=r"the connection to 10\.0\.0\.1:1 was closed"):
        await lost


@on_loop
async def test_numbers_wrap_and_skip_those_that_wait() -> None:
    calls = PendingCalls("peer")
    opaque, task = await waiting(calls)
    assert opaque == 1
    calls._next = 0x7FFF_FFFE
    assert [calls.number() for _ in range(3)] == [0x7FFF_FFFF, 0, 2]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
