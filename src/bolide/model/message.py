"""Messages: as a producer sends them, and as the log stores them."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import IntEnum, IntFlag
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import NamedTuple, NoReturn

import msgspec

from bolide.model.cron import checked_cron
from bolide.model.delivery_time import delivery_property
from bolide.model.expiry import expiry_of, expiry_text
from bolide.model.message_checks import (
    check_topic,
    checked_dedup_key,
    checked_flag,
    checked_sharding_key,
    checked_tags,
    joined_keys,
    level_text,
    plain_body,
    priority_text,
    user_properties,
)
from bolide.model.message_queue import MessageQueue
from bolide.model.properties import (
    INT_DIGITS,
    KEY_SEPARATOR,
    PropertyName,
    delay_level_of,
    parse_number,
)


class _PropertyAccess:
    """Typed access to the properties of a message."""

    __slots__ = ()

    @property
    def properties(self) -> Mapping[str, str]:
        raise NotImplementedError

    @property
    def tags(self) -> str | None:
        return self.properties.get(PropertyName.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        words = self.properties.get(PropertyName.KEYS, "").split(KEY_SEPARATOR)
        return tuple(word for word in words if word)

    @property
    def delay_level(self) -> int:
        return delay_level_of(self.properties)

    @property
    def sharding_key(self) -> str | None:
        return self.properties.get(PropertyName.SHARDING_KEY)

    @property
    def priority(self) -> int | None:
        """The priority; None if the message has none."""
        return parse_number(self.properties.get(PropertyName.PRIORITY), INT_DIGITS + 1)

    @property
    def dedup_key(self) -> str | None:
        """Key by which a topic with a deduplication window stores the message only once."""
        return self.properties.get(PropertyName.DEDUP_KEY)

    @property
    def expires_at(self) -> float | None:
        """Expiry in seconds since 1970; None if the message does not expire."""
        milliseconds = expiry_of(self.properties)
        return None if milliseconds is None else milliseconds / 1000

    @property
    def wait_stored(self) -> bool:
        """Whether the broker replies only after the flush and replication its settings require."""
        return self.properties.get(PropertyName.WAIT_STORED, "true").lower() == "true"

    @property
    def unique_id(self) -> str | None:
        """The id assigned by the sending client; it does not change on retries."""
        return self.properties.get(PropertyName.UNIQUE_ID)


class Message(_PropertyAccess):
    """A message to send. It is immutable, so it can be sent again and from any thread.

    `flag` is a number for the user; Bolide does not interpret it.
    """

    __slots__ = ("_properties", "body", "flag", "topic")

    topic: str
    body: bytes
    flag: int
    _properties: dict[str, str]

    def __init__(  # noqa: PLR0913  all options of a message
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        tags: str = "",
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        deliver_at: datetime | float | None = None,
        delay: timedelta | float | None = None,
        sharding_key: str = "",
        priority: int | None = None,
        dedup_key: str = "",
        expires_at: datetime | float | None = None,
        expire_after: timedelta | float | None = None,
        cron: str = "",
        cron_zone: str = "",
        flag: int = 0,
        wait_stored: bool = True,
    ) -> None:
        """Validate the arguments.

        Args:
            topic: name of the topic.
            body: content; a send requires at least one byte.
            tags: a single tag, by which consumers can filter.
            keys: keys by which the message can be found.
            properties: names and values of the user's own.
            delay_level: one of the broker's delay levels; 0 is no delay.
            deliver_at: delivery time, to the millisecond; a number is seconds since 1970.
            delay: delay from the arrival at the broker; a number is seconds.
            sharding_key: messages with equal keys belong together; selectors may use it.
            priority: number of the queue that the broker stores the message in, or its last queue.
                POP consumers of a topic with `message.type=PRIORITY` get high numbers first.
            dedup_key: a topic with `dedup.window` stores the message once, however often it is
                sent; the message goes to the queue that the key hashes to.
            expires_at: expiry, after which consumers do not get it; a number is seconds since
                1970.
            expire_after: expiry counted from now; a number is seconds.
            cron: schedule of a recurring message: `"*/5 * * * *"`. A Bolide broker delivers a
                copy at each time until the message is recalled or expires.
            cron_zone: time zone of `cron`, such as `"Europe/Berlin"`; default UTC.
            flag: a number for the user.
            wait_stored: False lets the broker reply before the message is flushed and replicated.

        Raises:
            InvalidMessage: an argument is invalid; names the field.
        """
        check_topic(topic)
        held = user_properties(properties) if properties else {}
        if tags:
            held[PropertyName.TAGS] = checked_tags(tags)
        if keys:
            held[PropertyName.KEYS] = joined_keys(keys)
        if delay_level:
            held[PropertyName.DELAY_LEVEL] = level_text(delay_level)
        if deliver_at is not None or delay is not None:
            held |= delivery_property(deliver_at, delay)
        if sharding_key:
            held[PropertyName.SHARDING_KEY] = checked_sharding_key(sharding_key)
        if dedup_key:
            held[PropertyName.DEDUP_KEY] = checked_dedup_key(dedup_key)
        if expires_at is not None or expire_after is not None:
            held[PropertyName.EXPIRES_AT] = expiry_text(expires_at, expire_after)
        if cron or cron_zone or priority is not None:
            held |= _rare_properties(cron, cron_zone, priority, held)
        if not wait_stored:
            held[PropertyName.WAIT_STORED] = "false"
        _fill(self, topic, plain_body(body), held, checked_flag(flag))

    @staticmethod
    def unchecked(topic: str, body: bytes, properties: dict[str, str], flag: int = 0) -> "Message":
        """Make a message without validation, from values that may include reserved properties.

        The message takes ownership of the dictionary.
        """
        message = _blank(Message)
        _fill(message, topic, body, properties, flag)
        return message

    @property
    def properties(self) -> Mapping[str, str]:
        return MappingProxyType(self._properties)

    def with_properties(self, properties: Mapping[str, str]) -> "Message":
        """Return a copy with properties added or replaced, without validation."""
        changed = {**self._properties, **properties}
        return Message.unchecked(self.topic, self.body, changed, self.flag)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a message cannot be changed: make another one to set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a message cannot be changed: {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((self.topic, self.body, self.flag))

    def __repr__(self) -> str:
        size, said = len(self.body), dict(self._properties)
        return f"<Message for {self.topic!r}, {size} bytes, properties {said}, flag {self.flag}>"

    def __reduce__(self) -> tuple[object, tuple[str, bytes, dict[str, str], int]]:
        return Message.unchecked, self._parts()

    def _parts(self) -> tuple[str, bytes, dict[str, str], int]:
        return self.topic, self.body, self._properties, self.flag


def _rare_properties(
    cron: str, cron_zone: str, priority: int | None, held: Mapping[str, str]
) -> dict[str, str]:
    """The properties of a schedule and of a priority; `held` are the other ones."""
    rare = checked_cron(cron, cron_zone) if cron or cron_zone else {}
    if priority is not None:
        rare[PropertyName.PRIORITY] = priority_text(priority, {**held, **rare})
    return rare


_blank = object.__new__
_set = object.__setattr__


def _fill(message: Message, topic: str, body: bytes, properties: dict[str, str], flag: int) -> None:
    _set(message, "topic", topic)
    _set(message, "body", body)
    _set(message, "_properties", properties)
    _set(message, "flag", flag)


class StoredMessage(_PropertyAccess, msgspec.Struct, frozen=True, eq=False, gc=False):
    """A message with the offsets that the log assigned. Timestamps are milliseconds since 1970.

    Decoded from a record, `body` is as stored, compressed if `sys_flag` says so, and the topic may
    be a retry topic. Clients pass plain bodies and the original topic to their users.
    """

    topic: str
    body: bytes
    _properties: dict[str, str] | Callable[[], dict[str, str]]
    """The properties, or a function that decodes them on first access: few consumers need them."""

    flag: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: "Host" = msgspec.field(default_factory=lambda: Host("0.0.0.0", 0))  # noqa: S104
    store_timestamp: int = 0
    store_host: "Host" = msgspec.field(default_factory=lambda: Host("0.0.0.0", 0))  # noqa: S104
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    size: int = 0
    """Bytes of the whole record."""

    version: int = 1
    """1, or 2 for a topic name over 127 bytes."""

    broker_name: str = ""
    """Set by the client, like the two offsets below, from the reply to the pull."""

    min_offset: int | None = None
    max_offset: int | None = None

    @property
    def properties(self) -> dict[str, str]:
        held = self._properties
        if not isinstance(held, dict):
            held = held()
            msgspec.structs.force_setattr(self, "_properties", held)
        return held

    @property
    def message_id(self) -> str:
        """The id reported to the sender: the unique id, or else the offset id."""
        return self.unique_id or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def lag(self) -> int | None:
        """Messages in the queue from this one on at the time of the pull; None if unknown."""
        return None if self.max_offset is None else self.max_offset - self.queue_offset

    @property
    def receipt(self) -> str | None:
        """The receipt that acknowledges a popped message; None for a pulled one."""
        return self.properties.get(PropertyName.POP_CHECKPOINT) or None

    @property
    def transaction_id(self) -> str | None:
        return self.properties.get(PropertyName.TRANSACTION_ID)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredMessage):
            return NotImplemented
        mine, theirs = self.properties, other.properties
        return mine == theirs and all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name != "_properties"
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.queue_id, self.queue_offset, self.store_host))

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.broker_name}/{self.queue_id} at {self.queue_offset}"
        return f"<StoredMessage {self.message_id} of {place}, {len(self.body)} bytes>"


def offset_message_id(host: "Host", physical_offset: int) -> str:
    """The offset id, by which a broker finds a message: its address and a physical offset."""
    return f"{_host_digits(host)}{physical_offset & 0xFFFF_FFFF_FFFF_FFFF:016X}"


@lru_cache(maxsize=8192)
def _host_digits(host: "Host") -> str:
    ip = ip_address(host.ip)
    return f"{int(ip):0{8 if ip.version == 4 else 32}X}{host.port:08X}"


class Host(NamedTuple):
    """An IP address and a port; never a host name."""

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
        """The sysFlag bits of a body compressed this way."""
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
        ValueError: RocketMQ does not define the type.
    """
    if not sys_flag & _COMPRESSED:
        return None
    kind = sys_flag >> _COMPRESSION_SHIFT & _COMPRESSION_BITS
    # Clients before 4.9.4 knew only zlib and left the type bits empty.
    return CompressionType(kind) if kind else CompressionType.ZLIB


def without_compression(sys_flag: int) -> int:
    """Clear the compressed bit of a decompressed body; the type bits stay, as in Java."""
    return sys_flag & ~_COMPRESSED
