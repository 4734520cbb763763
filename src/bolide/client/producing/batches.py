"""A list of messages on its way out: checked as a whole, then packed batch by batch."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from bolide.client.producing.outgoing import Outgoing, Packer
from bolide.client.producing.selectors import dedup_queue
from bolide.client.validation import check_sendable
from bolide.model.delivery_time import is_timed
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX
from bolide.model.properties import PropertyName
from bolide.protocol.property_string import encode_properties

T = TypeVar("T")

MAX_COUNT = 10_000
"""Messages of one batch: the broker's answer has an id for each."""

_THREAD_OVER = 500  # messages: more of them would hold up the loop
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
        return await asyncio.to_thread(work) if self.size > _THREAD_OVER else work()


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
