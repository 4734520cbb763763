"""Transactions that have not ended, listed for administrators."""

import asyncio

from bolide.broker.transactions.checking import Checking
from bolide.broker.transactions.half import Half
from bolide.broker.transactions.half_queue import HalfQueue
from bolide.model.message import Host
from bolide.model.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.transactions import OpenTransaction, Transactions
from bolide.protocol.headers.transactions import ListTransactionsHeader
from bolide.protocol.hosts import unpack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.address import format_address
from bolide.store.contract import Store
from bolide.store.reading import ReadLimits

_AT_ONCE = ReadLimits(max_count=256, max_size=4 * 1024 * 1024, max_scanned=256)
_MOST_LISTED = 1000
_MOST_READS = 100
"""For one question; the next one goes on."""


class Listing:
    """Reads pages of what is open, or was set aside and nobody took up again."""

    def __init__(self, store: Store, queue: HalfQueue, checking: Checking, host: Host) -> None:
        self._store = store
        self._queue = queue
        self._checking = checking
        self._host = host

    async def page(self, wanted: ListTransactionsHeader) -> Transactions:
        """Raises InvalidParameter."""
        if not 0 < wanted.max_num <= _MOST_LISTED:
            raise InvalidParameter(f"maxNum={wanted.max_num}: ask for 1 to {_MOST_LISTED}")
        await self._queue.loaded()
        topic = TRANS_CHECK_MAX_TIME_TOPIC if wanted.set_aside else HALF_TOPIC
        begin, end = self._store.min_offset(topic, 0), self._store.max_offset(topic, 0)
        total = end - begin if wanted.set_aside else self._queue.open.count(end)
        page = Transactions(total=total, next_begin=max(begin, wanted.begin))
        for _ in range(_MOST_READS):
            if page.next_begin >= end or len(page.transactions) == wanted.max_num:
                break
            await self._add(page, topic, wanted)
        if page.next_begin >= end:
            page.next_begin = -1
        return page

    async def _add(self, page: Transactions, topic: str, wanted: ListTransactionsHeader) -> None:
        begin = page.next_begin
        if not wanted.set_aside:
            begin = self._queue.open.next_open(begin)
        found = await asyncio.to_thread(self._store.read, topic, 0, begin, _AT_ONCE)
        for half in filter(None, map(Half.find, found.records)):
            if len(page.transactions) == wanted.max_num:
                return
            page.next_begin = half.queue_offset + 1
            if _is_asked_for(half, wanted) and await self._is_left(half):
                page.transactions.append(self._entry(half))
        page.next_begin = max(found.next_offset, begin + 1)

    async def _is_left(self, half: Half) -> bool:
        if not half.is_aside:
            return self._queue.open.is_open(half.queue_offset)
        return await self._queue.find_newest(half) == half

    def _entry(self, half: Half) -> OpenTransaction:
        record, properties = half.record, half.properties
        due = max(self._checking.rules.due(half), self._checking.next_look)
        return OpenTransaction(
            msg_id=OffsetId(self._host, record.physical_offset).encode(),
            transaction_id=half.unique_id or None,
            producer_group=half.group,
            topic=half.topic,
            queue_id=half.queue_id,
            keys=properties.get(PropertyName.KEYS),
            tags=properties.get(PropertyName.TAGS),
            born_host=format_address(unpack_host(record.born_host)),
            began=int(half.began * 1000),
            check_times=half.times,
            next_check=0 if half.is_aside else int(due * 1000),
            size=len(record.body),
            half_offset=record.queue_offset,
        )


def _is_asked_for(half: Half, wanted: ListTransactionsHeader) -> bool:
    return wanted.producer_group in (None, half.group) and wanted.topic in (None, half.topic)
