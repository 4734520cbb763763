"""Keep the locks of the queues that are consumed in order."""

import logging
import time
from collections.abc import Callable

from bolide.client.consuming.held_queue import HeldQueue
from bolide.client.consuming.holdings import Holdings
from bolide.client.consuming.offsets import OffsetStore
from bolide.client.consuming.queue_locks import QueueLocks

log = logging.getLogger(__name__)

EVERY = 20.0


class LockKeeper:
    """Asks for all locks again every 20 seconds; a lost one stops its queue, until regained."""

    def __init__(
        self,
        locks: QueueLocks,
        offsets: OffsetStore,
        holdings: Holdings,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._locks = locks
        self._offsets = offsets
        self._holdings = holdings
        self._now = now

    async def renew(self) -> None:
        """Ask once for the locks of all queues that had one."""
        ordered = {held.queue: held for held in self._holdings if held.locked_at is not None}
        for held in ordered.values():
            _note_loss(held)
        for queue, granted in (await self._locks.lock(ordered)).items():
            held = ordered[queue]
            if not granted:
                log.warning("the lock of %s is another's now", queue)
                held.locked_at = 0.0
            elif held.is_locked:
                held.locked_at = self._now()
            else:
                await self._resume(held)

    async def regain(self, held: HeldQueue) -> bool:
        """Get back a lock that ran out; False if there is none, or the queue begins anew."""
        _note_loss(held)
        granted = (await self._locks.lock([held.queue])).get(held.queue)
        return bool(granted) and await self._resume(held)

    async def _resume(self, held: HeldQueue) -> bool:
        """Go on with a lock that was lost for a while, where somebody else stopped if he did."""
        try:
            stored = await self._offsets.read(held.queue)
        except Exception as exc:  # noqa: BLE001  the store of offsets may be the user's
            log.warning("the offset of %s cannot be read: %r", held.queue, exc)
            return False
        held.locked_at = self._now()
        if stored is not None and stored > held.process.unfinished:
            self._holdings.restart(held, stored)
            return False
        held.wake()
        return True


def _note_loss(held: HeldQueue) -> None:
    """A new lock alone does not bring a lost one back: somebody may have consumed meanwhile."""
    if not held.is_locked:
        held.locked_at = 0.0
