"""Message expiry: consumers do not receive messages whose expiry time has passed.

Only the record of a message contains its expiry time, and decoding every record is expensive. So a
table lists the topics that have received an expiring message, and only records of these topics are
decoded. Once the table has an entry, records of all retry topics are decoded as well, since a
message of any topic may be retried.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from bolide.broker.background import on_saving_thread
from bolide.events import Listeners
from bolide.kernel import read_record
from bolide.model.expiry import expiry_of, parse_expiry
from bolide.model.names import is_retry_topic
from bolide.model.properties import PropertyName
from bolide.protocol.fastjson import Struct
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.refusals import MessageIllegal, ServerError
from bolide.remoting.tasks import uninterrupted
from bolide.store.reading import MessageFilter
from bolide.store.tables import Table, TableKind

_NAME = PropertyName.EXPIRES_AT.encode()


class ExpiringTopics(Struct, kw_only=True):
    """File format: topics that have received an expiring message."""

    topics: list[str] = msgspec.field(default_factory=list)


EXPIRING_TOPICS = TableKind("bolideExpiringTopics.json", ExpiringTopics, 0.0, msgspec.json.encode)


class Expiring:
    """Topics with expiring messages, backed by a loaded table."""

    def __init__(
        self,
        table: Table[ExpiringTopics],
        *,
        now: Callable[[], float],
        exists: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._table = table
        self._now = now
        self._exists = exists
        self._topics = frozenset(table.value.topics)
        self._writing = asyncio.Lock()  # one file, one writer
        self.on_change: Listeners[str] = Listeners()
        """A topic gets its first message that expires."""

    def is_new(self, topic: str, properties: str, batch: bytes = b"") -> bool:
        """Whether a message, or one of a batch, expires and its topic is not in the table yet."""
        if PropertyName.EXPIRES_AT not in properties and _NAME not in batch:
            return False
        return topic not in self._topics and not (self._topics and is_retry_topic(topic))

    async def add(self, topic: str) -> None:
        """Add a topic and write the table, before the message is stored: a crash must not lose it.

        Raises:
            ServerError: the table cannot be written.
        """
        await uninterrupted(self._add(topic))

    async def _add(self, topic: str) -> None:
        async with self._writing:
            if topic in self._topics:
                return
            topics = {topic, *filter(self._exists, self._topics)}
            self._table.value = ExpiringTopics(topics=sorted(topics))
            self._table.changed()
            try:
                await on_saving_thread(self._table.save)
            except OSError as exc:
                raise ServerError(f"{self._table.path} cannot be written: {exc}") from exc
            self._topics = frozenset(topics)
            self.on_change(topic)

    def wanted(self, topic: str, wanted: MessageFilter) -> MessageFilter:
        """Extend a consumer's filter: messages that have expired when read do not match."""
        if not self._topics or not (topic in self._topics or is_retry_topic(topic)):
            return wanted
        now, other = self._now, wanted.record

        def is_wanted(data: memoryview) -> bool:
            return not _is_expired(data, now()) and (other is None or other(data))

        return replace(wanted, record=is_wanted)


def _is_expired(data: memoryview, now: float) -> bool:
    try:
        record = read_record(data)
    except BadRecord:
        return False
    assert isinstance(record, Record)
    return has_expired(record, now)


def has_expired(record: Record, now: float) -> bool:
    """Whether a message has expired at `now`, in seconds since the epoch."""
    if _NAME not in bytes(record.properties):
        return False
    expiry = expiry_of(record.decode_properties())
    return expiry is not None and expiry <= now * 1000


def check_expiry(properties: Mapping[str, str]) -> None:
    """Raise MessageIllegal if the expiry time of a message is not a number."""
    text = properties.get(PropertyName.EXPIRES_AT)
    if text is not None and parse_expiry(text) is None:
        raise MessageIllegal(
            f"property {PropertyName.EXPIRES_AT}: {text!r} is not a time in milliseconds since 1970"
        )
