"""Request dispatch: handlers, gates, deferred replies and error responses."""

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable
from typing import Any

import pytest

from bolide.broker.gate import Gate, Hooks
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame, FrameFlag, HeaderEncoding
from bolide.protocol.framing import FrameDecoder
from bolide.protocol.header import Header, NoHeader
from bolide.protocol.refusals import NoPermission, TopicNotFound
from bolide.remoting.calls import ConnectionLimits
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import DeferredReply, Dispatcher, Reply, Request, RequestHook, handles
from bolide.remoting.latencies import MAX_OUTCOMES, OTHER, RpcOutcome
from tests.support.aio import on_loop
from tests.support.transport import FakeTransport
from tests.support.wire import request_bytes, response_of

SYNC, ASYNC = RequestCode.GET_KV_CONFIG, RequestCode.PUT_KV_CONFIG
REFUSED, BROKEN, EMPTY = (
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
)
HANDLED = [SYNC, ASYNC, REFUSED, BROKEN, EMPTY]


class NumberHeader(Header, frozen=True):
    number: int = 0


class Handlers:
    @handles(NumberHeader, SYNC)
    def at_once(self, request: Request[NumberHeader]) -> Reply:
        return Reply(header=request.header, body=request.body, remark="done")

    @handles(NumberHeader, ASYNC)
    async def later(self, request: Request[NumberHeader]) -> Reply:
        await asyncio.sleep(0)
        return Reply(header=request.header)

    @handles(NoHeader, REFUSED)
    def refuse(self, request: Request[NoHeader]) -> Reply:
        raise TopicNotFound("no such topic")

    @handles(NoHeader, BROKEN, refused_with=NumberHeader(7))
    async def fail(self, request: Request[NoHeader]) -> Reply:
        raise ZeroDivisionError("oops")

    @handles(NoHeader, EMPTY)
    def forget_to_reply(self, request: Request[NoHeader]) -> None: ...


class Notes:
    """A gate that records its calls, and refuses or fails on demand."""

    def __init__(self, *, refuses: bool = False, fails: bool = False) -> None:
        self.seen: list[object] = []
        self._refuses = refuses
        self._fails = fails

    def before(self, peer: str, request: Frame) -> None:
        self.seen.append(request.code)
        if self._refuses:
            raise NoPermission("signature is wrong")

    def after(self, peer: str, request: Frame, response: Frame) -> None:
        self.seen.append(response.code)
        if self._fails:
            raise LookupError("the hook is broken")


def dispatched(frame: Frame, *hooks: RequestHook) -> bytes | None:
    """Dispatch a frame and await its response if it is asynchronous."""
    dispatcher = Dispatcher(Handlers(), gate=Gate(Hooks(request=hooks)))
    outcome = dispatcher.dispatch(frame, Connection(dispatcher, ConnectionLimits()))
    return asyncio.run(_wait(outcome)) if isinstance(outcome, Awaitable) else outcome


async def _wait(outcome: Awaitable[bytes | None]) -> bytes | None:
    return await outcome


def answered(frame: Frame, *hooks: RequestHook) -> Frame:
    data = dispatched(frame, *hooks)
    assert data is not None
    return response_of(data)


@pytest.mark.parametrize("encoding", list(HeaderEncoding), ids=lambda e: e.name)
@pytest.mark.parametrize("code", [SYNC, ASYNC])
def test_a_reply_is_addressed_to_its_request(code: int, encoding: HeaderEncoding) -> None:
    frame = Frame(code=code, fields={"number": "7"}, opaque=42, encoding=encoding)
    response = answered(frame)
    assert response.code == ResponseCode.SUCCESS
    assert (response.opaque, response.flag, response.encoding) == (42, 1, encoding)
    assert NumberHeader.from_fields(response.fields) == NumberHeader(7)


def test_body_and_remark_are_in_the_response() -> None:
    response = answered(Frame(code=SYNC, body=b"body"))
    assert (response.body, response.remark) == (b"body", "done")


def test_a_plain_handler_answers_at_once_and_an_async_one_later() -> None:
    dispatcher = Dispatcher(Handlers())
    connection = Connection(dispatcher, ConnectionLimits())
    assert isinstance(dispatcher.dispatch(Frame(code=SYNC), connection), bytes)
    later = dispatcher.dispatch(Frame(code=ASYNC), connection)
    assert isinstance(later, Awaitable)
    assert asyncio.run(_wait(later)) is not None


def test_a_refusal_becomes_its_code_and_remark() -> None:
    response = answered(Frame(code=REFUSED))
    assert (response.code, response.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no such topic")


def test_a_failure_carries_the_fields_that_the_handler_declares_for_refusals() -> None:
    assert answered(Frame(code=BROKEN)).fields == {"number": "7"}
    assert not answered(Frame(code=REFUSED)).fields


def test_a_failure_becomes_a_system_error_and_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    response = answered(Frame(code=BROKEN))
    assert (response.code, response.remark) == (1, "ZeroDivisionError: oops")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


def test_codes_that_nobody_handles_do_not_fill_the_table_of_latencies() -> None:
    dispatcher = Dispatcher(Handlers())
    connection = Connection(dispatcher, ConnectionLimits())
    for code in range(20_000, 20_000 + 2 * MAX_OUTCOMES):
        dispatcher.dispatch(Frame(code=code), connection)
    dispatcher.dispatch(Frame(code=SYNC), connection)
    found = {outcome: sum(each.counts) for outcome, each in dispatcher.latencies.snapshot()}
    assert found == {OTHER: 2 * MAX_OUTCOMES, RpcOutcome(SYNC, ResponseCode.SUCCESS): 1}


class Big:
    """An object that supports weak references."""


class Hoarders:
    """Handlers that fail while they hold a large object."""

    def __init__(self) -> None:
        self.held: list[weakref.ref[Big]] = []

    @handles(NoHeader, SYNC)
    def fail(self, request: Request[NoHeader]) -> Reply:
        big = Big()
        self.held.append(weakref.ref(big))
        raise TopicNotFound("no such topic")

    @handles(NoHeader, ASYNC)
    async def fail_later(self, request: Request[NoHeader]) -> Reply:
        await asyncio.sleep(0)
        big = Big()
        self.held.append(weakref.ref(big))
        raise TopicNotFound("no such topic")


@pytest.mark.parametrize("code", [SYNC, ASYNC])
def test_what_a_failed_request_held_is_let_go_at_once(code: int) -> None:
    hoarders = Hoarders()
    dispatcher = Dispatcher(hoarders)
    gc.disable()
    try:
        outcome = dispatcher.dispatch(Frame(code=code), Connection(dispatcher, ConnectionLimits()))
        if isinstance(outcome, Awaitable):
            asyncio.run(_wait(outcome))
        assert [held() for held in hoarders.held] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize("code", [SYNC, ASYNC])
def test_a_field_that_does_not_parse_is_named(code: int) -> None:
    response = answered(Frame(code=code, fields={"number": "seven"}))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "number" in (response.remark or "")


def test_an_unknown_code_is_refused_in_rocketmqs_words() -> None:
    response = answered(Frame(code=999))
    assert (response.code, response.remark) == (3, " request type 999 not supported")


@pytest.mark.parametrize("code", [*HANDLED, 999])
def test_a_one_way_request_is_never_answered(code: int) -> None:
    assert dispatched(Frame(code=code, flag=FrameFlag.ONE_WAY)) is None


def test_a_handler_that_replies_nothing_is_a_system_error() -> None:
    assert answered(Frame(code=EMPTY)).code == ResponseCode.SYSTEM_ERROR


def test_two_handlers_for_one_code_are_refused() -> None:
    with pytest.raises(ValueError, match="has two handlers"):
        Dispatcher(Handlers(), Handlers())


def test_the_codes_that_are_handled_can_be_listed() -> None:
    assert Dispatcher(Handlers()).routes.keys() == set(HANDLED)
    assert Dispatcher().routes == {}


@pytest.mark.parametrize("code", HANDLED)
def test_hooks_see_every_request_before_and_after(code: int) -> None:
    first, second = Notes(), Notes()
    response = answered(Frame(code=code), first, second)
    assert first.seen == second.seen
    assert first.seen[0] == code
    assert first.seen[-1] == response.code or code == EMPTY


@pytest.mark.parametrize("code", [SYNC, ASYNC])
def test_a_hook_that_refuses_keeps_the_request_from_its_handler(code: int) -> None:
    hook, never = Notes(refuses=True), Notes()
    response = answered(Frame(code=code), hook, never)
    assert (response.code, response.remark) == (16, "signature is wrong")
    assert hook.seen == [code, 16]
    assert never.seen == [16]


@pytest.mark.parametrize("code", [SYNC, ASYNC, REFUSED])
def test_a_hook_that_fails_afterwards_does_not_leave_the_client_waiting(code: int) -> None:
    response = answered(Frame(code=code, opaque=5), Notes(fails=True))
    assert (response.code, response.opaque) == (ResponseCode.SYSTEM_ERROR, 5)
    assert "the hook is broken" in (response.remark or "")


# Answers that come later


class Promiser:
    """Handlers that return deferred replies, which the test completes."""

    def __init__(self, *hooks: RequestHook) -> None:
        self.promises: list[DeferredReply] = []
        self.next: DeferredReply | None = None
        self.connection = Connection(
            Dispatcher(self, gate=Gate(Hooks(request=hooks))), ConnectionLimits()
        )
        self.transport = FakeTransport()
        self.transport.attach(self.connection)

    @handles(NumberHeader, SYNC)
    def promise(self, request: Request[NumberHeader]) -> DeferredReply:
        later, self.next = self.next or DeferredReply(), None
        self.promises.append(later)
        return later

    def ask(self, opaque: int = 1, **given: Any) -> DeferredReply:
        self.connection.data_received(request_bytes(SYNC, opaque=opaque, **given))
        return self.promises[-1]

    @property
    def answers(self) -> list[Frame]:
        self.connection.close()  # discards unwritten data
        return FrameDecoder().feed(b"".join(self.transport.writes))


@pytest.mark.parametrize("encoding", list(HeaderEncoding), ids=lambda e: e.name)
@on_loop
async def test_a_promise_is_kept_with_a_response_to_its_request(encoding: HeaderEncoding) -> None:
    promiser = Promiser()
    first = promiser.ask(1, encoding=encoding)
    second = promiser.ask(2, encoding=encoding)
    second.answer(Reply(code=19, remark="nothing"))
    first.answer(Reply(header=NumberHeader(7), body=b"body"))
    late, early = promiser.answers
    assert (late.opaque, late.code, late.remark, late.flag) == (2, 19, "nothing", 1)
    assert (early.opaque, early.body, early.encoding) == (1, b"body", encoding)
    assert NumberHeader.from_fields(early.fields) == NumberHeader(7)


@on_loop
async def test_a_promise_may_be_kept_before_it_is_returned() -> None:
    promiser = Promiser()
    promiser.next = DeferredReply()
    promiser.next.answer(Reply(body=b"at once"))
    promiser.ask(5)
    (answer,) = promiser.answers
    assert (answer.opaque, answer.body) == (5, b"at once")


@on_loop
async def test_a_promise_that_fails_becomes_a_refusal_or_an_error() -> None:
    promiser = Promiser()
    promiser.ask(1).fail(TopicNotFound("no such topic"))
    promiser.ask(2).fail(ZeroDivisionError("oops"))
    refused, failed = promiser.answers
    assert (refused.code, refused.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no such topic")
    assert (failed.code, failed.remark) == (1, "ZeroDivisionError: oops")


@on_loop
async def test_a_promise_for_a_one_way_request_is_kept_in_silence() -> None:
    promiser = Promiser()
    promiser.ask(1, one_way=True).answer(Reply())
    assert promiser.connection.is_idle
    assert promiser.answers == []


@on_loop
async def test_hooks_see_what_was_promised_when_it_comes() -> None:
    hook = Notes()
    promiser = Promiser(hook)
    later = promiser.ask()
    assert hook.seen == [SYNC]
    later.answer(Reply(code=19))
    assert hook.seen == [SYNC, 19]


@on_loop
async def test_who_keeps_a_promise_hears_when_the_connection_is_lost() -> None:
    promiser = Promiser()
    lost: list[str] = []
    watched, plain, kept = promiser.ask(1), promiser.ask(2), promiser.ask(3)
    watched.on_lost = lambda: lost.append("watched")
    kept.on_lost = lambda: lost.append("kept")
    kept.answer(Reply())
    promiser.connection.abort()
    await promiser.connection.wait_closed()
    assert lost == ["watched"]
    assert (watched.is_lost, plain.is_lost, kept.is_lost) == (True, True, False)
    writes = len(promiser.transport.writes)
    plain.answer(Reply())
    watched.fail(ZeroDivisionError())
    assert len(promiser.transport.writes) == writes


@on_loop
async def test_who_keeps_a_promise_hears_once_when_a_peer_reads_again() -> None:
    promiser = Promiser()
    heard: list[str] = []
    watched, plain, kept = promiser.ask(1), promiser.ask(2), promiser.ask(3)
    for later, name in ((watched, "watched"), (kept, "kept")):
        later.on_room = lambda name=name: heard.append(name)
    assert not DeferredReply().is_blocked
    assert not watched.is_blocked
    kept.answer(Reply(body=bytes(2 * 1024 * 1024)))
    assert (watched.is_blocked, plain.is_blocked) == (True, True)
    promiser.transport.drain()
    promiser.connection.pause_writing()
    promiser.connection.resume_writing()
    assert heard == ["watched"]
    assert not watched.is_blocked
