"""Send requests built from messages: checks, ids, compression, batches."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from ipaddress import ip_address
from random import SystemRandom
from typing import TypeVar

import msgspec

from bolide.client.instance.settings import ClientSettings, own_address
from bolide.client.instance.validation import check_sendable
from bolide.client.producer.hooks import SendKind
from bolide.client.producer.request_reply import is_reply
from bolide.client.producer.selectors import dedup_queue
from bolide.client.producer.settings import ProducerSettings
from bolide.model.delivery_time import is_timed
from bolide.model.message import Message, SysFlag
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX
from bolide.model.properties import PropertyName
from bolide.protocol.batch import encode_item
from bolide.protocol.codes import RequestCode
from bolide.protocol.compression import compress
from bolide.protocol.message_id import UniqueIdMaker
from bolide.protocol.property_string import encode_properties

_PREPARED = int(SysFlag.PREPARED)
_DELAYING = frozenset({
    PropertyName.DELAY_LEVEL, PropertyName.START_DELIVER_TIME, PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELAY_SEC,
})  # fmt: skip
_THREAD_OVER_SIZE = 64 * 1024
"""Bodies of at least this many bytes are compressed in a thread."""

MAX_COUNT = 10_000
"""Messages per batch: the broker's reply has an id for each."""

_THREAD_OVER_COUNT = 500  # larger batches are processed in a thread
_ITEM_OVERHEAD = 22  # bytes of a message in a batch: lengths, flag, magic numbers
_ID_SIZE = len(PropertyName.UNIQUE_ID) + 2 + 56  # maximal bytes of the id property

T = TypeVar("T")


class SendRequest(msgspec.Struct):
    """A request for any queue; the fields of the queue are set at each try."""

    topic: str
    code: RequestCode
    fields: dict[str, str]
    body: bytes
    unique_ids: tuple[str, ...]
    messages: tuple[Message, ...]
    kind: SendKind
    is_keyed: bool
    """Whether retries must go to the same queue, because of a `dedup_key`."""


class RequestBuilder:
    """Builds requests from messages by a producer's settings; the messages are not modified."""

    def __init__(self, group: str, client: ClientSettings, settings: ProducerSettings) -> None:
        self._client = client
        self._settings = settings
        self.common_fields = {
            "a": client.wrap(group),
            "c": settings.create_topic_key,
            "d": str(settings.default_topic_queue_nums),
            "k": "true" if client.unit_mode else "false",
        }
        """The header fields of every request, by their short names."""
        namespace = client.namespace
        self._namespace_property = (
            encode_properties({PropertyName.INSTANCE_ID: namespace}) if namespace else ""
        )

    def wrap(self, topic: str) -> str:
        """The topic name with namespace."""
        return self._client.wrap(topic)

    def with_id(self, properties: str, unique_id: str) -> str:
        """Add the id, and the namespace if there is one, to a property string."""
        return f"{properties}{PropertyName.UNIQUE_ID}\x01{unique_id}\x02{self._namespace_property}"

    async def build(self, message: Message) -> SendRequest:
        """Raises InvalidMessage or CodecMissing."""
        settings = self._settings
        check_sendable(message, settings.max_message_size)
        unique_id = message.unique_id or _make_id()
        properties = dict(message.properties)
        properties[PropertyName.UNIQUE_ID] = unique_id
        topic, code = self._client.wrap(message.topic), RequestCode.SEND_MESSAGE_V2
        if is_reply(properties):  # reply topics have no namespace
            topic, code = message.topic, RequestCode.SEND_REPLY_MESSAGE_V2
        body, sys_flag = message.body, 0
        if len(body) >= settings.compress_over:
            body, sys_flag = await self._compressed(body)
        if PropertyName.TRANSACTION_PREPARED in properties:
            sys_flag |= _PREPARED
        fields = self._fields(topic, properties, sys_flag, message.flag)
        return SendRequest(
            topic, code, fields, body, (unique_id,), (message,),
            _kind(properties), PropertyName.DEDUP_KEY in properties,
        )  # fmt: skip

    @property
    def max_size(self) -> int:
        return self._settings.max_message_size

    def build_batch(self, messages: Sequence[Message]) -> SendRequest:
        """Build a batch that passed `check_batch`. Raises InvalidMessage if it is too large."""
        ids = _ids_of(messages)
        body = b"".join(map(_encoded, messages, ids))
        if len(body) > self._settings.max_message_size:
            raise InvalidMessage(
                "messages",
                f"the batch has {len(body)} bytes, over max_message_size="
                f"{self._settings.max_message_size}: send fewer at once, or with split=True",
            )
        properties = {} if messages[0].wait_stored else {PropertyName.WAIT_STORED: "false"}
        fields = self._fields(self._client.wrap(messages[0].topic), properties, 0, 0)
        fields["m"] = "true"
        return SendRequest(
            self._client.wrap(messages[0].topic),
            RequestCode.SEND_BATCH_MESSAGE,
            fields,
            body,
            ids,
            tuple(messages),
            SendKind.BATCH,
            messages[0].dedup_key is not None,
        )

    def build_encoded(self, topic: str, body: bytes) -> SendRequest:
        """Build a request from an encoded batch; hooks see it as one message."""
        wrapped = self._client.wrap(topic)
        fields = self._fields(wrapped, {}, 0, 0)
        fields["m"] = "true"
        placeholder = (Message.unchecked(topic, body, {}),)
        code, kind = RequestCode.SEND_BATCH_MESSAGE, SendKind.BATCH
        return SendRequest(wrapped, code, fields, body, (), placeholder, kind, is_keyed=False)

    def _fields(
        self, topic: str, properties: dict[str, str], sys_flag: int, flag: int
    ) -> dict[str, str]:
        if self._client.namespace:
            properties[PropertyName.INSTANCE_ID] = self._client.namespace
        fields = dict(self.common_fields)
        fields["b"] = topic
        fields["f"] = str(sys_flag)
        fields["h"] = str(flag)
        fields["j"] = "0"
        if topic.startswith(RETRY_PREFIX):
            _move_retry_counts(properties, fields)
        fields["i"] = encode_properties(properties)
        return fields

    async def _compressed(self, body: bytes) -> tuple[bytes, int]:
        """The body and its sysFlag; uncompressed if compression does not make it smaller."""
        kind, level = self._settings.compression, self._settings.compression_level
        if len(body) < _THREAD_OVER_SIZE:
            compressed = compress(body, kind, level)
        else:
            compressed = await asyncio.to_thread(compress, body, kind, level)
        return (compressed, kind.flags) if len(compressed) < len(body) else (body, 0)


def _ids_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """The ids of the messages of a batch; new ones where they have none."""
    own = [message.unique_id for message in messages]
    new = iter(make_ids(len(own)))
    return tuple(each or next(new) for each in own)


def _encoded(message: Message, unique_id: str) -> bytes:
    """Encode a message of a batch with its id."""
    text = encode_properties(message.properties)
    if not message.unique_id:
        text = f"{text}{PropertyName.UNIQUE_ID}\x01{unique_id}\x02"
    return encode_item(message.flag, message.body, text)


def _move_retry_counts(properties: dict[str, str], fields: dict[str, str]) -> None:
    """Move the retry counts of a message to a retry topic from its properties to the header."""
    times = properties.pop(PropertyName.RECONSUME_TIME, None)
    maximum = properties.pop(PropertyName.MAX_RECONSUME_TIMES, None)
    if times is not None:
        fields["j"] = times
    if maximum is not None:
        fields["l"] = maximum


def _kind(properties: dict[str, str]) -> SendKind:
    if PropertyName.TRANSACTION_PREPARED in properties:
        return SendKind.HALF
    return SendKind.NORMAL if properties.keys().isdisjoint(_DELAYING) else SendKind.DELAYED


def make_ids(count: int) -> list[str]:
    """Ids for messages encoded by the caller; at most 65,536."""
    return _maker().make_many(time.time_ns() // 1_000_000, count)


def make_id(now_ms: int) -> str:
    return _maker().make(now_ms)


def _make_id() -> str:
    return make_id(time.time_ns() // 1_000_000)


@cache
def _maker() -> UniqueIdMaker:
    return UniqueIdMaker(ip_address(own_address()).packed, os.getpid(), _salt())


def _salt() -> int:
    return SystemRandom().getrandbits(32)


os.register_at_fork(after_in_child=_maker.cache_clear)


class Batches:
    """Builds the requests of a list of messages one by one; large lists in a thread."""

    def __init__(
        self, builder: RequestBuilder, messages: Sequence[Message], *, split: bool
    ) -> None:
        self.size = len(messages)
        self._builder = builder
        self._messages = messages
        self._split = split
        self._chunks = split_batch(messages, builder.max_size) if split else iter([messages])

    async def check(self) -> None:
        """Raises InvalidMessage if the messages cannot be sent as a batch."""
        await self._run(lambda: check_batch(self._messages, self._builder.max_size))

    async def next(self) -> SendRequest | None:
        """The next request, None after the last. Raises InvalidMessage if it is too large."""
        return await self._run(self._build_next)

    def _build_next(self) -> SendRequest | None:
        messages = next(self._chunks, None)
        return None if messages is None else self._builder.build_batch(messages)

    async def by_queue(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, "Batches"]:
        """Group keyed messages by the queues of their keys, keeping their order."""
        groups = await self._run(lambda: _by_queue(self._messages, queues))
        return {
            queue: Batches(self._builder, messages, split=self._split)
            for queue, messages in groups.items()
        }

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if self.size > _THREAD_OVER_COUNT else work()


def check_batch(messages: Sequence[Message], max_size: int) -> None:
    """Raises InvalidMessage unless the messages can be sent as a batch.

    A batch has one topic, not a retry topic, and one wait flag; all messages or none are keyed,
    none is delayed, has a priority or is too large.
    """
    if not messages:
        raise InvalidMessage("messages", "the batch is empty")
    first = messages[0]
    for message in messages:
        if not isinstance(message, Message):
            raise TypeError(f"a batch consists of Messages, not of {type(message).__name__}")
        check_sendable(message, max_size)
        if message.topic != first.topic:
            raise InvalidMessage(
                "topic", f"a batch has one topic, not {first.topic!r} and {message.topic!r}"
            )
        if message.properties or first.properties:
            _check_properties(message, first)
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessage("topic", f"{first.topic!r}: retries cannot be sent as a batch")


def _check_properties(message: Message, first: Message) -> None:
    if message.wait_stored != first.wait_stored:
        raise InvalidMessage("wait_stored", "must be the same in all messages of a batch")
    if (message.dedup_key is None) != (first.dedup_key is None):
        raise InvalidMessage("dedup_key", "must be set in all messages of a batch, or in none")
    if message.delay_level:
        raise InvalidMessage("delay_level", "messages of a batch cannot be delayed")
    if PropertyName.PRIORITY in message.properties:
        raise InvalidMessage(
            "priority", "messages of a batch share a queue: send those with a priority one by one"
        )
    if is_timed(message.properties):
        raise InvalidMessage(
            "deliver_at", "messages of a batch cannot be timed: send them one by one"
        )


def split_batch(messages: Iterable[Message], limit: int) -> Iterator[list[Message]]:
    """Split messages into chunks of at most `limit` bytes and `MAX_COUNT` messages.

    A message larger than `limit` is a chunk of its own.
    """
    chunk: list[Message] = []
    size = 0
    for message in messages:
        more = _item_size(message)
        if chunk and (size + more > limit or len(chunk) == MAX_COUNT):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += more
    if chunk:
        yield chunk


def _by_queue(
    messages: Iterable[Message], queues: Sequence[MessageQueue]
) -> dict[MessageQueue, list[Message]]:
    groups: dict[MessageQueue, list[Message]] = {}
    for message in messages:
        groups.setdefault(dedup_queue(message.dedup_key or "", queues), []).append(message)
    return groups


def _item_size(message: Message) -> int:
    """Bytes of a message in a batch, including its id."""
    if not message.properties:
        return _ITEM_OVERHEAD + len(message.body) + _ID_SIZE
    properties = len(encode_properties(message.properties).encode())
    return _ITEM_OVERHEAD + len(message.body) + properties + (0 if message.unique_id else _ID_SIZE)
