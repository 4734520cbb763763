"""Pulls that take several steps: read, have a process judge, and go on or wait for more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from bolide.broker.arrivals import Arrivals, Waiter
from bolide.broker.filters.filters import Judged
from bolide.broker.filters.functions import FilterFunctions
from bolide.remoting.dispatch import Reply
from bolide.store.reading import Found, ReadStatus

if TYPE_CHECKING:
    from bolide.broker.pulls import Pull

_LOOKED_AT = 800
"""Messages that a pull passes over before it tells its client how far it has got."""
_EMPTY = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)


class JudgedPulls:
    """Answers pulls whose messages a function judges, if they are `Judged`.

    Args:
        read: the next records of a pull, from its offset on.
        end: where the queue of a pull ends now.
        reset: the answer if an administrator moved the group meanwhile.
        reply: the answer to a pull with what was found.
    """

    def __init__(
        self,
        functions: FilterFunctions,
        arrivals: Arrivals,
        *,
        read: Callable[["Pull"], Awaitable[Found]],
        end: Callable[["Pull"], int],
        reset: Callable[["Pull"], Reply | None],
        reply: Callable[["Pull", Found], Reply],
    ) -> None:
        self._functions = functions
        self._arrivals = arrivals
        self._read = read
        self._end = end
        self._reset = reset
        self._reply = reply

    async def serve(self, pull: "Pull", seconds: float) -> Reply:
        """Raises Refusal where nobody can judge: nothing is passed over then."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            found = await self._read(pull)
            if found.status is ReadStatus.FOUND and isinstance(pull.wanted, Judged):
                await self._judge(pull, found, pull.wanted.function)
            left = deadline - loop.time()
            if not _goes_on(pull, found, left):
                return self._reply(pull, _moved(pull, found))
            pull.offset = found.next_offset
            if await self._wait(pull, left):
                deadline = loop.time()
            reset = self._reset(pull)
            if reset is not None:
                return reset

    async def _judge(self, pull: "Pull", found: Found, function: str) -> None:
        """Leave of what was found what the function accepts."""
        records = [bytes(record) for record in found.records]  # the log may go on without them
        header = pull.header
        asker = header.consumer_group, header.topic, header.queue_id
        verdicts = await self._functions.judge(function, records, asker)
        kept = [memoryview(each) for each, wanted in zip(records, verdicts, strict=True) if wanted]
        found.records, found.size = kept, sum(map(len, kept))
        found.status = ReadStatus.FOUND if kept else ReadStatus.NO_MATCHED_MESSAGE

    async def _wait(self, pull: "Pull", seconds: float) -> bool:
        """Until the queue is longer than where the pull has got to; True if the time is up.

        A broker that ends says so at once, again and again: without heed to that, pulls would go
        round and round and keep everything else from its end.
        """
        if seconds <= 0 or self._end(pull) > pull.offset:
            return False
        arrived: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def look(is_last: bool) -> bool:
            if not arrived.done():
                arrived.set_result(is_last)
            return True

        waiter = Waiter((pull.header.topic, pull.header.queue_id), look)
        self._arrivals.hold(waiter, seconds)
        try:
            return await arrived
        finally:
            self._arrivals.drop(waiter)


def _goes_on(pull: "Pull", found: Found, left: float) -> bool:
    """Whether there is nothing to tell the client yet."""
    begun = pull.header.queue_offset
    if found.status is ReadStatus.NO_MATCHED_MESSAGE:
        return found.next_offset - begun < _LOOKED_AT
    at_end = found.status is ReadStatus.OFFSET_OVERFLOW_ONE
    return left > 0 and (at_end or (found.status in _EMPTY and begun == 0))


def _moved(pull: "Pull", found: Found) -> Found:
    """The client's position moves on past what it did not want, or its lag would grow."""
    if found.status is ReadStatus.OFFSET_OVERFLOW_ONE and pull.offset > pull.header.queue_offset:
        found.status = ReadStatus.NO_MATCHED_MESSAGE
    return found
