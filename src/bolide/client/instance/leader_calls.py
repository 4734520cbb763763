"""Calls to the master of a queue's broker, which for a logical queue is that of its leader."""

from collections.abc import Collection
from typing import Protocol

from bolide.client.instance.routes import Routes
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.refusals import NotLeaderForQueue
from bolide.remoting.client import Fields


class Caller(Protocol):
    """The part of `ClientInstance` that these calls use."""

    @property
    def routes(self) -> Routes: ...

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: Header | Fields | None = None,
        *,
        body: bytes = b"",
        within: float | None = None,
        accept: Collection[int] = (),
    ) -> Frame: ...


async def call_leader(
    caller: Caller,
    queue: MessageQueue,
    code: RequestCode,
    header: Header | Fields | None = None,
    *,
    within: float | None = None,
    accept: Collection[int] = (),
) -> Frame:
    """Call the master of a queue; if another broker leads the queue now, call that one.

    Raises:
        BrokerUnknown: the route does not contain the broker.
        RemotingError, Refusal: as in `RemotingClient.call`.
    """
    routes = caller.routes
    address = await routes.require_master_of(queue)
    try:
        return await caller.call(address, code, header, within=within, accept=accept)
    except NotLeaderForQueue:
        await routes.refresh(queue.topic)
        again = await routes.require_master_of(queue)
        if again == address:
            raise
    return await caller.call(again, code, header, within=within, accept=accept)
