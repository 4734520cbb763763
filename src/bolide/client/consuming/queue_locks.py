"""Locks at the brokers: only their holder consumes a queue in order."""

import asyncio
import logging
from collections.abc import Iterable

from bolide.client.instance import ClientInstance
from bolide.client.rare_log import RareLog
from bolide.errors import BolideError
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
        self._rare = RareLog(log)
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
