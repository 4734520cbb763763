"""Replies to requests: pushed to who asked, and stored beside that (`ReplyMessageProcessor`)."""

import time
from collections.abc import Callable

from msgspec import structs

from bolide.broker.background import Background
from bolide.broker.config import BrokerConfig
from bolide.broker.handlers.send import Incoming, SendHandlers
from bolide.broker.peers import packed_peer
from bolide.broker.replies import Replies
from bolide.config import ConfigCell
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.refusals import Refusal
from bolide.remoting.dispatch import Later, Reply, Request, handles

_NO_PLACE = "0"
"""Stands for the id of a reply that was not stored."""


class ReplyHandlers:
    """A reply has arrived if it was pushed, whether or not it could be stored."""

    def __init__(
        self,
        sends: SendHandlers,
        replies: Replies,
        *,
        cell: ConfigCell[BrokerConfig],
        background: Background,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sends = sends
        self._replies = replies
        self._cell = cell
        self._background = background
        self._now = now

    @handles(SendHeader, RequestCode.SEND_REPLY_MESSAGE)
    def reply(self, request: Request[SendHeader]) -> Later:
        return self._receive(request, request.header)

    @handles(NoHeader, RequestCode.SEND_REPLY_MESSAGE_V2)
    def reply_short(self, request: Request[NoHeader]) -> Later:
        return self._receive(request, SendHeader.from_short(request.frame.fields))

    def _receive(
        self, request: Request[SendHeader] | Request[NoHeader], header: SendHeader
    ) -> Later:
        peer = request.connection.peer
        incoming = Incoming(header, request.body, packed_peer(peer), peer, self._now())
        later = self._background.answer(self._take(incoming))
        later.on_lost = None  # it is passed on, whether or not its sender stays
        return later

    async def _take(self, incoming: Incoming) -> Reply:
        try:
            await self._sends.admit(incoming)
        except Refusal as exc:
            return self._sends.refuse(incoming, exc)
        failure = await self._push(incoming)
        if self._cell.value.store_reply_message_enable:
            return self._answer(incoming, failure, await self._sends.keep(incoming))
        if failure is not None:
            return self._sends.refuse(incoming, failure)
        return self._sends.conclude(incoming, self._passed_on(incoming))

    async def _push(self, incoming: Incoming) -> Refusal | None:
        try:
            await self._replies.push(incoming.header, incoming.body, incoming.peer)
        except Refusal as exc:
            return exc
        return None

    def _answer(self, incoming: Incoming, failure: Refusal | None, kept: Reply) -> Reply:
        if failure is not None:
            marks = self._sends.marks.answer
            return Reply(code=failure.code, remark=failure.remark, header=marks)
        if isinstance(kept.header, SendReply):
            return structs.replace(kept, code=ResponseCode.SUCCESS, remark=None)
        return self._passed_on(incoming)

    def _passed_on(self, incoming: Incoming) -> Reply:
        """The answer for a reply that has no place in the store."""
        marks = self._sends.marks.answer
        return Reply(
            header=SendReply(
                msg_id=_NO_PLACE,
                queue_id=max(incoming.header.queue_id, 0),
                queue_offset=0,
                region=marks.region,
                trace_on=marks.trace_on,
            )
        )
