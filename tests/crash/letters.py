"""The messages that crash tests send: each says which one it is, so that nothing else passes."""

import random
from functools import lru_cache
from typing import NamedTuple

from bolide.model.message import Host, SysFlag
from bolide.protocol.hosts import pack_host
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.record_seal import SEAL_SIZE

TOPICS = ("Orders", "Payments", "Parcels")
QUEUES = 2
SEAL = b"__CRC32#"

_HOST = pack_host(Host("10.0.0.1", 10911))


class Name(NamedTuple):
    """Life of the sender, number of the append in it, and place in the batch."""

    life: int
    number: int
    place: int

    @property
    def key(self) -> str:
        return f"key-{self.life}-{self.number}-{self.place}"


@lru_cache(maxsize=10_000)
def batch(life: int, number: int) -> list[RecordDraft]:
    """One append: a message mostly, sometimes several, all of it following from its name."""
    chance = random.Random(f"{life} {number}")
    topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
    half = chance.random() < 0.05
    count = 1 if half else chance.choice((1, 1, 1, 2, 5))
    return [
        RecordDraft(
            topic.encode(),
            _body(Name(life, number, place), chance),
            _properties(Name(life, number, place), chance),
            queue_id,
            number,
            _HOST,
            _HOST,
            sys_flag=int(SysFlag.PREPARED) if half else 0,
        )
        for place in range(count)
    ]


def is_queued(draft: RecordDraft) -> bool:
    return not draft.sys_flag


def name_of(record: Record) -> Name:
    """Raises ValueError if nobody can have sent it."""
    life, number, place = bytes(record.body).split(b"|", 1)[0].split(b"/")
    return Name(int(life), int(number), int(place))


def was_sent(record: Record) -> bool:
    """Whether it is, to the last byte, a message that `batch` makes; it may be sealed."""
    draft = _draft_of(record)
    return draft is not None and _unsealed(record) == draft.properties


def was_torn(record: Record) -> bool:
    """Whether it is one that was sent, but the last of its properties never reached the disk.

    RocketMQ's format has a checksum for the body only, unless records are sealed: the properties
    are the last of a record, and if their page was not written they are zero from there on.
    """
    draft, properties = _draft_of(record), bytes(record.properties)
    if draft is None or len(properties) != len(draft.properties):
        return False
    written = properties.rstrip(b"\0")
    return written != properties and bytes(draft.properties).startswith(written)


def _draft_of(record: Record) -> RecordDraft | None:
    """What was sent under its name, if that has its topic, queue and body."""
    try:
        life, number, place = name_of(record)
        draft = batch(life, number)[place]
    except (ValueError, IndexError):
        return None
    found = record.topic.encode(), record.queue_id, record.body
    return draft if found == (draft.topic, draft.queue_id, draft.body) else None


def _unsealed(record: Record) -> bytes:
    properties = bytes(record.properties)
    return properties[:-SEAL_SIZE] if properties[-SEAL_SIZE:].startswith(SEAL) else properties


def _body(name: Name, chance: random.Random) -> bytes:
    filler = chance.randbytes(chance.choice((0, 10, 100, 300, 2000)))
    return f"{name.life}/{name.number}/{name.place}|".encode() + filler


def _properties(name: Name, chance: random.Random) -> bytes:
    properties = {"UNIQ_KEY": f"id-{name.key}", "KEYS": name.key}
    if chance.random() < 0.5:
        properties["TAGS"] = chance.choice(("TagA", "TagB"))
    return encode_properties(properties).encode()
