"""What replicas copy besides the log: offsets, as the files hold them (`AdminBrokerProcessor`)."""

import asyncio
from collections.abc import Callable

from bolide.broker.offsets import OffsetTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.tables import CONSUMER_OFFSETS, DELAY_OFFSETS, DelayOffsets


class ReplicaHandlers:
    """Tells replicas how far groups and delay levels are; they keep the text as it is."""

    def __init__(self, *, offsets: OffsetTable, delay_offsets: Callable[[], DelayOffsets]) -> None:
        self._offsets = offsets
        self._delay_offsets = delay_offsets

    @handles(NoHeader, RequestCode.GET_ALL_CONSUMER_OFFSET)
    async def consumer_offsets(self, request: Request[NoHeader]) -> Reply:
        body = await asyncio.to_thread(CONSUMER_OFFSETS.encode, self._offsets.table)
        return Reply(body=body)

    @handles(NoHeader, RequestCode.GET_ALL_DELAY_OFFSET)
    def delay_offsets(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=DELAY_OFFSETS.encode(self._delay_offsets()))
