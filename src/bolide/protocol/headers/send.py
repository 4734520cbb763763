"""Headers of sends, replies to requests, send-backs and recalls."""

from collections.abc import Mapping
from typing import Self

from msgspec import field

from bolide.protocol.header import Header, Int, Long

_SHORT_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}
_LONG_NAMES = {long: short for short, long in _SHORT_NAMES.items()}


class SendHeader(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE and SEND_REPLY_MESSAGE; with short names, the V2 codes and the batch.

    A negative queue id lets the broker choose. `broker_name` may be that of a static topic. Clients
    that know their topics leave out what creating one needs.
    """

    producer_group: str = ""
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: Int = 0
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    batch: bool = False
    broker_name: str | None = field(name="bname", default=None)

    @classmethod
    def from_short(cls, fields: Mapping[str, str] | None) -> Self:
        """As `from_fields`, for the one-letter names of the V2 codes."""
        given = fields or {}
        return cls.from_fields(
            {long: given[short] for short, long in _SHORT_NAMES.items() if short in given}
        )

    @staticmethod
    def short_topic(fields: Mapping[str, str] | None) -> str:
        """The topic in the fields of a V2 code, without a check of the others."""
        return (fields or {}).get("b", "")

    def to_short(self) -> dict[str, str]:
        """As `to_fields`, with the one-letter names."""
        return {_LONG_NAMES[long]: value for long, value in self.to_fields().items()}


class SendReply(Header, frozen=True, kw_only=True):
    """Answer to every send. Clients read the two upper-case fields without a check."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    repeats: Int | None = None  # Bolide's own: messages that an earlier send stored already
    region: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: bool = field(name="TRACE_ON", default=True)


class SendBackHeader(Header, frozen=True, kw_only=True):
    """CONSUMER_SEND_MSG_BACK. Delay level 0: the broker chooses; -1: the dead-letter topic."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class PushReplyHeader(Header, frozen=True, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT, broker to the client that sent the request."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long


class RecallHeader(Header, frozen=True, kw_only=True):
    """RECALL_MESSAGE."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallReply(Header, frozen=True):
    """Answer to RECALL_MESSAGE."""

    msg_id: str
