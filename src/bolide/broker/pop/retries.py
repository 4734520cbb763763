"""The retry topics of POP: what was popped and not acknowledged in time goes there.

Their names are made of a group and a topic, by an old rule that may give the name of another
group's own retry topic, or by a new one that cannot. Where the old one would, it is not used.
"""

import random
from collections.abc import Callable

from bolide.broker.config import BrokerConfig
from bolide.broker.groups import GroupTable
from bolide.broker.topics import TopicTable
from bolide.config import ConfigCell
from bolide.model.names import (
    MAX_SYSTEM_TOPIC_LENGTH,
    group_of_retry_topic,
    is_retry_topic,
    pop_retry_topics,
)
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.hosts import unpack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.pop_info import Receipt, normal_topic
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import (
    MAX_PROPERTIES_SIZE,
    Place,
    Record,
    RecordDraft,
    encode_record,
    place_record,
)
from bolide.protocol.refusals import InvalidParameter

_QUEUES = 1


class Retries:
    """Finds and makes retry topics.

    Args:
        has_more: whether a queue of a group has something to pop.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        *,
        topics: TopicTable,
        groups: GroupTable,
        has_more: Callable[[str, str, int], bool],
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._groups = groups
        self._has_more = has_more

    def check(self, group: str, topic: str) -> None:
        """Raises InvalidParameter if no retry topic can be named after the two."""
        longest = max(len(name.encode()) for name in pop_retry_topics(group, topic))
        if longest > MAX_SYSTEM_TOPIC_LENGTH:
            raise InvalidParameter(
                f"group {group} cannot pop {topic}: the name of their retry topic would have"
                f" {longest} characters, at most {MAX_SYSTEM_TOPIC_LENGTH} are allowed"
            )

    def readable(self, group: str, topic: str) -> list[TopicConfig]:
        """The retry topic to look at now: a response has room for one."""
        found = [
            config
            for name in self.names(group, topic)
            if (config := self._topics.find(name)) is not None
        ]
        if len(found) > 1:
            random.shuffle(found)
            found.sort(key=lambda config: not self._is_filled(group, config))
        return found[:1]

    def names(self, group: str, topic: str) -> list[str]:
        """The retry topics of a group for a topic, whether they exist or not."""
        old, new = pop_retry_topics(group, topic)
        return [new] if group_of_retry_topic(old) in self._groups else [old, new]

    async def require(self, group: str, topic: str) -> str:
        """Where messages of a topic, or of its retry topic, go; made if it is not there.

        Raises:
            ServerError: it cannot be made now.
        """
        if is_retry_topic(topic):
            return topic
        names = self.names(group, topic)
        name = names[-1] if self._cell.value.enable_retry_topic_v2 else names[0]
        await self._topics.create_retry(name, _QUEUES)
        return name

    def _is_filled(self, group: str, config: TopicConfig) -> bool:
        return any(
            self._has_more(config.topic_name, group, queue_id)
            for queue_id in range(config.read_queue_nums)
        )


def retry_draft(
    record: Record, topic: str, group: str, pop_time: int, store_host: bytes
) -> RecordDraft:
    """A message on its way to the retry topic."""
    properties = record.decode_properties()
    properties.pop(PropertyName.POP_CHECKPOINT, None)
    if record.reconsume_times == 0 or PropertyName.FIRST_POP_TIME not in properties:
        properties[PropertyName.FIRST_POP_TIME] = str(pop_time)
    # Those who make it a dead letter look for these; RocketMQ leaves them out.
    whole = properties | {
        PropertyName.RETRY_TOPIC: normal_topic(record.topic, group),
        PropertyName.ORIGIN_MESSAGE_ID: properties.get(
            PropertyName.ORIGIN_MESSAGE_ID, _offset_id(record)
        ),
    }
    written = encode_properties(whole).encode()
    if len(written) > MAX_PROPERTIES_SIZE:
        written = bytes(record.properties)
    return RecordDraft(
        topic.encode(), record.body, written, 0, record.born_timestamp, record.born_host,
        store_host, record.flag, record.sys_flag, record.reconsume_times + 1,
    )  # fmt: skip


def shown(record: Record, topic: str, receipt: Receipt) -> bytes:
    """A message of a retry topic as consumers get it: under the name that they know."""
    properties = record.decode_properties()
    properties[PropertyName.POP_CHECKPOINT] = receipt.encode()
    written = encode_properties(properties).encode()
    if len(written) > MAX_PROPERTIES_SIZE:
        written = bytes(record.properties)
    draft = RecordDraft(
        topic.encode(), record.body, written, record.queue_id, record.born_timestamp,
        record.born_host, record.store_host, record.flag, record.sys_flag,
        record.reconsume_times, record.prepared_transaction_offset,
    )  # fmt: skip
    data = encode_record(draft, max_body_size=len(record.body))
    place = Place(record.queue_offset, record.physical_offset, record.store_timestamp)
    place_record(data, 0, place)
    return bytes(data)


def _offset_id(record: Record) -> str:
    return OffsetId(unpack_host(record.store_host), record.physical_offset).encode()
