"""What a store holds, in one shape, whether a Java client tells it or ours reads it."""

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from bolide.model.message import Host, StoredMessage
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record import Record, read_record
from bolide.protocol.tags import TagExpression
from bolide.store.message_store import MessageStore
from bolide.store.reading import EVERYTHING, MessageFilter
from bolide.store.tables import CONSUMER_OFFSETS, Table

GROUP = "store-readers"
KEY_LIMIT = 64
SOME_TAGS = TagExpression.parse("paid || 标签")


class Queue(NamedTuple):
    topic: str
    queue_id: int


@dataclass(slots=True)
class Facts:
    bounds: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    messages: dict[Queue, list[StoredMessage]] = field(default_factory=dict)
    keys: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """The physical offsets, in order, at which each topic and key is found."""

    unique_keys: dict[tuple[str, str], int | None] = field(default_factory=dict)
    """The first physical offset of each; clients of 4.9 do not tell of others."""

    times: dict[tuple[Queue, int], int] = field(default_factory=dict)
    """The queue offset to which a time in milliseconds leads."""

    tagged: dict[Queue, list[int]] = field(default_factory=dict)
    """The queue offsets that are found when only SOME_TAGS are wanted."""

    committed: dict[Queue, int] = field(default_factory=dict)
    by_id: dict[int, bytes] = field(default_factory=dict)
    """The bodies of some messages, each asked for by the offset id (Java only)."""


def told_by_java(lines: Iterable[str]) -> Facts:
    """Read what StoreFacts.java has printed."""
    facts = Facts()
    for line in lines:
        fact = json.loads(line)
        match fact["kind"]:
            case "queue":
                queue = Queue(fact["topic"], fact["queue_id"])
                facts.bounds[queue] = fact["min"], fact["max"]
                facts.messages[queue] = []
                facts.tagged[queue] = fact["tagged"]
                if fact["committed"] is not None:
                    facts.committed[queue] = fact["committed"]
            case "message":
                message = _message(fact)
                facts.messages[Queue(message.topic, message.queue_id)].append(message)
            case "key":
                # A Java broker puts the record at the seam twice when it rebuilds an index.
                facts.keys[fact["topic"], fact["key"]] = sorted(set(fact["offsets"]))
            case "unique key":
                facts.unique_keys[fact["topic"], fact["key"]] = min(fact["offsets"], default=None)
            case "time":
                queue = Queue(fact["topic"], fact["queue_id"])
                facts.times[queue, fact["time"]] = fact["offset"]
            case "id":
                assert OffsetId.decode(fact["id"]).physical_offset == fact["physical_offset"]
                facts.by_id[fact["physical_offset"]] = base64.b64decode(fact["body"])
    return facts


def read_by_ours(
    store: MessageStore, root: Path, queues: Iterable[Queue], times: Iterable[tuple[Queue, int]]
) -> Facts:
    """Read all of these queues, and look up every key of every message."""
    facts = Facts()
    for queue in queues:
        facts.bounds[queue] = store.min_offset(*queue), store.max_offset(*queue)
        facts.messages[queue] = list(_messages(store, queue))
        tagged = _messages(store, queue, MessageFilter(code=SOME_TAGS.may_match))
        facts.tagged[queue] = [message.queue_offset for message in tagged]
    messages = list(chain.from_iterable(facts.messages.values()))
    keys = {(message.topic, key) for message in messages for key in message.keys}
    facts.keys = {asked: _find(store, *asked) for asked in keys}
    unique = {(message.topic, message.unique_id) for message in messages if message.unique_id}
    facts.unique_keys = {asked: min(_find(store, *asked), default=None) for asked in unique}
    facts.times = {(queue, time): store.offset_at(*queue, time) for queue, time in times}
    facts.committed = _committed(root)
    return facts


def _message(fact: dict[str, Any]) -> StoredMessage:
    given = {name: value for name, value in fact.items() if name not in ("kind", "properties")}
    given |= {
        "body": base64.b64decode(fact["body"]),
        "born_host": Host(*fact["born_host"]),
        "store_host": Host(*fact["store_host"]),
        "version": 1,
    }
    return StoredMessage(**given, _properties=fact["properties"])


def _messages(
    store: MessageStore, queue: Queue, wanted: MessageFilter = EVERYTHING
) -> Iterator[StoredMessage]:
    offset, end = store.min_offset(*queue), store.max_offset(*queue)
    while offset < end:
        found = store.read(*queue, offset, wanted=wanted)
        assert found.next_offset > offset, f"{queue} at {offset} of {end}: {found.status}"
        yield from [_decode(view) for view in found.records]
        offset = found.next_offset


def _find(store: MessageStore, topic: str, key: str) -> list[int]:
    found = store.find(topic, key, limit=KEY_LIMIT)
    return sorted(_decode(view).physical_offset for view in found)


def _decode(view: memoryview) -> StoredMessage:
    record = read_record(view, check_crc=True)
    assert isinstance(record, Record)
    return record.message()


def _committed(root: Path) -> dict[Queue, int]:
    table = Table(root / "config", CONSUMER_OFFSETS)
    table.load()
    return {
        Queue(topic, queue_id): offset
        for name, offsets in table.value.offset_table.items()
        for topic, _, group in [name.partition("@")]
        if group == GROUP
        for queue_id, offset in offsets.items()
    }
