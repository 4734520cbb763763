"""What the operations of messages return."""

from dataclasses import dataclass, field
from enum import StrEnum

from bolide.operations.views import Failure


class BodyKind(StrEnum):
    """What a body looks like."""

    EMPTY = "empty"
    JSON = "json"
    TEXT = "text"
    BINARY = "binary"


class Order(StrEnum):
    """The order of found messages, by store time."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """A message in a list."""

    message_id: str
    """The unique id, which the sender was told; of messages without one the offset id."""
    offset_message_id: str
    """The address of the broker and the position in its log; it names exactly one message."""
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    tags: str | None
    keys: list[str]
    born_ms: int
    """When it was made, by the clock of the sender."""
    stored_ms: int
    """When it was stored, by the clock of the broker."""
    size: int
    """Bytes of the decompressed body."""
    kind: BodyKind
    preview: str
    """The beginning of the body, without characters that a terminal or a page would obey."""
    reconsume_times: int
    """How often it was delivered again before it got here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReach:
    """How far a scan got in one queue."""

    broker: str
    queue_id: int
    position: int
    """The offset that is read next; in descending order the one after it."""
    low: int
    """The first offset of the range that is searched."""
    high: int
    """The end of that range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """The messages that a queue has."""

    broker: str
    queue_id: int
    low: int
    """The offset of its first message."""
    high: int
    """The offset of the message that is stored next."""
    updated_ms: int | None
    """When the last one was stored; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueList:
    """The queues of a topic."""

    topic: str
    queues: list[QueueRange]
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePlace:
    """The topic of a message."""

    topic: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageList:
    """Some of the messages that match, and how far the search got."""

    items: list[MessageRow]
    next: str | None
    """The cursor of what follows; None if the end is reached. If `items` is empty and this is not
    None, the time of the request ran out before a match was found: go on with it."""
    previous: str | None
    """The cursor of what comes before; None at the beginning of the search."""
    scanned: int
    """Messages looked at in this request."""
    remaining: int | None
    """Messages of the range that were not looked at yet; None if that is not known."""
    reached_ms: int | None
    """The search has seen everything up to this store time (in its own order)."""
    queues: list[QueueReach] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailBatch:
    """Messages that came since the last poll, the newest last."""

    items: list[MessageRow]
    next: str
    """The cursor of the next poll."""
    skipped: int
    """Messages that were left out because more came than a poll shows."""
    scanned: int
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body, cut to what a person can look at."""

    kind: BodyKind
    size: int
    """Bytes of the whole body, decompressed."""
    text: str | None
    """Its beginning as text; None if it is binary."""
    base64: str
    """Its beginning, byte by byte."""
    hex_dump: str
    """Its first bytes, sixteen in a line, with their offset and their printable characters."""
    is_cut: bool
    """Whether `text` or `base64` has only the beginning; `message_body` returns the whole."""
    compression: str | None
    """How it is stored: ZLIB, LZ4 or ZSTD; None if it is not compressed."""
    problem: str | None = None
    """Why it could not be decompressed: then it is shown as it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetail:
    """Everything about one message but its consumption."""

    row: MessageRow
    body: Body
    properties: dict[str, str]
    """Those of the sender."""
    system_properties: dict[str, str]
    """Those that clients and brokers set."""
    born_host: str
    store_host: str
    sys_flag: int
    flag: int
    body_crc: int
    stored_size: int
    """Bytes of the record in the log."""
    physical_offset: int
    transaction: str | None
    """PREPARED, COMMIT or ROLLBACK; None if it is not of a transaction."""
    copies: int
    """How many stored messages have its unique id: a send that was retried is stored twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeBody:
    """The decompressed body."""

    size: int
    base64: str


class GroupState(StrEnum):
    """What became of a message in a consumer group."""

    CONSUMED = "consumed"
    """The group's offset is past it, and the group wanted it."""
    PENDING = "pending"
    """The group's offset is before it."""
    FILTERED = "filtered"
    """The subscription of the group does not match it."""
    RETRYING = "retrying"
    """The group failed on it: a copy waits in the group's retry topic."""
    DEAD = "dead"
    """The group gave it up: a copy is among its dead letters."""
    UNKNOWN = "unknown"
    """It cannot be told; the reason says why."""


class StateReason(StrEnum):
    """Why a message is in its state in a group."""

    BROADCASTS = "broadcasts"
    """The group broadcasts: each client keeps an offset of its own."""
    OFFSET_NOT_TOLD = "offset not told"
    """No broker tells the offset; `problem` says why."""
    OFFSETS_OUTSIDE = "offsets outside"
    """The group pulls, and keeps its offsets outside of the brokers."""
    NO_OFFSET = "no offset"
    """The group has committed none in the queue."""
    NEXT = "next"
    """It is the next message of the group in the queue."""
    AHEAD = "ahead"
    """The group's offset is before it, `distance` messages away."""
    NO_MATCH = "no match"
    """It is ahead, and the group's filter will not match it."""
    PASSED = "passed"
    """The group's offset is past it; the filter is not known while no consumer is connected."""
    PASSED_NOT_TRIED = "passed, filter not tried"
    """The group's offset is past it; only the broker can try a filter of this type."""
    PASSED_AND_MATCHES = "passed, filter matches"
    PASSED_NO_MATCH = "passed, filter does not match"
    AMONG_DEAD_LETTERS = "among dead letters"
    """A copy is among the dead letters of the group."""
    CONSUMED_AT_RETRY = "consumed at retry"
    """The group failed on it, and has consumed a copy from its retry topic."""
    AMONG_RETRIES = "among retries"
    """A copy waits in the retry topic of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInGroup:
    """The state of a message in one consumer group."""

    group: str
    state: GroupState
    reason: str
    """Why this is its state, in one sentence."""
    committed_offset: int | None
    """Of the group in the queue of the message; None if it has none, or is unknown."""
    online: bool | None
    """Whether consumers of the group are connected; None if that is unknown."""
    clients: list[str]
    """The ids of the connected consumers."""
    tries: int | None
    """How often the group has failed on it, as far as its copies tell."""
    reason_code: StateReason
    """`reason` for programs; what it speaks of is in the other fields."""
    filter: str | None = None
    """The group's filter that matches or does not; the type of one that is not tried."""
    distance: int | None = None
    """Messages from the group's offset to it."""
    problem: str | None = None
    """Why the group's offset is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumePreview:
    """What handing a message to a consumer again would do."""

    message: MessageRow
    group: str
    client_id: str
    clients: list[str]
    """All connected consumers of the group."""
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeResult:
    """How a consumer handled a message that was handed to it again."""

    group: str
    client_id: str
    result: str | None
    """CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL."""
    succeeded: bool
    remark: str | None
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPreview:
    """The new message that a stored message would be sent as."""

    source: MessageRow
    topic: str
    tags: str
    keys: list[str]
    properties: dict[str, str]
    size: int
    body_preview: str
    changed: list[str]
    """What is not as in the original: topic, tags, keys, properties, body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """Found messages as JSON lines, one object a line, with their whole bodies."""

    lines: str
    count: int
    next: str | None
    """The cursor of what follows; None if the end is reached."""
    failures: list[Failure] = field(default_factory=list)
