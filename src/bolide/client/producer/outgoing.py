"""Outgoing messages: checks, ids, batches, and the requests that carry them."""

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
"""Bytes of a body from which on it is compressed in a thread."""


class Outgoing(msgspec.Struct):
    """One request to be sent, to any queue: the queue's fields are set at each try."""

    topic: str
    code: RequestCode
    fields: dict[str, str]
    body: bytes
    unique_ids: tuple[str, ...]
    messages: tuple[Message, ...]
    kind: SendKind
    is_keyed: bool
    """Whether only the queue it was sent to first may get it again."""


class Packer:
    """Makes requests of messages as a producer's settings say. Messages stay as they are."""

    def __init__(self, group: str, client: ClientSettings, settings: ProducerSettings) -> None:
        self._client = client
        self._settings = settings
        self.common = {
            "a": client.wrap(group),
            "c": settings.create_topic_key,
            "d": str(settings.default_topic_queue_nums),
            "k": "true" if client.unit_mode else "false",
        }
        """The fields of every request, by their short names."""
        namespace = client.namespace
        self._last = encode_properties({PropertyName.INSTANCE_ID: namespace}) if namespace else ""

    def wrap(self, topic: str) -> str:
        """The name of a topic on the wire."""
        return self._client.wrap(topic)

    def with_id(self, properties: str, unique_id: str) -> str:
        """A property string with what each message gets besides."""
        return f"{properties}{PropertyName.UNIQUE_ID}\x01{unique_id}\x02{self._last}"

    async def pack(self, message: Message) -> Outgoing:
        """Raises InvalidMessage or CodecMissing."""
        settings = self._settings
        check_sendable(message, settings.max_message_size)
        unique_id = message.unique_id or _make_id()
        properties = dict(message.properties)
        properties[PropertyName.UNIQUE_ID] = unique_id
        topic, code = self._client.wrap(message.topic), RequestCode.SEND_MESSAGE_V2
        if is_reply(properties):  # its topic is the cluster's, in no namespace
            topic, code = message.topic, RequestCode.SEND_REPLY_MESSAGE_V2
        body, sys_flag = message.body, 0
        if len(body) >= settings.compress_over:
            body, sys_flag = await self._compressed(body)
        if PropertyName.TRANSACTION_PREPARED in properties:
            sys_flag |= _PREPARED
        fields = self._fields(topic, properties, sys_flag, message.flag)
        return Outgoing(
            topic, code, fields, body, (unique_id,), (message,),
            _kind(properties), PropertyName.DEDUP_KEY in properties,
        )  # fmt: skip

    @property
    def max_size(self) -> int:
        return self._settings.max_message_size

    def pack_batch(self, messages: Sequence[Message]) -> Outgoing:
        """Of messages that `check_batch` let pass. Raises InvalidMessage if they are too large."""
        ids = _ids_of(messages)
        body = b"".join(map(_encoded, messages, ids))
        if len(body) > self._settings.max_message_size:
            raise InvalidMessage(
                "messages",
                f"the batch is of {len(body)} bytes, over max_message_size="
                f"{self._settings.max_message_size}: send fewer at once, or with split=True",
            )
        properties = {} if messages[0].wait_stored else {PropertyName.WAIT_STORED: "false"}
        fields = self._fields(self._client.wrap(messages[0].topic), properties, 0, 0)
        fields["m"] = "true"
        return Outgoing(
            self._client.wrap(messages[0].topic),
            RequestCode.SEND_BATCH_MESSAGE,
            fields,
            body,
            ids,
            tuple(messages),
            SendKind.BATCH,
            messages[0].dedup_key is not None,
        )

    def pack_encoded(self, topic: str, body: bytes) -> Outgoing:
        """Of a batch that is encoded already; for hooks it is one message."""
        wrapped = self._client.wrap(topic)
        fields = self._fields(wrapped, {}, 0, 0)
        fields["m"] = "true"
        stand_in = (Message.unchecked(topic, body, {}),)
        code, kind = RequestCode.SEND_BATCH_MESSAGE, SendKind.BATCH
        return Outgoing(wrapped, code, fields, body, (), stand_in, kind, is_keyed=False)

    def _fields(
        self, topic: str, properties: dict[str, str], sys_flag: int, flag: int
    ) -> dict[str, str]:
        if self._client.namespace:
            properties[PropertyName.INSTANCE_ID] = self._client.namespace
        fields = dict(self.common)
        fields["b"] = topic
        fields["f"] = str(sys_flag)
        fields["h"] = str(flag)
        fields["j"] = "0"
        if topic.startswith(RETRY_PREFIX):
            _move_retry_counts(properties, fields)
        fields["i"] = encode_properties(properties)
        return fields

    async def _compressed(self, body: bytes) -> tuple[bytes, int]:
        """The body as it goes out, and its flags: as it is where compression gains nothing."""
        kind, level = self._settings.compression, self._settings.compression_level
        if len(body) < _THREAD_OVER_SIZE:
            shorter = compress(body, kind, level)
        else:
            shorter = await asyncio.to_thread(compress, body, kind, level)
        return (shorter, kind.flags) if len(shorter) < len(body) else (body, 0)


def _ids_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """The ids that the messages of a batch have, or new ones."""
    own = [message.unique_id for message in messages]
    fresh = iter(make_ids(len(own)))
    return tuple(each or next(fresh) for each in own)


def _encoded(message: Message, unique_id: str) -> bytes:
    """A message of a batch with its id."""
    text = encode_properties(message.properties)
    if not message.unique_id:
        text = f"{text}{PropertyName.UNIQUE_ID}\x01{unique_id}\x02"
    return encode_item(message.flag, message.body, text)


def _move_retry_counts(properties: dict[str, str], fields: dict[str, str]) -> None:
    """A consumer that sends to a retry topic says in the header how often it was tried."""
    times = properties.pop(PropertyName.RECONSUME_TIME, None)
    most = properties.pop(PropertyName.MAX_RECONSUME_TIMES, None)
    if times is not None:
        fields["j"] = times
    if most is not None:
        fields["l"] = most


def _kind(properties: dict[str, str]) -> SendKind:
    if PropertyName.TRANSACTION_PREPARED in properties:
        return SendKind.HALF
    return SendKind.NORMAL if properties.keys().isdisjoint(_DELAYING) else SendKind.DELAYED


def make_ids(count: int) -> list[str]:
    """Ids for messages that are encoded by their sender; 65,536 of them at most."""
    return _maker().make_many(time.time_ns() // 1_000_000, count)


def make_id(now_ms: int) -> str:
    """An id for one message."""
    return _maker().make(now_ms)


def _make_id() -> str:
    return make_id(time.time_ns() // 1_000_000)


@cache
def _maker() -> UniqueIdMaker:
    return UniqueIdMaker(ip_address(own_address()).packed, os.getpid(), _salt())


def _salt() -> int:
    return SystemRandom().getrandbits(32)


os.register_at_fork(after_in_child=_maker.cache_clear)


T = TypeVar("T")

MAX_COUNT = 10_000
"""Messages of one batch: the broker's answer has an id for each."""

_THREAD_OVER_COUNT = 500  # messages: more of them would hold up the loop
_ITEM_OVERHEAD = 22  # of a message in a batch: lengths, flag, marks
_ID_SIZE = len(PropertyName.UNIQUE_ID) + 2 + 56  # of the property, at most


class Batches:
    """One request after the other is packed when its turn comes, of many messages in a thread."""

    def __init__(self, packer: Packer, messages: Sequence[Message], *, split: bool) -> None:
        self.size = len(messages)
        self._packer = packer
        self._messages = messages
        self._split = split
        self._runs = split_batch(messages, packer.max_size) if split else iter([messages])

    async def check(self) -> None:
        """Raises InvalidMessage for what cannot be sent together."""
        await self._run(lambda: check_batch(self._messages, self._packer.max_size))

    async def next(self) -> Outgoing | None:
        """The next request, None after the last. Raises InvalidMessage for a batch too large."""
        return await self._run(self._pack_next)

    def _pack_next(self) -> Outgoing | None:
        run = next(self._runs, None)
        return None if run is None else self._packer.pack_batch(run)

    async def by_queue(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, "Batches"]:
        """Keyed messages by the queues that their keys hash to, in their order within each."""
        groups = await self._run(lambda: _by_queue(self._messages, queues))
        return {
            queue: Batches(self._packer, messages, split=self._split)
            for queue, messages in groups.items()
        }

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if self.size > _THREAD_OVER_COUNT else work()


def check_batch(messages: Sequence[Message], max_size: int) -> None:
    """Raises InvalidMessage: one topic, one wait flag, all keyed or none, no delays, no retries,
    none too large."""
    if not messages:
        raise InvalidMessage("messages", "a batch of none")
    first = messages[0]
    for message in messages:
        if not isinstance(message, Message):
            raise TypeError(f"a batch is of Messages, not of {type(message).__name__}")
        check_sendable(message, max_size)
        if message.topic != first.topic:
            raise InvalidMessage(
                "topic", f"a batch is of one topic, not of {first.topic!r} and {message.topic!r}"
            )
        if message.properties or first.properties:
            _check_properties(message, first)
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessage("topic", f"{first.topic!r}: retries cannot be sent as a batch")


def _check_properties(message: Message, first: Message) -> None:
    if message.wait_stored != first.wait_stored:
        raise InvalidMessage("wait_stored", "must be the same in all messages of a batch")
    if (message.dedup_key is None) != (first.dedup_key is None):
        raise InvalidMessage("dedup_key", "all messages of a batch have one, or none has")
    if message.delay_level:
        raise InvalidMessage("delay_level", "messages of a batch cannot be delayed")
    if is_timed(message.properties):
        raise InvalidMessage("deliver_at", "messages of a batch cannot wait: send each alone")


def split_batch(messages: Iterable[Message], limit: int) -> Iterator[list[Message]]:
    """Cut a list into runs: batches of at most `limit` bytes, if each message fits, and none of
    too many messages."""
    run: list[Message] = []
    size = 0
    for message in messages:
        more = _item_size(message)
        if run and (size + more > limit or len(run) == MAX_COUNT):
            yield run
            run, size = [], 0
        run.append(message)
        size += more
    if run:
        yield run


def _by_queue(
    messages: Iterable[Message], queues: Sequence[MessageQueue]
) -> dict[MessageQueue, list[Message]]:
    groups: dict[MessageQueue, list[Message]] = {}
    for message in messages:
        groups.setdefault(dedup_queue(message.dedup_key or "", queues), []).append(message)
    return groups


def _item_size(message: Message) -> int:
    """Bytes that a message takes in a batch, its id included."""
    if not message.properties:
        return _ITEM_OVERHEAD + len(message.body) + _ID_SIZE
    properties = len(encode_properties(message.properties).encode())
    return _ITEM_OVERHEAD + len(message.body) + properties + (0 if message.unique_id else _ID_SIZE)
