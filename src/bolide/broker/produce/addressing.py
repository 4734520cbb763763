"""Where a new message is stored first, and what the broker adds to every message it takes."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from msgspec import field

from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers.timetable import TIMER_PROPERTIES, Timetable, timer_draft
from bolide.model.message import Host, TransactionType, transaction_type, with_transaction_type
from bolide.model.names import SCHEDULE_TOPIC
from bolide.model.properties import INTERPRETED_PREFIXES, PropertyName
from bolide.protocol.header import Header
from bolide.protocol.hosts import pack_host
from bolide.protocol.property_string import PAIR_END, encode_properties
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import NoPermission
from bolide.remoting.address import split_address

_MOST_DIGITS = 9
_NOT_DELIVERED = (TransactionType.PREPARED, TransactionType.ROLLBACK)


def address(
    draft: RecordDraft, properties: dict[str, str], max_level: int, timetable: Timetable
) -> RecordDraft:
    """The draft with its properties written, sent to wait if it has a delay level or a time.

    Raises:
        MessageIllegal, ServerError: it asks for a time that the broker does not take.
    """
    level = delay_level(properties)
    if level > 0:
        return delayed(draft, properties, min(level, max_level))
    due = timetable.due(properties)
    if due is not None:
        return timer_draft(draft, properties, due)
    return draft._replace(properties=encode_properties(properties).encode())


def delay_level(properties: dict[str, str]) -> int:
    """The level a message asks for; 0 for none and for what is no number."""
    text = properties.get(PropertyName.DELAY_LEVEL, "")
    plain = text.removeprefix("-")
    if not (plain.isascii() and plain.isdigit() and len(plain) <= _MOST_DIGITS):
        return 0
    return int(text)


def delayed(draft: RecordDraft, properties: dict[str, str], level: int) -> RecordDraft:
    """The draft as it waits in the queue of its level; its properties say where it belongs."""
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
    """Whether a message is sent in a transaction."""
    return _says_half(properties) and not _is_tried_again(draft, properties)


def without_transaction(draft: RecordDraft, properties: dict[str, str]) -> RecordDraft:
    """The draft as a plain message; half messages and their ends would never be delivered.

    Raises:
        NoPermission: it is of a transaction, and cannot be.
    """
    if not _says_half(properties) and transaction_type(draft.sys_flag) not in _NOT_DELIVERED:
        return draft
    if _is_tried_again(draft, properties):
        plain = with_transaction_type(draft.sys_flag, TransactionType.NONE)
        return draft._replace(sys_flag=plain)
    raise NoPermission(
        "a message is sent in a transaction by itself, with property TRAN_MSG=true: this one is in"
        " a batch, or has the sysFlag of a transaction without that property"
    )


def _says_half(properties: dict[str, str]) -> bool:
    return properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() == "true"


def _is_tried_again(draft: RecordDraft, properties: dict[str, str]) -> bool:
    """Clients before 4.6.1 leave the marks on a message they send to their retry topic."""
    return draft.reconsume_times > 0 and delay_level(properties) > 0


_SET_BY_BROKER = (PropertyName.REGION, PropertyName.TRACE_ON, PropertyName.CLUSTER)


class SendReplyFields(Header, frozen=True, kw_only=True):
    """What stands in every answer to a send, refusals too: clients read it without a check."""

    region: str = field(name="MSG_REGION")
    trace_on: bool = field(name="TRACE_ON")


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """The marks of a broker; made anew when its settings change."""

    answer: SendReplyFields
    properties: dict[str, str]
    suffix: str
    """The same as a property string."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        answer = SendReplyFields(region=config.region_id, trace_on=config.trace_on)
        texts = (config.region_id, "true" if config.trace_on else "false")
        marks = dict(zip(_SET_BY_BROKER, (*texts, config.broker_cluster_name), strict=True))
        return cls(answer, marks, encode_properties(marks))

    def add_to(self, properties: str) -> str:
        """The property string with the marks behind it; it has none of them yet."""
        joint = "" if not properties or properties.endswith(PAIR_END) else PAIR_END
        return f"{properties}{joint}{self.suffix}"


_NOWHERE = Host("0.0.0.0", 0)  # noqa: S104  an address that is none


_INTERPRETED = re.compile("\x02(?:" + "|".join(map(re.escape, INTERPRETED_PREFIXES)) + ")")


def is_stored_as_is(properties: str) -> bool:
    """Whether the broker interprets none of these properties, so that the string is not changed."""
    return not _INTERPRETED.search(f"\x02{properties}")


@lru_cache(maxsize=8192)
def packed_peer(peer: str) -> bytes:
    """The packed form of a connection's `host:port`; zeros for one that has none."""
    try:
        ip, port = split_address(peer)
        return pack_host(Host(ip.partition("%")[0], port))
    except ValueError:
        return pack_host(_NOWHERE)
