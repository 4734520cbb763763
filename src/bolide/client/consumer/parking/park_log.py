"""Append to and read the park queue of a source queue."""

import logging
import time
from typing import NamedTuple

from bolide import properties as properties_files
from bolide.client.consumer.parking.records import (
    PARK_QUEUES,
    ParkRecord,
    park_queue,
    read_record,
    send_header,
)
from bolide.client.consumer.pull.pull_request import Pull, Puller, PullStatus
from bolide.client.consumer.send_back import STORED, compressed
from bolide.client.consumer.subscription import Filter
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import TBW102
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.send import SendReply
from bolide.protocol.headers.topics import CreateTopicHeader
from bolide.protocol.refusals import InvalidParameter, TopicNotFound

log = logging.getLogger(__name__)

_READ_BATCH = 32
_CALL_GRACE = 15.0
_HOUR = 3600.0
_DEFAULT_RETENTION = 72 * _HOUR


class CarriedRecord(NamedTuple):
    """A record and the message that carries it."""

    record: ParkRecord
    carrier: StoredMessage


class ParkLogRead(NamedTuple):
    """The records of one read, and the offset to continue at."""

    records: list[CarriedRecord]
    next_park_offset: int


class ParkLog:
    """The records of a park queue, including those about other source queues."""

    def __init__(self, instance: ClientInstance, group: str, source: MessageQueue) -> None:
        self.queue = park_queue(group, source)
        self._instance = instance
        self._source = source
        self._puller = Puller(instance, group)
        self._filter = Filter.of(self.queue.topic, "*", int(time.time() * 1000))

    async def append(self, record: ParkRecord, body: bytes = b"", flag: int = 0) -> int:
        """Append a record and return its park offset; creates the topic if necessary.

        Raises:
            BolideError: the record may or may not have been written.
        """
        try:
            return await self._send(record, body, flag)
        except (TopicNotFound, InvalidParameter):  # InvalidParameter: the topic has too few queues
            await self._create_topic()
        return await self._send(record, body, flag)

    async def read(
        self, park_offset: int, *, wait: float = 0.0, count: int = _READ_BATCH
    ) -> ParkLogRead:
        """Read records from this offset on; wait up to `wait` seconds if there is none.

        Raises:
            BolideError: the queue cannot be read now.
        """
        result = await self._puller.pull(
            Pull(
                queue=self.queue,
                filter=self._filter,
                queue_offset=park_offset,
                max_count=count,
                suspend=wait,
                within=wait + _CALL_GRACE,
                with_subscription=True,
            )
        )
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.info(
                "%s has no offset %d; continuing at %d", self.queue, park_offset, result.next_offset
            )
        pairs = ((read_record(message), message) for message in result.messages)
        return ParkLogRead(
            [CarriedRecord(r, m) for r, m in pairs if r is not None], result.next_offset
        )

    async def find(self, park_offset: int) -> CarriedRecord | None:
        """The record at an offset; None if it was deleted. Raises BolideError if unknown."""
        read = await self.read(park_offset, count=1)
        for each in read.records:
            if each.carrier.queue_offset == park_offset:
                return each
        if park_offset < await self.first_park_offset():
            return None
        # A replica that lags, or a broker that rebuilds its queues, returns the record later.
        raise BolideError(f"{self.queue} does not return its record at {park_offset} now; retrying")

    async def first_park_offset(self) -> int:
        return await self._instance.lookups.min_offset(self.queue)

    async def retention(self) -> float:
        """The broker's retention in seconds; the default if it cannot be determined."""
        try:
            reply = await self._instance.call(await self._master(), RequestCode.GET_BROKER_CONFIG)
            hours = properties_files.parse(reply.body.decode()).get("fileReservedTime", "")
        except (BolideError, ValueError) as exc:
            log.info("the retention of %s cannot be determined: %s", self.queue.broker_name, exc)
            return _DEFAULT_RETENTION
        return int(hours) * _HOUR if hours.isdecimal() else _DEFAULT_RETENTION

    async def _send(self, record: ParkRecord, body: bytes, flag: int) -> int:
        properties, body = record.carried(body)
        body, sys_flag = await compressed(body)
        header = send_header(properties, self.queue, sys_flag=sys_flag, flag=flag)
        reply = await self._instance.call(
            await self._master(),
            RequestCode.SEND_MESSAGE_V2,
            header.to_short(),
            body=body,
            accept=STORED,
        )
        return SendReply.from_fields(reply.fields).queue_offset

    async def _create_topic(self) -> None:
        header = CreateTopicHeader(
            topic=self.queue.topic,
            default_topic=TBW102,
            read_queue_nums=PARK_QUEUES,
            write_queue_nums=PARK_QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        await self._instance.call(await self._master(), code, header)

    async def _master(self) -> str:
        # Use the route of the source topic: that of a new park topic may not be registered yet.
        name, topic = self._source.broker_name, self._source.topic
        return await self._instance.routes.require_master(name, topic)
