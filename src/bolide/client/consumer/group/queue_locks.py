"""Queue locks at the brokers, for ordered consumption, and their renewal."""

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

RENEW_INTERVAL = 20.0


_ConnectionId = tuple[str, float]
"""Address of a broker, and when the connection to it was last replaced."""


class QueueLocks:
    """The locks of one client in one group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._throttled = ThrottledLog(log)
        self._granted: dict[MessageQueue, _ConnectionId] = {}
        """The connection on which each lock was granted."""

    def holds(self, queue: MessageQueue) -> bool:
        """Whether the lock was granted on the current connection to the broker.

        A restarted broker has lost its locks and may have granted them to other members.
        """
        connection = self._connection_id(queue)
        return connection is not None and self._granted.get(queue) == connection

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Whether each lock was granted; queues of brokers that did not answer are left out."""
        brokers = self._by_broker(queues)
        answers = await asyncio.gather(*map(self._lock, brokers.values()))
        return {queue: granted for answer in answers for queue, granted in answer.items()}

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks; one whose broker does not answer expires by itself."""
        await asyncio.gather(*map(self._unlock, self._by_broker(queues).values()))

    async def _lock(self, queues: list[MessageQueue]) -> dict[MessageQueue, bool]:
        try:
            address = await self._master(queues[0])
            reply = await self._instance.call(
                address, RequestCode.LOCK_BATCH_MQ, body=self._body(queues)
            )
            granted = set(fastjson.decode(reply.body, LockReply).locked)
        except BolideError as exc:
            broker = queues[0].broker_name
            text = "group %s: no locks at %s: %s"
            self._throttled.warning(broker, text, self._group, broker, exc)
            return {}
        for queue in granted.intersection(queues):
            if (connection := self._connection_id(queue)) is not None:
                self._granted[queue] = connection
        return {queue: queue in granted for queue in queues}

    async def _unlock(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self._granted.pop(queue, None)
        try:
            address = await self._master(queues[0])
            body = self._body(queues)
            await self._instance.call(address, RequestCode.UNLOCK_BATCH_MQ, body=body)
        except BolideError as exc:
            log.info(
                "group %s: locks at %s are not released and expire: %s",
                self._group,
                queues[0].broker_name,
                exc,
            )

    async def _master(self, queue: MessageQueue) -> str:
        return await self._instance.routes.require_master_of(queue)

    def _connection_id(self, queue: MessageQueue) -> _ConnectionId | None:
        """Identifies the current connection to a queue's broker; None if not connected."""
        remoting, address = self._instance.remoting, self._instance.routes.master_of(queue)
        if address is None or not remoting.is_connected(address):
            return None
        return address, remoting.reconnected_at(address)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return fastjson.encode(
            LockRequest(
                consumer_group=self._group, client_id=self._instance.client_id, mq_set=queues
            )
        )

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(self._instance.routes.broker_of(queue), []).append(queue)
        return by_broker


class RestartableQueues(Protocol):
    """The part of `HeldQueues` that lock renewal needs."""

    def __iter__(self) -> Iterator[HeldQueue]: ...

    def restart(self, held: HeldQueue, queue_offset: int) -> None: ...


class LockRenewer:
    """Renews the locks of held queues; a queue that loses its lock stops until it is regained."""

    def __init__(
        self,
        locks: QueueLocks,
        offsets: OffsetStore,
        held_queues: RestartableQueues,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._locks = locks
        self._offsets = offsets
        self._held_queues = held_queues
        self._now = now

    async def renew(self) -> None:
        """Renew the locks of all queues that are delivered in order."""
        ordered = {held.queue: held for held in self._held_queues if held.locked_at is not None}
        for held in ordered.values():
            _forget_lost_lock(held)
        for queue, granted in (await self._locks.lock(ordered)).items():
            held = ordered[queue]
            if not granted:
                log.warning("the lock of %s belongs to another member now", queue)
                held.locked_at = 0.0
            elif held.is_locked:
                held.locked_at = self._now()
            else:
                await self._resume(held)

    async def regain(self, held: HeldQueue) -> bool:
        """Acquire a lost lock again; False if it is refused, or if the queue was restarted."""
        _forget_lost_lock(held)
        granted = (await self._locks.lock([held.queue])).get(held.queue)
        return bool(granted) and await self._resume(held)

    async def _resume(self, held: HeldQueue) -> bool:
        """Continue after a lost lock, at the offset of another member if it committed further."""
        try:
            stored = await self._offsets.read(held.queue)
        except Exception as exc:  # noqa: BLE001  the offset store may be user code
            log.warning("the offset of %s cannot be read: %r", held.queue, exc)
            return False
        held.locked_at = self._now()
        if stored is not None and stored > held.process.unfinished:
            self._held_queues.restart(held, stored)
            return False
        held.wake()
        return True


def _forget_lost_lock(held: HeldQueue) -> None:
    """A lost lock counts as held only after `_resume`: others may have consumed meanwhile."""
    if not held.is_locked:
        held.locked_at = 0.0
