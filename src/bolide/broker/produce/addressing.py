"""The topic and queue in which a new message is stored, and the properties the broker adds."""

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from zlib import crc32

from msgspec import field

from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers.timetable import TIMER_PROPERTIES, Timetable, timer_draft
from bolide.model.message import Host, TransactionType, transaction_type, with_transaction_type
from bolide.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from bolide.model.properties import INT_DIGITS, INTERPRETED_PREFIXES, PropertyName, parse_number
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.header import Header
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.hosts import pack_host
from bolide.protocol.property_string import PAIR_END, decode_properties, encode_properties
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import NoPermission
from bolide.remoting.address import split_address

_NOT_DELIVERED = (TransactionType.PREPARED, TransactionType.ROLLBACK)
_HOLDING_TOPICS = frozenset({HALF_TOPIC.encode(), SCHEDULE_TOPIC.encode(), TIMER_TOPIC.encode()})
_SET_BY_BROKER = (PropertyName.REGION, PropertyName.TRACE_ON, PropertyName.CLUSTER)
_UNKNOWN_HOST = Host("0.0.0.0", 0)  # noqa: S104  a placeholder


def address(
    draft: RecordDraft, properties: dict[str, str], max_level: int, timetable: Timetable
) -> RecordDraft:
    """Encode the properties; redirect a message with a delay level or a delivery time.

    Raises:
        MessageIllegal, ServerError: the delivery time is invalid or not accepted.
    """
    level = delay_level(properties)
    if level > 0:
        return delayed(draft, properties, min(level, max_level))
    due = timetable.due(properties)
    if due is not None:
        return timer_draft(draft, properties, due)
    return draft._replace(properties=encode_properties(properties).encode())


def kept_in(draft: RecordDraft) -> tuple[str, int] | None:
    """The system topic and queue that hold a message until it is delivered; None for others."""
    return (draft.topic.decode(), draft.queue_id) if draft.topic in _HOLDING_TOPICS else None


def any_queue(header: SendHeader, topic: TopicConfig) -> int:
    """The queue of a message whose sender names none.

    Raises:
        NoPermission: the topic has no queues to send to.
    """
    queues = write_queues(topic)
    key = decode_properties(header.properties).get(PropertyName.DEDUP_KEY)
    if key is not None:  # a duplicate must meet the window of the same queue
        return crc32(key.encode()) % queues
    return random.randrange(queues)  # noqa: S311


def write_queues(topic: TopicConfig) -> int:
    """The number of queues that messages may be sent to. Raises NoPermission if there are none."""
    if topic.write_queue_nums < 1:
        raise NoPermission(f"topic {topic.topic_name!r} has no queues to send to: give it some")
    return topic.write_queue_nums


def delay_level(properties: dict[str, str]) -> int:
    """The delay level of a message; 0 if it is missing or not a number."""
    text = properties.get(PropertyName.DELAY_LEVEL, "")
    level = parse_number(text.removeprefix("-"), INT_DIGITS)
    return 0 if level is None else int(text)


def delayed(draft: RecordDraft, properties: dict[str, str], level: int) -> RecordDraft:
    """The draft for the queue of a delay level; its properties name the real topic and queue."""
    kept = {name: text for name, text in properties.items() if name not in TIMER_PROPERTIES}
    kept[PropertyName.DELAY_LEVEL] = str(level)
    kept[PropertyName.REAL_TOPIC] = draft.topic.decode()
    kept[PropertyName.REAL_QUEUE_ID] = str(draft.queue_id)
    return draft._replace(
        topic=SCHEDULE_TOPIC.encode(),
        queue_id=level - 1,
        properties=encode_properties(kept).encode(),
    )


def is_half(draft: RecordDraft, properties: dict[str, str]) -> bool:
    """Whether a message is a half message."""
    return _is_prepared(properties) and not _is_retry(draft, properties)


def without_transaction(draft: RecordDraft, properties: dict[str, str]) -> RecordDraft:
    """Clear the transaction flags of a retry; other messages must not have any.

    A stored message with such flags would never be delivered.

    Raises:
        NoPermission: the message is transactional and not a half message that is sent singly.
    """
    if not _is_prepared(properties) and transaction_type(draft.sys_flag) not in _NOT_DELIVERED:
        return draft
    if _is_retry(draft, properties):
        plain = with_transaction_type(draft.sys_flag, TransactionType.NONE)
        return draft._replace(sys_flag=plain)
    raise NoPermission(
        "a transactional message must be sent singly, with property TRAN_MSG=true: this one is in"
        " a batch, or has the sysFlag of a transaction without that property"
    )


def _is_prepared(properties: dict[str, str]) -> bool:
    return properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() == "true"


def _is_retry(draft: RecordDraft, properties: dict[str, str]) -> bool:
    """Clients before 4.6.1 leave transaction flags on messages for their retry topic."""
    return draft.reconsume_times > 0 and delay_level(properties) > 0


class SendReplyFields(Header, frozen=True, kw_only=True):
    """Fields of every answer to a send, also of refusals: clients read them unconditionally."""

    region: str = field(name="MSG_REGION")
    trace_on: bool = field(name="TRACE_ON")


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """Properties that the broker adds to every message; rebuilt when settings change."""

    answer: SendReplyFields
    properties: dict[str, str]
    suffix: str
    """`properties` as a property string."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        answer = SendReplyFields(region=config.region_id, trace_on=config.trace_on)
        texts = (config.region_id, "true" if config.trace_on else "false")
        added = dict(zip(_SET_BY_BROKER, (*texts, config.broker_cluster_name), strict=True))
        return cls(answer, added, encode_properties(added))

    def add_to(self, properties: str) -> str:
        """Append to a property string that has none of the added properties yet."""
        separator = "" if not properties or properties.endswith(PAIR_END) else PAIR_END
        return f"{properties}{separator}{self.suffix}"


_INTERPRETED = re.compile("\x02(?:" + "|".join(map(re.escape, INTERPRETED_PREFIXES)) + ")")


def is_stored_as_is(properties: str) -> bool:
    """Whether the broker interprets none of these properties, so that the string is not changed."""
    return not _INTERPRETED.search(f"\x02{properties}")


@lru_cache(maxsize=8192)
def packed_peer(peer: str) -> bytes:
    """Pack a connection's `host:port`; zeros for a connection without an IP address."""
    try:
        ip, port = split_address(peer)
        return pack_host(Host(ip.partition("%")[0], port))
    except ValueError:
        return pack_host(_UNKNOWN_HOST)
