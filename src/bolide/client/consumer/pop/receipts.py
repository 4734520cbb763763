"""Receipts and leases of popped messages: acknowledgement, renewal, release.

Every renewal gives a message a new receipt, and only the newest receipt is valid. Operations that
end a lease therefore wait for a renewal in flight.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from bolide.client.consumer.pop.pop_request import receipt_of
from bolide.client.consumer.pop.popped_queues import PoppedQueue
from bolide.client.consumer.pop.shared_lease import lease_of
from bolide.client.errors import PopNotSupported
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message import StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.pop import BatchAck, BatchAcks, bit_set
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.pop import (
    AckHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeReply,
)
from bolide.protocol.pop_info import Receipt, real_topic
from bolide.protocol.refusals import Refusal, RequestCodeNotSupported

BACK_OFF = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds until a retry, by the number of earlier retries; RocketMQ's POP back-off table."""

ACK_RETRY_DELAY = 1.0
"""Seconds until a failed acknowledgement or lease change is repeated."""

_ACK_TIMEOUT = 3.0
_MAX_ATTEMPTS = 3
_RELEASE_DELAY = 1.0
"""Seconds until a message released without processing is visible again."""
_MAX_CONCURRENT_CHANGES = 64

log = logging.getLogger(__name__)

Popped = tuple[PoppedQueue, StoredMessage]


def back_off(times: int) -> float:
    """Seconds until the next retry after this many retries."""
    return float(BACK_OFF[min(max(times, 0), len(BACK_OFF) - 1)])


class Receipts:
    """Acknowledges messages and changes leases at the brokers, for one group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def ack(self, messages: Sequence[StoredMessage]) -> None:
        """Acknowledge messages, with one request per broker.

        Raises:
            BolideError: a broker refused or did not answer; its messages are redelivered.
            ValueError: a message was not popped.
        """
        by_broker: dict[str, list[tuple[StoredMessage, Receipt]]] = defaultdict(list)
        for message in messages:
            receipt, lease = receipt_of(message), lease_of(message)
            if lease is not None:
                if not lease.finish(message.queue_offset):
                    continue  # acknowledged with the last message of its batch
                receipt = lease.receipt or receipt
            by_broker[receipt.broker_name].append((message, receipt))
        acks = [self._ack_at_broker(name, popped) for name, popped in by_broker.items()]
        outcomes = await asyncio.gather(*acks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def change_invisible(self, message: StoredMessage, seconds: float) -> None:
        """Set the remaining lease of a message, which gets a new receipt.

        Raises:
            NoMessage: the broker does not know the pop.
            BolideError: the broker refused or did not answer.
        """
        lease = lease_of(message)
        if lease is None:
            renewed = await self._changed(message, receipt_of(message), seconds)
        else:
            async with lease.lock:
                renewed = await self._changed(
                    message, lease.receipt or receipt_of(message), seconds
                )
                lease.receipt = renewed
        message.properties[PropertyName.POP_CHECKPOINT] = renewed.encode()

    async def _changed(self, message: StoredMessage, receipt: Receipt, seconds: float) -> Receipt:
        """Replace a receipt by one with another remaining lease."""
        header = ChangeInvisibleTimeHeader(
            consumer_group=self._group,
            topic=self._topic(message, receipt),
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.offset,
            invisible_time=int(seconds * 1000),
        )
        address = await self._address(message, receipt.broker_name)
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        reply = await self._instance.call(address, code, header)
        changed = ChangeInvisibleTimeReply.from_fields(reply.fields)
        return receipt._replace(
            start_offset=receipt.offset,
            pop_time=changed.pop_time,
            invisible_time=changed.invisible_time,
            revive_queue=changed.revive_qid,
        )

    async def _ack_at_broker(
        self, broker_name: str, popped: list[tuple[StoredMessage, Receipt]]
    ) -> None:
        address = await self._address(popped[0][0], broker_name)
        if len(popped) > 1 and await self._is_batch_acked(address, broker_name, popped):
            return
        for message, receipt in popped:
            await self._ack_one(address, message, receipt)

    async def _ack_one(self, address: str, message: StoredMessage, receipt: Receipt) -> None:
        header = AckHeader(
            consumer_group=self._group,
            topic=self._topic(message, receipt),
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.offset,
        )
        try:
            await self._instance.call(address, RequestCode.ACK_MESSAGE, header, within=_ACK_TIMEOUT)
        except RequestCodeNotSupported as exc:
            raise PopNotSupported(receipt.broker_name, address) from exc

    async def _is_batch_acked(
        self, address: str, broker_name: str, popped: Iterable[tuple[StoredMessage, Receipt]]
    ) -> bool:
        """Acknowledge all with one request; False if the broker does not support it."""
        acks = BatchAcks(broker_name=broker_name, acks=self._batches(popped))
        body, code = fastjson.encode(acks), RequestCode.BATCH_ACK_MESSAGE
        try:
            await self._instance.call(address, code, body=body, within=_ACK_TIMEOUT)
        except RequestCodeNotSupported:
            return False
        return True

    def _batches(self, popped: Iterable[tuple[StoredMessage, Receipt]]) -> list[BatchAck]:
        """One entry per pop of a queue; a bit set holds the distances from its start offset."""
        distances: dict[tuple[str, Receipt], list[int]] = defaultdict(list)
        for message, receipt in popped:
            topic = self._instance.settings.wrap(message.topic)
            pop = receipt._replace(offset=receipt.start_offset)
            distances[topic, pop].append(receipt.offset - receipt.start_offset)
        return [
            BatchAck(
                consumer_group=self._group,
                topic=topic,
                retry=pop.retry,
                start_offset=pop.start_offset,
                queue_id=pop.queue_id,
                revive_queue_id=pop.revive_queue,
                pop_time=pop.pop_time,
                invisible_time=pop.invisible_time,
                bit_set=bit_set(offsets),
            )
            for (topic, pop), offsets in distances.items()
        ]

    def _topic(self, message: StoredMessage, receipt: Receipt) -> str:
        topic = self._instance.settings.wrap(message.topic)
        return real_topic(topic, self._group, receipt.retry)

    async def _address(self, message: StoredMessage, broker_name: str) -> str:
        topic = self._instance.settings.wrap(message.topic)
        return await self._instance.routes.require_master(broker_name, topic)


class Leases:
    """Renews and ends the leases of one consumer; concurrent acknowledgements are batched."""

    def __init__(self, receipts: Receipts, seconds: float) -> None:
        self._receipts = receipts
        self._seconds = seconds
        self._to_ack: dict[str, list[Popped]] = {}  # by broker
        self._ending: set[int] = set()
        self._flushing: set[str] = set()
        self._renewals: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._change_limit = asyncio.Semaphore(_MAX_CONCURRENT_CHANGES)
        self._throttled = ThrottledLog(log)

    def begin(self, held: PoppedQueue, messages: Iterable[StoredMessage]) -> None:
        """Start the leases of popped messages, by the local clock: the broker's may differ."""
        held.lease(messages, _now() + self._seconds)

    def acknowledge(self, held: PoppedQueue, messages: Iterable[StoredMessage]) -> None:
        """Acknowledge messages in the background."""
        for message in messages:
            self._ending.add(id(message))
            broker = message.broker_name
            self._to_ack.setdefault(broker, []).append((held, message))
            if broker not in self._flushing:
                self._flushing.add(broker)
                self._spawn(self._flush(broker))

    def retry_after(self, held: PoppedQueue, message: StoredMessage, seconds: float) -> None:
        """Have a message redelivered after so many seconds."""
        self._spawn(self._retry_after(held, message, seconds))

    def renew(self, helds: Iterable[PoppedQueue]) -> None:
        """Renew leases that are half over."""
        half = _now() + self._seconds / 2
        for held in helds:
            for message in held.ending(half):
                if id(message) not in self._renewals and id(message) not in self._ending:
                    self._renewals[id(message)] = self._spawn(self._renew(held, message))

    async def give_back(self, held: PoppedQueue, messages: Sequence[StoredMessage]) -> None:
        """Make unprocessed messages visible to other members soon."""
        await asyncio.gather(*(self._retry_after(held, each, _RELEASE_DELAY) for each in messages))

    async def close(self, within: float) -> None:
        """Wait for requests in flight; messages of cancelled ones are redelivered."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _flush(self, broker: str) -> None:
        await asyncio.sleep(0)  # batch messages that finish in the same turn of the loop
        try:
            while finished := self._to_ack.pop(broker, None):
                await self._ack(finished)
        finally:
            self._flushing.discard(broker)

    async def _ack(self, finished: list[Popped]) -> None:
        messages = [message for _, message in finished]
        for message in messages:
            await self._wait_for_renewal(message)
        try:
            await self._with_retries(lambda: self._receipts.ack(messages))
        finally:
            for held, message in finished:
                held.release([message])
                self._ending.discard(id(message))

    async def _retry_after(self, held: PoppedQueue, message: StoredMessage, seconds: float) -> None:
        await self._wait_for_renewal(message)
        held.release([message])  # first, so that the lease is not renewed any more
        async with self._change_limit:
            await self._with_retries(lambda: self._receipts.change_invisible(message, seconds))

    async def _renew(self, held: PoppedQueue, message: StoredMessage) -> None:
        try:
            async with self._change_limit:
                until = _now() + self._seconds
                await self._receipts.change_invisible(message, self._seconds)
            held.extend(message, until)
        except BolideError as exc:
            self._throttled.warning(
                "renew", "the lease of a popped message cannot be renewed: %s", exc
            )
        finally:
            del self._renewals[id(message)]

    async def _wait_for_renewal(self, message: StoredMessage) -> None:
        renewal = self._renewals.get(id(message))
        if renewal is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(renewal)

    async def _with_retries(self, request: Callable[[], Awaitable[None]]) -> None:
        """Send a request, up to three times; if all fail, the message is redelivered too early."""
        for attempt in range(_MAX_ATTEMPTS):
            try:
                await request()
            except BolideError as exc:
                text = "a request for a popped message failed: %s"
                self._throttled.warning("request", text, exc)
                if attempt == _MAX_ATTEMPTS - 1 or (isinstance(exc, Refusal) and not exc.retriable):
                    return
                await asyncio.sleep(ACK_RETRY_DELAY)
            else:
                return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="bolide-pop-lease")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _now() -> float:
    return asyncio.get_running_loop().time()
