"""What a consumer says of popped messages: that they are done, or that it needs more time."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

from bolide.client.consuming.popping import receipt_of
from bolide.client.errors import PopNotSupported
from bolide.client.instance import ClientInstance
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
from bolide.protocol.refusals import RequestCodeNotSupported

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
