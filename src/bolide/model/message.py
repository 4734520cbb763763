"""Messages: what a producer gives, and what the log has made of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag
from typing import NamedTuple, Self

from bolide.model.properties import KEY_SEPARATOR, PropertyName


@dataclass(frozen=True, slots=True)
class Message:
    """A body for a topic. `flag` is the user's own number; nobody here reads it."""

    topic: str
    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0

    @staticmethod
    def of(
        topic: str, body: bytes, *, tags: str = "", keys: Iterable[str] = (), **properties: str
    ) -> "Message":
        """Write the common case: `Message.of("Orders", b"…", tags="paid", keys=["order-1"])`."""
        named = {PropertyName.TAGS: tags, PropertyName.KEYS: KEY_SEPARATOR.join(keys)}
        given = {name: text for name, text in named.items() if text}
        return Message(topic, body, given | properties)

    @property
    def tags(self) -> str | None:
        return self.properties.get(PropertyName.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        words = self.properties.get(PropertyName.KEYS, "").split(KEY_SEPARATOR)
        return tuple(word for word in words if word)

    @property
    def unique_id(self) -> str | None:
        """The id the sending client gave; it stays the same through retries."""
        return self.properties.get(PropertyName.UNIQUE_ID)

    def with_properties(self, properties: Mapping[str, str]) -> Self:
        """Return a copy in which these properties are added or replaced."""
        return replace(self, properties={**self.properties, **properties})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage(Message):
    """A message with the place the log gave it. Timestamps are milliseconds since 1970.

    `body` is as stored: still compressed if `sys_flag` says so.
    """

    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: "Host"
    store_timestamp: int
    store_host: "Host"
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    size: int
    """Bytes of the whole record."""

    version: int
    """1, or 2 for a topic name over 127 bytes."""


class Host(NamedTuple):
    """An address as numbers, never a name."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


class SysFlag(IntFlag):
    """Bits of a message's sysFlag (`MessageSysFlag`).

    The hot path keeps sysFlag a plain int: operations on IntFlag members are ten times slower.
    """

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEEDS_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_TYPE = 0x700


class TransactionType(IntEnum):
    """Bits 2 and 3 of sysFlag."""

    NONE = 0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class CompressionType(IntEnum):
    """Bits 8 to 10 of sysFlag, shifted down."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def flags(self) -> int:
        """The bits that mark a body so compressed."""
        return _COMPRESSED | self << _COMPRESSION_SHIFT


_COMPRESSED = int(SysFlag.COMPRESSED)
_TRANSACTION = int(SysFlag.ROLLBACK)
_COMPRESSION_SHIFT = 8
_COMPRESSION_BITS = int(SysFlag.COMPRESSION_TYPE) >> _COMPRESSION_SHIFT
_TRANSACTION_TYPES = tuple(TransactionType)


def transaction_type(sys_flag: int) -> TransactionType:
    return _TRANSACTION_TYPES[sys_flag >> 2 & 3]


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    return sys_flag & ~_TRANSACTION | kind.value


def compression_type(sys_flag: int) -> CompressionType | None:
    """Return how the body is compressed, or None if it is not.

    Raises:
        ValueError: the type is one that RocketMQ has not given out.
    """
    if not sys_flag & _COMPRESSED:
        return None
    kind = sys_flag >> _COMPRESSION_SHIFT & _COMPRESSION_BITS
    # Clients before 4.9.4 knew only zlib and left the type bits empty.
    return CompressionType(kind) if kind else CompressionType.ZLIB


def without_compression(sys_flag: int) -> int:
    """Clear the mark once the body is plain; the type bits stay, as Java leaves them."""
    return sys_flag & ~_COMPRESSED
