"""Calls that wait for their response."""

import asyncio
import math

import pytest

from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import encode_frame
from bolide.protocol.headers.send import SendReply
from bolide.remoting.calls import PendingCalls, PlainAnswer
from bolide.remoting.errors import ConnectionLost
from tests.support.aio import on_loop


async def waiting(calls: PendingCalls, within: float = math.inf) -> tuple[int, asyncio.Task[Frame]]:
    """A call that has begun to wait."""
    opaque = calls.number()
    deadline = asyncio.get_running_loop().time() + within
    task = asyncio.create_task(calls.wait(opaque, deadline))
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


# Deadlines


@on_loop
async def test_a_call_ends_at_its_deadline_and_never_before() -> None:
    calls, loop = PendingCalls("peer"), asyncio.get_running_loop()
    ended: dict[float, float] = {}

    async def wait(within: float) -> None:
        began = loop.time()
        with pytest.raises(TimeoutError):
            await calls.wait(calls.number(), began + within)
        ended[within] = loop.time() - began

    await asyncio.gather(*map(wait, [0.05, 0.02, 0.08, 0.021]))
    assert list(ended) == [0.02, 0.021, 0.05, 0.08]
    assert all(within <= took + 1e-6 for within, took in ended.items())
    assert len(calls) == 0


@on_loop
async def test_a_later_deadline_does_not_wait_for_an_earlier_one_that_was_met() -> None:
    calls = PendingCalls("peer")
    opaque, first = await waiting(calls, within=0.01)
    _, second = await waiting(calls, within=0.03)
    _, third = await waiting(calls)
    calls.resolve(Frame(opaque=opaque))
    assert (await first).opaque == opaque
    with pytest.raises(TimeoutError):
        await second
    assert not third.done()
    calls.fail_all()
    with pytest.raises(ConnectionLost):
        await third


@on_loop
async def test_one_timer_is_enough_for_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, timers = PendingCalls("peer"), list[float]()
    arm_timer = calls._arm_timer

    def noted(deadline: float) -> None:
        timers.append(deadline)
        arm_timer(deadline)

    monkeypatch.setattr(calls, "_arm_timer", noted)
    began = [await waiting(calls, within=60 + number) for number in range(50)]
    assert len(timers) == 1
    for opaque, task in began:
        calls.resolve(Frame(opaque=opaque))
        await task
    calls.fail_all()


# Plain sends


def answer(opaque: int, **fields: str) -> bytes:
    header = SendReply(msg_id="0" * 32, queue_id=1, queue_offset=2)
    said = {**header.to_fields(), **fields}
    return encode_frame(Frame(flag=FrameFlag.RESPONSE, opaque=opaque, fields=said))


def plain(calls: PendingCalls) -> tuple[int, PlainAnswer]:
    opaque = calls.number()
    return opaque, calls.begin_plain(opaque, asyncio.get_running_loop().time() + 60)


@on_loop
async def test_usual_answers_reach_plain_sends_straight_from_the_bytes() -> None:
    calls = PendingCalls("peer")
    first, second = plain(calls), plain(calls)
    data = b"before" + answer(second[0]) + answer(first[0]) + b"after"
    assert calls.resolve_answers(data, 6) == len(data) - 5
    for opaque, said in (first, second):
        assert await said == (opaque, "0" * 32, 1, 2, None, "DefaultRegion", True)
    assert len(calls) == 0
    calls.fail_all()


@on_loop
async def test_answers_to_others_are_left_to_the_ordinary_way() -> None:
    calls = PendingCalls("peer")
    opaque, task = await waiting(calls)
    known, said = plain(calls)
    data = answer(known) + answer(opaque)
    assert calls.resolve_answers(data, 0) == len(answer(known))
    assert calls.resolve_answers(data, len(answer(known))) == len(answer(known))
    assert not task.done()
    assert calls.resolve(Frame(opaque=opaque))
    await asyncio.gather(task, said)
    calls.fail_all()


@on_loop
async def test_an_unusual_answer_reaches_a_plain_send_as_a_frame() -> None:
    calls = PendingCalls("peer")
    opaque, said = plain(calls)
    data = answer(opaque, recallHandle="h")
    assert calls.resolve_answers(data, 0) == 0
    response = Frame(opaque=opaque, body=b"unusual")
    assert calls.resolve(response)
    assert await said is response
    calls.end(opaque)
    assert len(calls) == 0
    calls.fail_all()


@on_loop
async def test_an_answer_that_comes_twice_or_to_one_who_gave_up_is_passed_over() -> None:
    calls = PendingCalls("peer")
    opaque, said = plain(calls)
    twice = answer(opaque) * 2
    assert calls.resolve_answers(twice, 0) in {len(twice), len(twice) // 2}
    assert (await said)[0] == opaque  # type: ignore[index]
    gone, cancelled = plain(calls)
    cancelled.cancel()
    assert calls.resolve_answers(answer(gone), 0) == len(answer(gone))
    assert len(calls) == 0
    calls.fail_all()


@on_loop
async def test_plain_sends_are_late_and_lost_as_other_calls_are() -> None:
    calls, loop = PendingCalls("peer"), asyncio.get_running_loop()
    late = calls.begin_plain(calls.number(), loop.time() + 0.01)
    _, lost = plain(calls)
    with pytest.raises(TimeoutError):
        await late
    calls.fail_all()
    with pytest.raises(ConnectionLost):
        await lost
