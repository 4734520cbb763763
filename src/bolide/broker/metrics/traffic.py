"""Messages in and out, transactions and dead letters since the start, by topic and group.

Handlers count as they serve; the fast path counts in C and reports when metrics are collected.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from bolide.broker.pairs import Pairs
from bolide.distribution import Distribution
from bolide.model.names import SCHEDULE_TOPIC, is_dead_letter_topic, is_retry_topic
from bolide.model.properties import PropertyName
from bolide.protocol.pop_info import normal_topic

SIZE_BOUNDS: Final = (1024, 4096, 512 * 1024, 1024 * 1024, 2 * 1024 * 1024, 4 * 1024 * 1024)
"""RocketMQ's buckets of message sizes, in bytes."""
FINISH_BOUNDS: Final = (5, 60, 600, 3600, 12 * 3600, 24 * 3600)
"""RocketMQ's buckets of the time until a transaction is committed, in seconds."""

MAX_KEYS: Final = 100_000
"""Entries of each table: further topics and groups are not counted."""

MAX_TOPIC: Final = 255
"""Characters of a topic that a client names and that need not exist."""

_SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
NORMAL, FIFO, DELAY, TRANSACTION = "normal", "fifo", "delay", "transaction"
_MESSAGE_TYPES = (NORMAL, FIFO, DELAY, TRANSACTION)

_TIMES = (
    PropertyName.START_DELIVER_TIME,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_DELAY_SEC,
    PropertyName.TIMER_DELAY_MS,
)


class Delivered(NamedTuple):
    """What messages out are counted by."""

    group: str
    topic: str
    is_retry: bool | None
    """None for pulls, of which RocketMQ does not say it."""


class Sent:
    """Messages of one type that a topic got."""

    __slots__ = ("count", "size", "sizes")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.sizes = Distribution(SIZE_BOUNDS)


class Traffic:
    """Counters since the start; belongs to one event loop, any thread may read them."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, str], Sent] = {}
        """By topic and message type."""
        self.delivered: dict[Delivered, list[int]] = {}
        """Messages and bytes."""
        self.dead: dict[tuple[str, str], int] = {}
        """Messages sent to dead letter topics, by group and original topic."""
        self.committed: dict[str, int] = {}
        self.rolled_back: dict[str, int] = {}
        self.finish_times: dict[str, Distribution] = {}
        self.revived: dict[tuple[str, str], int] = {}
        """Popped messages that were put into a retry topic, by group and topic."""
        self._pairs = Pairs()
        """Those of `delivered`, `dead` and `revived`."""

    def message_in(self, topic: str, message_type: str, sizes: Sequence[int]) -> None:
        """Count messages that were stored in a topic; retries and dead letters are no new ones."""
        if is_retry_topic(topic) or is_dead_letter_topic(topic):
            return
        found = self._sent(topic, message_type)
        if found is None:
            return
        found.count += len(sizes)
        for size in sizes:
            found.size += size
            found.sizes.add(size)

    def batch_in(self, topic: str, message_type: str, count: int, size: int) -> None:
        """Count the messages of a batch that was stored as one record."""
        if is_retry_topic(topic) or is_dead_letter_topic(topic) or not count:
            return
        found = self._sent(topic, message_type)
        if found is not None:
            found.count += count
            found.size += size
            found.sizes.add(size // count)

    def counts_in(self, topic: str, message_type: str, sizes: Sequence[int], total: int) -> None:
        """Add counts by bucket of `SIZE_BOUNDS`, and the sum of the sizes."""
        found = self._sent(topic, message_type)
        if found is not None:
            found.count += sum(sizes)
            found.size += total
            kept = found.sizes
            kept.counts = [mine + more for mine, more in zip(kept.counts, sizes, strict=True)]
            kept.total += total

    def _sent(self, topic: str, message_type: str) -> Sent | None:
        key = topic, message_type
        found = self.sent.get(key)
        if found is None and len(self.sent) < MAX_KEYS:
            found = self.sent[key] = Sent()
        return found

    def pulled(self, group: str, topic: str, count: int, size: int) -> None:
        """Count messages that a group pulled, unless from a retry or dead letter topic."""
        if not is_retry_topic(topic) and not is_dead_letter_topic(topic):
            self._delivered(Delivered(group, topic, None), count, size)

    def delayed_delivered(self, topic: str, size: int) -> None:
        """Count a message that a delay level has released.

        In RocketMQ a consumer of the one topic sends it to the other.
        """
        self.message_in(topic, DELAY, [size])
        self._delivered(Delivered(_SCHEDULE_GROUP, SCHEDULE_TOPIC, None), 1, size)

    def popped(self, group: str, topic: str, count: int, size: int) -> None:
        """Count messages that a group popped from a topic or from its retries."""
        found = Delivered(group, normal_topic(topic, group), is_retry_topic(topic))
        self._delivered(found, count, size)

    def _delivered(self, key: Delivered, count: int, size: int) -> None:
        sums = self.delivered.get(key)
        if sums is None:
            if len(self.delivered) >= MAX_KEYS:
                return
            sums = self.delivered[key] = [0, 0]
            self._pairs.add(key.group, key.topic)
        sums[0] += count
        sums[1] += size

    def dead_lettered(self, group: str, topic: str, count: int) -> None:
        self._add_pair(self.dead, group, topic[:MAX_TOPIC], count)

    def transaction_committed(self, topic: str, seconds: float) -> None:
        """Count a commit, that many seconds after the message was made."""
        _add(self.committed, topic, 1)
        _distribute(self.finish_times, topic, FINISH_BOUNDS, max(int(seconds), 0))

    def transaction_rolled_back(self, topic: str) -> None:
        _add(self.rolled_back, topic, 1)

    def message_revived(self, group: str, topic: str) -> None:
        self._add_pair(self.revived, group, topic, 1)

    def _add_pair(
        self, table: dict[tuple[str, str], int], group: str, topic: str, count: int
    ) -> None:
        if (group, topic) not in table and len(table) < MAX_KEYS:
            self._pairs.add(group, topic)
        _add(table, (group, topic), count)

    def forget_topic(self, topic: str) -> None:
        """Drop what was counted of a topic that is deleted."""
        for message_type in _MESSAGE_TYPES:
            self.sent.pop((topic, message_type), None)
        for table in (self.committed, self.rolled_back, self.finish_times):
            table.pop(topic, None)
        self._forget(self._pairs.of_topic(topic))

    def forget_group(self, group: str) -> None:
        """The same of a group."""
        self._forget(self._pairs.of_group(group))

    def _forget(self, pairs: Iterable[tuple[str, str]]) -> None:
        for pair in pairs:
            for is_retry in (None, False, True):
                self.delivered.pop(Delivered(*pair, is_retry), None)
            self.dead.pop(pair, None)
            self.revived.pop(pair, None)
            self._pairs.discard(*pair)


K = TypeVar("K")


def _add(table: dict[K, int], key: K, count: int) -> None:
    if key in table or len(table) < MAX_KEYS:
        table[key] = table.get(key, 0) + count


def _distribute(
    table: dict[str, Distribution], key: str, bounds: Sequence[float], value: float
) -> None:
    found = table.get(key)
    if found is None:
        if len(table) >= MAX_KEYS:
            return
        found = table[key] = Distribution(bounds)
    found.add(value)


def message_type(properties: str) -> str:
    """The type of a message with these properties, as RocketMQ's metrics name it."""
    text = f"\x02{properties}\x02"
    if f"\x02{PropertyName.TRANSACTION_PREPARED}\x01true\x02" in text:
        return TRANSACTION
    if f"\x02{PropertyName.SHARDING_KEY}\x01" in text:
        return FIFO
    is_delayed = f"\x02{PropertyName.DELAY_LEVEL}\x01" in text or _has_time(text)
    return DELAY if is_delayed else NORMAL


def _has_time(text: str) -> bool:
    return any(f"\x02{name}\x01" in text for name in _TIMES)
