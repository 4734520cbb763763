"""Locks of queues at the brokers, for ordered consumption, and their renewal."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.group.offsets import OffsetStore
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.locks import LockReply, LockRequest
from bolide.protocol.codes import RequestCode

log = logging.getLogger(__name__)


class QueueLocks:
    """Asks for one client of one group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._rare = ThrottledLog(log)
        self._granted: dict[MessageQueue, float] = {}  # and on which connection, see `_line`

    def holds(self, queue: MessageQueue) -> bool:
        """Whether the lock was granted on the connection that there is now.

        A broker that restarted has forgotten its locks, and may have given them to others.
        """
        line = self._line(queue)
        return line is not None and self._granted.get(queue) == line

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Whether each lock was granted; a queue whose broker gave no answer is not among them."""
        brokers = _by_broker(queues)
        answers = await asyncio.gather(*map(self._lock, brokers.values()))
        return {queue: granted for answer in answers for queue, granted in answer.items()}

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """A lock that cannot be given back runs out by itself."""
        await asyncio.gather(*map(self._unlock, _by_broker(queues).values()))

    async def _lock(self, queues: list[MessageQueue]) -> dict[MessageQueue, bool]:
        try:
            address = await self._master(queues[0])
            reply = await self._instance.call(
                address, RequestCode.LOCK_BATCH_MQ, body=self._body(queues)
            )
            granted = set(fastjson.decode(reply.body, LockReply).locked)
        except BolideError as exc:
            broker = queues[0].broker_name
            self._rare.warning(broker, "group %s: no locks at %s: %s", self._group, broker, exc)
            return {}
        for queue in granted.intersection(queues):
            if (line := self._line(queue)) is not None:
                self._granted[queue] = line
        return {queue: queue in granted for queue in queues}

    async def _unlock(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self._granted.pop(queue, None)
        try:
            address = await self._master(queues[0])
            body = self._body(queues)
            await self._instance.call(address, RequestCode.UNLOCK_BATCH_MQ, body=body)
        except BolideError as exc:
            log.info("group %s: locks at %s stay: %s", self._group, queues[0].broker_name, exc)

    async def _master(self, queue: MessageQueue) -> str:
        return await self._instance.routes.require_master(queue.broker_name, queue.topic)

    def _line(self, queue: MessageQueue) -> float | None:
        """What tells the connection to a queue's broker from former ones; None without one."""
        remoting, address = self._instance.remoting, self._instance.routes.master(queue.broker_name)
        if address is None or not remoting.is_connected(address):
            return None
        return remoting.reconnected_at(address)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return fastjson.encode(
            LockRequest(
                consumer_group=self._group, client_id=self._instance.client_id, mq_set=queues
            )
        )


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


EVERY = 20.0


class RestartableQueues(Protocol):
    """The queues a consumer holds, as far as renewing their locks needs them; see `Holdings`."""

    def __iter__(self) -> Iterator[HeldQueue]: ...

    def restart(self, held: HeldQueue, queue_offset: int) -> None: ...


class LockKeeper:
    """Asks for all locks again every 20 seconds; a lost one stops its queue, until regained."""

    def __init__(
        self,
        locks: QueueLocks,
        offsets: OffsetStore,
        holdings: RestartableQueues,
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
