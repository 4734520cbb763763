"""Receipts of popped messages: acknowledge, extend, and the leases kept while handlers run.

Every renewal gives a message another receipt, and only the newest one counts. So whatever ends a
lease waits for a renewal that is on its way.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from bolide.client.consumer.pop.pop_request import receipt_of
from bolide.client.consumer.pop.popped_queues import PoppedQueue
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
"""Seconds until a message comes again, by how often it has; as RocketMQ's consumers wait."""

_ACK_WITHIN = 3.0


def back_off(times: int) -> float:
    """How long to wait after so many retries."""
    return float(BACK_OFF[min(max(times, 0), len(BACK_OFF) - 1)])


class Receipts:
    """Tells brokers, for one group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def ack(self, messages: Sequence[StoredMessage]) -> None:
        """Say that messages are done: one request for each broker.

        Raises:
            BolideError: a broker refused or did not answer; its messages come again.
            ValueError: one was not popped.
        """
        by_broker: dict[str, list[tuple[StoredMessage, Receipt]]] = defaultdict(list)
        for message in messages:
            receipt = receipt_of(message)
            by_broker[receipt.broker_name].append((message, receipt))
        told = [self._tell(name, held) for name, held in by_broker.items()]
        outcomes = await asyncio.gather(*told, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def change_invisible(self, message: StoredMessage, seconds: float) -> None:
        """Have a message come again after so many seconds from now; it gets another receipt.

        Raises:
            NoMessage: the broker knows of no such pop.
            BolideError: it did not answer, or refused.
        """
        receipt = receipt_of(message)
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
        renewed = receipt._replace(
            start_offset=receipt.offset,
            pop_time=changed.pop_time,
            invisible_time=changed.invisible_time,
            revive_queue=changed.revive_qid,
        )
        message.properties[PropertyName.POP_CHECKPOINT] = renewed.encode()

    async def _tell(self, broker_name: str, held: list[tuple[StoredMessage, Receipt]]) -> None:
        address = await self._address(held[0][0], broker_name)
        if len(held) > 1 and await self._is_acked_at_once(address, broker_name, held):
            return
        for message, receipt in held:
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
            await self._instance.call(address, RequestCode.ACK_MESSAGE, header, within=_ACK_WITHIN)
        except RequestCodeNotSupported as exc:
            raise PopNotSupported(receipt.broker_name, address) from exc

    async def _is_acked_at_once(
        self, address: str, broker_name: str, held: Iterable[tuple[StoredMessage, Receipt]]
    ) -> bool:
        """Acknowledge all by one request, if the broker knows it: it came later than POP itself."""
        acks = BatchAcks(broker_name=broker_name, acks=self._batches(held))
        body, code = fastjson.encode(acks), RequestCode.BATCH_ACK_MESSAGE
        try:
            await self._instance.call(address, code, body=body, within=_ACK_WITHIN)
        except RequestCodeNotSupported:
            return False
        return True

    def _batches(self, held: Iterable[tuple[StoredMessage, Receipt]]) -> list[BatchAck]:
        """One for each pop of a queue: its messages differ in their distance from the start."""
        distances: dict[tuple[str, Receipt], list[int]] = defaultdict(list)
        for message, receipt in held:
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
                bit_set=bit_set(found),
            )
            for (topic, pop), found in distances.items()
        ]

    def _topic(self, message: StoredMessage, receipt: Receipt) -> str:
        topic = self._instance.settings.wrap(message.topic)
        return real_topic(topic, self._group, receipt.retry)

    async def _address(self, message: StoredMessage, broker_name: str) -> str:
        topic = self._instance.settings.wrap(message.topic)
        return await self._instance.routes.require_master(broker_name, topic)


log = logging.getLogger(__name__)

_TRIES = 3
AGAIN = 1.0
"""Seconds until a broker that did not listen is told again."""

_GIVEN_BACK = 1.0
"""Seconds until a message that was not dealt with is visible again."""

_AT_ONCE = 64

Popped = tuple[PoppedQueue, StoredMessage]
Tell = Callable[[], Awaitable[None]]


class Leases:
    """Ends and prolongs the leases of one consumer; acknowledgements of a moment go together."""

    def __init__(self, receipts: Receipts, seconds: float) -> None:
        self._receipts = receipts
        self._seconds = seconds
        self._done: dict[str, list[Popped]] = {}  # by broker
        self._ending: set[int] = set()
        self._flushing: set[str] = set()
        self._renewals: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._throttled = ThrottledLog(log)

    def begin(self, held: PoppedQueue, messages: Iterable[StoredMessage]) -> None:
        """Messages were popped just now. The clock is ours: a broker's may be another."""
        held.lease(messages, _now() + self._seconds)

    def acknowledge(self, held: PoppedQueue, messages: Iterable[StoredMessage]) -> None:
        """Have messages acknowledged."""
        for message in messages:
            self._ending.add(id(message))
            broker = message.broker_name
            self._done.setdefault(broker, []).append((held, message))
            if broker not in self._flushing:
                self._flushing.add(broker)
                self._spawn(self._flush(broker))

    def retry_after(self, held: PoppedQueue, message: StoredMessage, seconds: float) -> None:
        """Have a message come again after so many seconds."""
        self._spawn(self._retry_after(held, message, seconds))

    def renew(self, helds: Iterable[PoppedQueue]) -> None:
        """Prolong what is half over."""
        half = _now() + self._seconds / 2
        for held in helds:
            for message in held.ending(half):
                if id(message) not in self._renewals and id(message) not in self._ending:
                    self._renewals[id(message)] = self._spawn(self._renew(held, message))

    async def give_back(self, held: PoppedQueue, messages: Sequence[StoredMessage]) -> None:
        """Let others have messages soon that nobody here will deal with."""
        await asyncio.gather(*(self._retry_after(held, each, _GIVEN_BACK) for each in messages))

    async def close(self, within: float) -> None:
        """Wait for what is on its way; what is not told by then comes again."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _flush(self, broker: str) -> None:
        await asyncio.sleep(0)  # what ends in the same turn of the loop goes along
        try:
            while ended := self._done.pop(broker, None):
                await self._ack(ended)
        finally:
            self._flushing.discard(broker)

    async def _ack(self, ended: list[Popped]) -> None:
        messages = [message for _, message in ended]
        for message in messages:
            await self._renewed(message)
        try:
            await self._insist(lambda: self._receipts.ack(messages))
        finally:
            for held, message in ended:
                held.release([message])
                self._ending.discard(id(message))

    async def _retry_after(self, held: PoppedQueue, message: StoredMessage, seconds: float) -> None:
        await self._renewed(message)
        held.release([message])  # first: it is not to be prolonged any more
        async with self._places:
            await self._insist(lambda: self._receipts.change_invisible(message, seconds))

    async def _renew(self, held: PoppedQueue, message: StoredMessage) -> None:
        try:
            async with self._places:
                until = _now() + self._seconds
                await self._receipts.change_invisible(message, self._seconds)
            held.prolong(message, until)
        except BolideError as exc:
            self._throttled.warning("renew", "a popped message cannot be kept: %s", exc)
        finally:
            del self._renewals[id(message)]

    async def _renewed(self, message: StoredMessage) -> None:
        renewal = self._renewals.get(id(message))
        if renewal is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(renewal)

    async def _insist(self, tell: Tell) -> None:
        """Tell the broker, and again if that fails: then the message comes too early at worst."""
        for attempt in range(_TRIES):
            try:
                await tell()
            except BolideError as exc:
                self._throttled.warning("tell", "a broker is not told of a popped message: %s", exc)
                if attempt == _TRIES - 1 or (isinstance(exc, Refusal) and not exc.retriable):
                    return
                await asyncio.sleep(AGAIN)
            else:
                return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="bolide-pop-lease")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _now() -> float:
    return asyncio.get_running_loop().time()
