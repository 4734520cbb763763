"""Names of message properties with a meaning in RocketMQ (`MessageConst`)."""

from collections.abc import Mapping
from typing import Final

KEY_SEPARATOR: Final = " "
"""Separates the keys in KEYS."""

TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
"""Prefix of properties that are never stored."""

REPLAYED_FROM: Final = "REPLAYED_FROM"
"""Property with the position of the message that a copy was made of: topic/broker/queue@offset.

Tools set it as a user's property; brokers do not know it."""

CAUSE_PROPERTIES: Final = ("FAILURE_CAUSE", "EXCEPTION", "ERROR")
"""Properties in which consumers say why they failed, in the order in which tools look for them."""


class PropertyName:
    """Plain strings, not an enum: they are dictionary keys on the path of every message."""

    # Set by the user of a producer.
    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT_STORED: Final = "WAIT"
    DELAY_LEVEL: Final = "DELAY"
    BUYER_ID: Final = "BUYER_ID"
    INSTANCE_ID: Final = "INSTANCE_ID"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    CHECK_IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
    PRIORITY: Final = "_SYS_MSG_PRIORITY_"
    DEDUP_KEY: Final = "DEDUP_KEY"  # Bolide's own, as are those below
    EXPIRES_AT: Final = "BOLIDE_EXPIRES_MS"
    CRON: Final = "BOLIDE_CRON"
    CRON_ZONE: Final = "BOLIDE_CRON_ZONE"
    SERIES_ID: Final = "BOLIDE_SERIES_ID"
    SERIES_TURN: Final = "BOLIDE_SERIES_TURN"

    # Set by the sending client or the broker.
    UNIQUE_ID: Final = "UNIQ_KEY"
    EXTENDED_UNIQUE_INFO: Final = "EXTEND_UNIQ_INFO"
    CLUSTER: Final = "CLUSTER"
    REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    TRACE_CONTEXT: Final = "TRACE_CONTEXT"
    TRACE_PARENT: Final = "traceparent"
    TRACE_STATE: Final = "tracestate"
    BORN_HOST: Final = "__BORNHOST"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    DUPLICATE_INFO: Final = "DUP_INFO"
    RECORD_CRC: Final = "__CRC32#"
    FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
    REDIRECT: Final = "REDIRECT"
    PARK: Final = "BOLIDE_PARK"  # Bolide's own, in records of a group's park topic

    # Original address of a re-addressed message, and its delivery attempts.
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QUEUE_ID: Final = "REAL_QID"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    DEAD_LETTER_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DEAD_LETTER_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

    # Transactions.
    TRANSACTION_PREPARED: Final = "TRAN_MSG"
    PRODUCER_GROUP: Final = "PGROUP"
    TRANSACTION_ID: Final = "__transactionId__"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"

    # Request and reply.
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    ARRIVE_TIME: Final = "ARRIVE_TIME"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    MESSAGE_TYPE: Final = "MSG_TYPE"

    # Pop consumption.
    POP_CHECKPOINT: Final = "POP_CK"
    POP_CHECKPOINT_OFFSET: Final = "POP_CK_OFFSET"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"

    # Inner batches and dispatch to several queues.
    INNER_COUNT: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"

    # Timer messages in transit.
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_DELETE_UNIQUE_ID: Final = "TIMER_DEL_UNIQKEY"
    TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"

    # Added by the receiving client after a pull; never stored.
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"

    # Reserved for historical reasons.
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"


_OPEN_TO_USERS = frozenset(
    {
        PropertyName.SHARDING_KEY,
        PropertyName.CHECK_IMMUNITY_SECONDS,
        PropertyName.TRACE_CONTEXT,
        PropertyName.TRACE_PARENT,
        PropertyName.TRACE_STATE,
        PropertyName.START_DELIVER_TIME,
        PropertyName.FORWARD_QUEUE_ID,
        PropertyName.REDIRECT,
        PropertyName.TRANSACTION_ID,
        PropertyName.TRANSACTION_CHECK_TIMES,
        PropertyName.INNER_COUNT,
        PropertyName.INNER_BASE,
        PropertyName.MULTI_DISPATCH,
    }
)  # names that `MessageConst.STRING_HASH_SET` omits

INT_DIGITS: Final = 9
"""Digits of a number that surely fits into 32 bits."""
LONG_DIGITS: Final = 18
"""Digits of a number that surely fits into 64 bits."""


def parse_number(text: str | None, max_digits: int = LONG_DIGITS) -> int | None:
    """Parse a decimal number without a sign; None if it is missing, malformed or too long."""
    if text is None or len(text) > max_digits or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def delay_level_of(properties: Mapping[str, str]) -> int:
    """The delay level of a message; 0 if it has none, or one that is malformed."""
    return parse_number(properties.get(PropertyName.DELAY_LEVEL), INT_DIGITS) or 0


INTERPRETED_PREFIXES: Final = (
    "DELAY",
    "TIMER_",
    "TRAN_MSG",
    "POP_CK",
    "INNER_",
    "MSG_REGION",
    "TRACE_ON",
    "CLUSTER",
    "__STARTDELIVERTIME",
    "_SYS_MSG_PRIORITY_",
    "BOLIDE_",
)
"""Prefixes of the names that a broker interprets in a message it is sent, or sets itself.

A message with none of them is stored with its property string as it is."""

SET_ON_HALVES_PREFIXES: Final = ("TRAN", "REAL_", "__transactionId__")
"""Prefixes of the names that a broker adds to a half message."""

SPECIAL_HALF_PREFIXES: Final = (
    "DELAY",
    "TIMER_",
    "__STARTDELIVERTIME",
    "CHECK_IMMUNITY_TIME",
    "TRAN_PREPARED_QUEUE_OFFSET",
)
"""Prefixes of the names by which a half message is delayed, checked later, or a copy of another."""

RESERVED_NAMES: Final = (
    frozenset(value for name, value in vars(PropertyName).items() if name.isupper())
    - _OPEN_TO_USERS
)
"""Names that clients refuse as user properties."""
