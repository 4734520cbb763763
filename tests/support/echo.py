"""A small server for tests of remoting: it echoes, waits, refuses and calls back."""

import asyncio

from bolide.broker.gate import Gate, Hooks
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import Header, NoHeader
from bolide.protocol.refusals import SystemBusy, refusal_for
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher, Reply, Request, RequestHook, handles
from bolide.remoting.server import RemotingServer, ServerConfig

ECHO = RequestCode.SEND_MESSAGE
"""Answered at once with the body of the request."""
WAIT = RequestCode.PULL_MESSAGE
"""Answered with the body of the request when `release` is set."""
REFUSE = RequestCode.QUERY_MESSAGE
CALL_BACK = RequestCode.HEART_BEAT
"""The server asks the client ECHO on the same connection and answers with what it got."""
BLOW_UP = RequestCode.UNREGISTER_CLIENT


class EchoHeader(Header, frozen=True):
    word: str | None = None


class Echo:
    """Handlers; what arrived can be waited for in `seen`."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)
        self.seen: asyncio.Queue[tuple[str | None, bytes]] = asyncio.Queue()
        self.lost: asyncio.Queue[Connection] = asyncio.Queue()

    @handles(EchoHeader, ECHO)
    def echo(self, request: Request[EchoHeader]) -> Reply:
        self.seen.put_nowait((request.header.word, request.body))
        return Reply(header=request.header, body=request.body)

    @handles(NoHeader, WAIT)
    async def wait(self, request: Request[NoHeader]) -> Reply:
        self.waiting.release()
        await self.release.wait()
        return Reply(body=request.body)

    @handles(NoHeader, REFUSE)
    def refuse(self, request: Request[NoHeader]) -> Reply:
        raise SystemBusy("come back later")

    @handles(NoHeader, CALL_BACK)
    async def call_back(self, request: Request[NoHeader]) -> Reply:
        frame = request.frame
        question = type(frame)(code=ECHO, body=frame.body + b"?", encoding=frame.encoding)
        answer = await request.connection.call(question, 5.0)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal_for(answer.code, answer.remark)
        return Reply(body=answer.body)

    @handles(NoHeader, BLOW_UP)
    def blow_up(self, request: Request[NoHeader]) -> Reply:
        raise KeyError("nobody expected this")

    def server(
        self, config: ServerConfig | None = None, *, hooks: tuple[RequestHook, ...] = ()
    ) -> RemotingServer:
        return RemotingServer(
            config or ServerConfig(host="127.0.0.1"),
            Dispatcher(self, gate=Gate(Hooks(request=hooks))),
            on_close=self.lost.put_nowait,
        )
