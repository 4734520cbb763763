"""Leases on queues for orderly consumption, by consumer group (`RebalanceLockManager`)."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bolide.protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)

LOCK_TIME = 60.0
"""Seconds of a lease; a lock that its owner does not renew expires after them."""


class _Lock(NamedTuple):
    client_id: str
    renewed: float


class QueueLocks:
    """Locks by group and queue, in memory only: after a restart clients lock again.

    Leases use the monotonic clock, so setting the wall clock releases no lock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Acquire or renew locks for a client; returns the queues that it holds."""
        now = self._now()
        locks = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            held = locks.get(queue)
            if held is None or held.client_id == client_id or _is_expired(held, now):
                locks[queue] = _Lock(client_id, now)
                granted.append(queue)
                if held is not None and held.client_id != client_id:
                    log.info(
                        "lock of %s in group %s moves from %s to %s",
                        queue, group, held.client_id, client_id,
                    )  # fmt: skip
        if not locks:
            del self._groups[group]
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the locks that the client holds; locks of other clients stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def is_locked(self, group: str, queue: MessageQueue) -> bool:
        held = self._groups.get(group, {}).get(queue)
        return held is not None and not _is_expired(held, self._now())

    def holds_any(self, group: str) -> bool:
        """Whether any queue of the group is locked."""
        now = self._now()
        return any(not _is_expired(held, now) for held in self._groups.get(group, {}).values())

    def expire(self) -> None:
        """Remove expired locks of groups that are no longer in use."""
        now = self._now()
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if _is_expired(held, now)]:
                del locks[queue]
            if not locks:
                del self._groups[group]


def _is_expired(held: _Lock, now: float) -> bool:
    return now - held.renewed > LOCK_TIME
