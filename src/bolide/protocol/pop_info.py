"""The strings in POP requests and responses (`ExtraInfoUtil`).

A receipt (POP_CK, "extraInfo") identifies one popped message: eight words separated by blanks,
`startOffset popTime invisibleTime reviveQid r brokerName queueId queueOffset`. `r` is the kind of
the message's topic: 0 the normal one, 1 and 2 the retry topics of the old and the new naming rule.
Java reads words by their index: there may be more (Apache's proxy appends the physical offset), and
a broker needs the first six only, since its requests have queue id and offset in their headers.

The headers of a response list the popped messages: blocks of three words, joined by ";".
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bolide.model.names import RETRY_PREFIX, pop_retry_topics
from bolide.protocol.errors import ProtocolError

ORDERED = 999
"""The revive queue of messages popped in order."""

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
"""Values of `r`."""

_BROKER_WORDS = 6
_DIGITS = 19

RetryQueueKey = tuple[str, int]
"""`r` and queue id."""


class BadPopInfo(ProtocolError):
    """A malformed string in a POP request or response; the text quotes it."""


class Receipt(NamedTuple):
    """The receipt that acknowledges a popped message. Times are in milliseconds."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    retry: str
    broker_name: str
    queue_id: int
    offset: int

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDERED

    @property
    def due(self) -> int:
        """When the message becomes visible again (ms)."""
        return self.pop_time + self.invisible_time

    def encode(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def decode(cls, text: str, place: tuple[int, int] | None = None) -> "Receipt":
        """Read a receipt.

        Args:
            place: queue id and offset of the message, used instead of those in the receipt.

        Raises:
            BadPopInfo: it is too short, or a number is malformed.
        """
        words = text.split(" ")
        needed = _BROKER_WORDS if place else len(cls._fields)
        if len(words) < needed:
            raise BadPopInfo(f"extraInfo {text!r} is shorter than the {needed} words of a POP_CK")
        start, popped, invisible, revive = (_number(word, text) for word in words[:4])
        queue_id, offset = place or (_number(words[6], text), _number(words[7], text))
        retry = words[4] if words[4] in {RETRY_V1, RETRY_V2} else NORMAL
        return cls(start, popped, invisible, revive, retry, words[5], queue_id, offset)


class OrderCounts(NamedTuple):
    """Consumption counts of messages popped in order."""

    by_queue: dict[RetryQueueKey, int]
    by_offset: dict[tuple[str, int, int], int]
    """By `r`, queue id and offset."""

    def of(self, retry: str, queue_id: int, offset: int) -> int:
        by_queue = self.by_queue.get((retry, queue_id), 0)
        return self.by_offset.get((retry, queue_id, offset), by_queue)


def retry_kind(topic: str) -> str:
    """The `r` of a topic."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, retry: str) -> str:
    """Return the topic that stores a message of `topic` with this kind.

    Raises:
        BadPopInfo: the kind is unknown.
    """
    if retry == NORMAL:
        return topic
    if retry not in {RETRY_V1, RETRY_V2}:
        raise BadPopInfo(f"r={retry!r}: a message is of topic 0, 1 or 2")
    first, second = pop_retry_topics(group, topic)
    return first if retry == RETRY_V1 else second


def normal_topic(topic: str, group: str) -> str:
    """Return the normal topic of a topic or retry topic."""
    for prefix in (f"{RETRY_PREFIX}{group}+", f"{RETRY_PREFIX}{group}_"):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic


# ---- writing


def start_offsets(found: Iterable[tuple[str, int, int]]) -> str:
    """startOffsetInfo of (topic, queue id, start offset)."""
    return ";".join(f"{retry_kind(topic)} {queue_id} {start}" for topic, queue_id, start in found)


def message_offsets(found: Iterable[tuple[str, int, Sequence[int]]]) -> str:
    """msgOffsetInfo of (topic, queue id, offsets)."""
    return ";".join(
        f"{retry_kind(topic)} {queue_id} {','.join(map(str, offsets))}"
        for topic, queue_id, offsets in found
    )


def order_counts(topic: str, queue_id: int, counts: dict[int, int], least: int) -> str:
    """orderCountInfo of one queue: counts by offset, and the total that old clients read."""
    kind = retry_kind(topic)
    blocks = [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
    return ";".join([*blocks, f"{kind} {queue_id} {least}"])


# ---- reading


def read_start_offsets(text: str | None) -> dict[RetryQueueKey, int]:
    """Raises BadPopInfo."""
    return {
        (retry, _number(queue, text)): _number(start, text) for retry, queue, start in _blocks(text)
    }


def read_message_offsets(text: str | None) -> dict[RetryQueueKey, list[int]]:
    """Raises BadPopInfo."""
    return {
        (retry, _number(queue, text)): [_number(each, text) for each in offsets.split(",")]
        for retry, queue, offsets in _blocks(text)
    }


def read_order_counts(text: str | None) -> OrderCounts:
    """Raises BadPopInfo."""
    counts = OrderCounts({}, {})
    for retry, place, count in _blocks(text):
        if place.startswith("qo"):
            queue, _, offset = place.removeprefix("qo").partition("%")
            key = (retry, _number(queue, text), _number(offset, text))
            counts.by_offset[key] = _number(count, text)
        else:
            counts.by_queue[retry, _number(place, text)] = _number(count, text)
    return counts


def _blocks(text: str | None) -> Iterable[tuple[str, str, str]]:
    for block in text.split(";") if text else ():
        match block.split(" "):
            case [retry, place, value]:
                yield retry, place, value
            case _:
                raise BadPopInfo(f"{text!r}: blocks of three words were expected")


def _number(word: str, text: str | None) -> int:
    plain = word.removeprefix("-")
    if not (plain.isascii() and plain.isdigit() and len(plain) <= _DIGITS):
        raise BadPopInfo(f"{text!r}: {word!r} is no number")
    return int(word)
