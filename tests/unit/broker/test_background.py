"""Background tasks owned by the broker."""

import asyncio

import pytest

from bolide.broker.background import Background
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import NoHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.calls import ConnectionLimits
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import DeferredReply, Dispatcher, Reply, Request, handles
from tests.support.aio import on_loop
from tests.support.transport import FakeTransport
from tests.support.wire import request_bytes, response_of


class Bench:
    """A connection with one request; the test supplies the background work that answers it."""

    def __init__(self) -> None:
        self.background = Background()
        self.deferred = DeferredReply()
        self.connection = Connection(Dispatcher(self), ConnectionLimits())
        self.transport = FakeTransport()
        self.transport.attach(self.connection)

    @handles(NoHeader, RequestCode.PULL_MESSAGE)
    def answer(self, request: Request[NoHeader]) -> DeferredReply:
        return self.deferred

    def ask(self) -> None:
        self.connection.data_received(request_bytes(RequestCode.PULL_MESSAGE, opaque=5))

    async def answered(self) -> Frame:
        for _ in range(5):
            await asyncio.sleep(0)
        return response_of(self.transport.writes[-1])


async def _reply() -> Reply:
    await asyncio.sleep(0)
    return Reply(body=b"done")


async def _refuse() -> Reply:
    raise TopicNotFound("no such topic")


async def _wait_for_ever(ended: asyncio.Event) -> Reply:
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()
    raise AssertionError


@on_loop
async def test_a_deferred_reply_is_the_result_of_the_work() -> None:
    bench = Bench()
    bench.deferred = bench.background.defer(_reply())
    bench.ask()
    assert (await bench.answered()).body == b"done"
    assert bench.connection.is_idle


@on_loop
async def test_an_exception_of_the_work_becomes_the_response() -> None:
    bench = Bench()
    bench.ask()
    bench.background.complete(bench.deferred, _refuse())
    assert (await bench.answered()).code == ResponseCode.TOPIC_NOT_EXIST


@on_loop
async def test_work_for_a_connection_that_is_lost_is_cancelled() -> None:
    bench, ended = Bench(), asyncio.Event()
    bench.ask()
    bench.background.complete(bench.deferred, _wait_for_ever(ended))
    await asyncio.sleep(0)
    bench.connection.abort()
    async with asyncio.timeout(1):
        await ended.wait()


@on_loop
async def test_at_the_end_all_work_is_cancelled() -> None:
    background, ended = Background(), asyncio.Event()
    background.defer(_wait_for_ever(ended))
    await asyncio.sleep(0)
    await background.stop()
    assert ended.is_set()


@pytest.mark.filterwarnings("error")
@on_loop
async def test_work_that_is_cancelled_before_its_first_step_is_closed() -> None:
    background, ended = Background(), asyncio.Event()
    work = _wait_for_ever(ended)
    background.defer(work)
    await background.stop()
    assert not ended.is_set()
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await work
