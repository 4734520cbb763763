"""Who of a group may consume which queue in order (`RebalanceLockManager`)."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bolide.protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)

LOCK_TIME = 60.0
"""Seconds after which a lock that its owner does not renew is anybody's."""


class _Lock(NamedTuple):
    client_id: str
    taken: float


class QueueLocks:
    """Locks by group and queue, in memory only: after a restart clients ask again.

    Their time is not that of the day: a clock that is set must free no lock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Take the queues for a client, or renew them; returns those that it has now."""
        now = self._now()
        locks = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            held = locks.get(queue)
            if held is None or held.client_id == client_id or _is_over(held, now):
                locks[queue] = _Lock(client_id, now)
                granted.append(queue)
                if held is not None and held.client_id != client_id:
                    log.info("%s of %s goes from %s to %s", queue, group, held.client_id, client_id)
        if not locks:
            del self._groups[group]
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give up the queues that are the client's; others stay as they are."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def is_locked(self, group: str, queue: MessageQueue) -> bool:
        held = self._groups.get(group, {}).get(queue)
        return held is not None and not _is_over(held, self._now())

    def holds_any(self, group: str) -> bool:
        """Whether a client of the group consumes in order."""
        now = self._now()
        return any(not _is_over(held, now) for held in self._groups.get(group, {}).values())

    def expire(self) -> None:
        """Forget what is over, for groups that nobody asks for any more."""
        now = self._now()
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if _is_over(held, now)]:
                del locks[queue]
            if not locks:
                del self._groups[group]


def _is_over(held: _Lock, now: float) -> bool:
    return now - held.taken > LOCK_TIME
