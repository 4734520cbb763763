"""Calls to the master of a queue's broker, which for a logical queue is that of its leader.

`call_group` falls back to the slaves of that broker, for queries that they can answer too.
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from bolide.client.errors import BrokerUnknown
from bolide.client.instance.routes import Routes
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.refusals import NotLeaderForQueue
from bolide.remoting.client import Fields
from bolide.remoting.errors import RemotingError


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

    def broker_failed(self, address: str, topic: str) -> None: ...


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

    A master that does not answer is suspected.

    Raises:
        BrokerUnknown: the route does not contain the broker.
        RemotingError, Refusal: as in `RemotingClient.call`.
    """
    routes = caller.routes
    address = await routes.require_master_of(queue)
    try:
        return await caller.call(address, code, header, within=within, accept=accept)
    except RemotingError:
        caller.broker_failed(address, queue.topic)
        raise
    except NotLeaderForQueue:
        await routes.refresh(queue.topic)
        again = await routes.require_master_of(queue)
        if again == address:
            raise
    return await caller.call(again, code, header, within=within, accept=accept)


class GroupReply(NamedTuple):
    """The reply of one member of a broker group."""

    frame: Frame
    from_slave: bool


async def call_group(
    caller: Caller,
    queue: MessageQueue,
    code: RequestCode,
    header: Header | Fields | None = None,
    *,
    accept: Collection[int] = (),
) -> GroupReply:
    """Call the master of a queue, or its slaves in turn if the master is away.

    Raises:
        BrokerUnknown, RemotingError: no member answered; the failure is that of the master.
        Refusal: the first member that answered refused.
    """
    failure: BolideError
    if (master := caller.routes.master_of(queue)) is not None and master in caller.routes.suspects:
        try:
            return await _call_slaves(caller, queue, code, header, accept=accept)
        except (RemotingError, BrokerUnknown):
            return GroupReply(await call_leader(caller, queue, code, header, accept=accept), False)
    try:
        return GroupReply(await call_leader(caller, queue, code, header, accept=accept), False)
    except (RemotingError, BrokerUnknown) as exc:
        failure = exc
    try:
        return await _call_slaves(caller, queue, code, header, accept=accept)
    except (RemotingError, BrokerUnknown):
        raise failure from None


async def _call_slaves(
    caller: Caller,
    queue: MessageQueue,
    code: RequestCode,
    header: Header | Fields | None,
    *,
    accept: Collection[int],
) -> GroupReply:
    """Call the slaves of a queue's broker until one answers. Raises like `call_group`."""
    failure: BolideError = BrokerUnknown(caller.routes.broker_of(queue))
    for address in caller.routes.slaves_of(queue):
        try:
            return GroupReply(await caller.call(address, code, header, accept=accept), True)
        except RemotingError as exc:
            failure = exc
    raise failure
