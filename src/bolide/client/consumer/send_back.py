"""Returning a message to the broker, for redelivery to its group or as a dead letter."""

import asyncio
import logging
import time

from bolide.client.errors import BrokerUnknown
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message import CompressionType, StoredMessage
from bolide.model.names import retry_topic
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.compression import compress
from bolide.protocol.headers.send import SendBackHeader, SendHeader
from bolide.protocol.property_string import encode_properties
from bolide.protocol.static_topics.addressing import is_logical

log = logging.getLogger("bolide.client.consuming.send_back")  # documented in docs/how-to/logging.md

DEFAULT_MAX_RECONSUME_TIMES = 16

_SEND_BACK_TIMEOUT = 5.0
_RESEND_TRIES = 3
_FIRST_LEVEL = 3
_DEAD_LETTER_LEVEL = -1
_COMPRESS_FROM = 4096
_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"

# The broker stored the message without the configured durability.
STORED = {
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
}


class SendBack:
    """Sends messages of one group back."""

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int) -> None:
        self._instance = instance
        self._group = group
        self._max_times = max_reconsume_times
        self._throttled = ThrottledLog(log)

    async def send(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Return a message to its broker; if that fails, send a copy to the retry topic.

        Raises:
            BolideError: both failed; the error is that of the copy.
        """
        try:
            await self._request_retry(message, delay_level)
        except BolideError as exc:
            self._throttled.warning(
                message.broker_name,
                "%s: sending %s back failed, a copy is sent to the retry topic: %s",
                self._group,
                message.message_id,
                exc,
            )
            await self.resend(message)

    async def dead_letter(self, message: StoredMessage) -> None:
        """Have the broker of a message make it a dead letter. Raises BolideError."""
        await self._request_retry(message, _DEAD_LETTER_LEVEL)

    async def resend(self, message: StoredMessage, *, dead: bool = False) -> None:
        """Send a copy to the group's retry topic.

        Args:
            message: the original.
            dead: set a retry count at which the broker moves the copy to the dead letters, and
                no delay, which 4.9 brokers would apply first.

        Raises:
            BolideError: no broker accepted the copy.
        """
        body, sys_flag = await compressed(message.body)
        topic = retry_topic(self._group)
        queues = await self._instance.routes.publish_queues(topic)
        failure: BolideError | None = None
        for attempt in range(_RESEND_TRIES):
            queue = queues[attempt % len(queues)]
            try:
                master = await self._instance.routes.require_master(queue.broker_name, topic)
                header = self._resend_header(message, queue.queue_id, sys_flag, dead=dead)
                code = RequestCode.SEND_MESSAGE_V2
                await self._instance.call(master, code, header.to_short(), body=body, accept=STORED)
            except BolideError as exc:
                failure = exc
            else:
                return
        assert failure is not None
        raise failure

    async def _request_retry(self, message: StoredMessage, delay_level: int) -> None:
        address = str(message.store_host)
        if is_logical(message.broker_name):  # the message may be at a former leader
            if self._instance.routes.name_of(address) is None:
                raise BrokerUnknown(address)
        elif message.broker_name:
            topic = self._instance.settings.wrap(message.topic)
            address = await self._instance.routes.require_master(message.broker_name, topic)
        header = SendBackHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=self._instance.settings.wrap(message.topic),
            max_reconsume_times=self._max_times,
        )
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        await self._instance.call(address, code, header, within=_SEND_BACK_TIMEOUT)

    def _resend_header(
        self, message: StoredMessage, queue_id: int, sys_flag: int, *, dead: bool
    ) -> SendHeader:
        times = max(message.reconsume_times, self._max_times) if dead else message.reconsume_times
        return SendHeader(
            producer_group=_INNER_PRODUCER,
            topic=retry_topic(self._group),
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=int(time.time() * 1000),
            flag=message.flag,
            properties=encode_properties(self._resend_properties(message, dead=dead)),
            reconsume_times=times + 1,
            unit_mode=self._instance.settings.unit_mode,
            max_reconsume_times=self._max_times,
        )

    def _resend_properties(self, message: StoredMessage, *, dead: bool) -> dict[str, str]:
        kept = dict(message.properties)
        kept.pop(PropertyName.TRANSACTION_PREPARED, None)
        kept.pop(PropertyName.POP_CHECKPOINT, None)  # a copy has no POP receipt
        kept[PropertyName.RETRY_TOPIC] = self._instance.settings.wrap(message.topic)
        kept.setdefault(PropertyName.ORIGIN_MESSAGE_ID, message.message_id)
        kept[PropertyName.DELAY_LEVEL] = str(_FIRST_LEVEL + message.reconsume_times)
        if dead:
            del kept[PropertyName.DELAY_LEVEL]
        return kept


async def compressed(body: bytes) -> tuple[bytes, int]:
    """Compress a large body and return it with its sysFlag.

    A message that arrived compressed may exceed the size limit uncompressed.
    """
    if len(body) < _COMPRESS_FROM:
        return body, 0
    kind = CompressionType.ZLIB
    return await asyncio.to_thread(compress, body, kind), kind.flags
