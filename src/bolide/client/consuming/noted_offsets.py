"""Offsets that a user noted and that are yet to be committed."""

import asyncio
import logging
from collections.abc import Iterable

from bolide.client.consuming.offsets import OffsetStore
from bolide.client.rare_log import RareLog
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)


class NotedOffsets:
    """Writes each offset once: the queue may be another member's by now, and he further on."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._noted: dict[MessageQueue, int] = {}
        self._unwritten: set[MessageQueue] = set()
        self._writing = asyncio.Lock()  # an older offset must not be written after a newer one
        self._rare = RareLog(log)

    def note(self, queue: MessageQueue, queue_offset: int) -> None:
        self._noted[queue] = queue_offset
        self._unwritten.add(queue)

    def find(self, queue: MessageQueue) -> int | None:
        return self._noted.get(queue)

    def all(self) -> dict[MessageQueue, int]:
        return dict(self._noted)

    async def write(self) -> None:
        """Commit what was noted since it was committed last. Raises what the store raises."""
        async with self._writing:
            changed = {queue: self._noted[queue] for queue in self._unwritten}
            if not changed:
                return
            await self._store.write(changed, wait=True)
            same = {queue for queue, offset in changed.items() if self._noted.get(queue) == offset}
            self._unwritten -= same

    async def try_write(self) -> None:
        """As `write`, but a failure is only said: the next write makes up for it."""
        try:
            await self.write()
        except Exception as exc:  # noqa: BLE001  the store may be the user's
            self._rare.warning("write", "offsets cannot be committed now: %r", exc)
        else:
            self._rare.forget("write")

    async def let_go(self, queues: Iterable[MessageQueue]) -> None:
        """Commit a last time what was noted of queues that are another's now, and forget them."""
        lost = self._noted.keys() & set(queues)
        if lost & self._unwritten:
            await self.try_write()
        for queue in lost:
            self._noted.pop(queue, None)
        self._unwritten -= lost
