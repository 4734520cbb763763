"""Sends trace records in batches, without delaying the traced messages."""

import asyncio
import logging
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Final

from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.routes import Fallback
from bolide.client.producer.retrying_sender import RetryingSender
from bolide.client.producer.send_request import RequestBuilder
from bolide.client.producer.settings import ProducerSettings
from bolide.client.tracing.settings import Trace
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message import Message
from bolide.model.properties import KEY_SEPARATOR, PropertyName
from bolide.protocol.trace import TraceRecord, encode_record

MAX_BODY = 128_000
MAX_KEYS = 16_000
"""Bytes: all properties of a message together may have 32,767."""


class TraceBatch:
    """Fills up with records until one does not fit."""

    def __init__(self) -> None:
        self.count = 0
        self._texts: list[bytes] = []
        self._size = 0
        self._keys: dict[str, None] = {}
        self._keys_size = 0

    @classmethod
    def next(cls, waiting: deque[TraceRecord], most: int) -> "TraceBatch":
        """One of the first records that wait, which there must be; they wait no more."""
        parcel = cls()
        while waiting and parcel.count < most and parcel.take(waiting[0]):
            waiting.popleft()
        return parcel

    def take(self, record: TraceRecord) -> bool:
        """False if it does not fit; an empty parcel takes any."""
        text = encode_record(record).encode()
        words = [word for word in record.index_keys() if word not in self._keys]
        size = _size_of(words)
        if self.count and (self._size + len(text) > MAX_BODY or self._keys_size + size > MAX_KEYS):
            return False
        if size > MAX_KEYS:  # it is found by its id then, and not by its keys
            words, size = words[:1], _size_of(words[:1])
        self._texts.append(text)
        self._size += len(text)
        self._keys.update(dict.fromkeys(words))
        self._keys_size += size
        self.count += 1
        return True

    def message(self, topic: str) -> Message:
        keys = {PropertyName.KEYS: KEY_SEPARATOR.join(self._keys)} if self._keys else {}
        return Message.unchecked(topic, b"".join(self._texts), keys)


def _size_of(words: list[str]) -> int:
    return sum(len(word.encode()) + len(KEY_SEPARATOR) for word in words)


log = logging.getLogger(__name__)

GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_MOST_SENDS = 4
_SEND_WITHIN = 5.0
_CLOSE_WITHIN = 5.0
_numbers = count(1)


class TraceSender:
    """The inner producer of one client.

    Args:
        group: of the client whose messages are traced, as it is on the wire.
        purpose: what that client does: PRODUCE or CONSUME.
    """

    def __init__(self, trace: Trace, instance: ClientInstance, group: str, purpose: str) -> None:
        self.trace = trace
        self.dropped = 0
        """Records that never left: too many waited, or no broker took them."""
        self._group = f"{GROUP_PREFIX}-{group}-{purpose}-{next(_numbers)}"
        self._instance = instance
        settings = ProducerSettings(send_timeout=_SEND_WITHIN)
        client = replace(instance.settings, namespace="")  # traces of all lie together
        self._fallback = Fallback(settings.create_topic_key, settings.default_topic_queue_nums)
        self._builder = RequestBuilder(self._group, client, settings)
        self._sender = RetryingSender(
            instance, settings, None, group=self._group, send_hooks=[], forbidden_hooks=[]
        )
        self._waiting: deque[TraceRecord] = deque()
        self._sends: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._is_seen_to = False  # a look at what waits is under way, or a timer runs
        self._throttled = ThrottledLog(log)

    def start(self) -> None:
        """Have the brokers told of it; what was added before waits until then."""
        self._instance.add_producer(self._group, self)

    def add(self, record: TraceRecord) -> None:
        """Take a record, from any thread; it is sent soon."""
        if self._is_closed or len(self._waiting) >= self.trace.most_waiting:
            self._drop(1, "too many wait to be sent")
            return
        self._waiting.append(record)
        if not self._is_seen_to or len(self._waiting) % self.trace.batch == 0:
            self._is_seen_to = True
            with suppress(RuntimeError):  # a handler may outlive the loop
                self._loop.call_soon_threadsafe(self._look)

    def is_told_on(self, topic: str) -> bool:
        """Whether it is the trace topic: traces are not traced themselves."""
        return topic == self.trace.topic

    def topics(self) -> Collection[str]:
        """For the instance: the topics whose routes are kept fresh."""
        return [self.trace.topic]

    async def close(self) -> None:
        """Send what waits, for a few seconds at most, and end."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_WITHIN):
                    await self._send_all()
        finally:
            for task in self._sends:
                task.cancel()
            await asyncio.gather(*self._sends, return_exceptions=True)
            if self._waiting:
                self._drop(len(self._waiting), "the client was closed")
            await self._instance.remove_producer(self._group)

    async def _send_all(self) -> None:
        while self._waiting or self._sends:
            while self._waiting and len(self._sends) < _MOST_SENDS:
                self._start_send()
            await asyncio.wait(self._sends, return_when=asyncio.FIRST_COMPLETED)

    # On the event loop

    def _look(self) -> None:
        """Send full batches, and see that the rest leaves in time."""
        while len(self._waiting) >= self.trace.batch and len(self._sends) < _MOST_SENDS:
            self._start_send()
        if self._timer is not None or self._is_closed:
            return
        self._is_seen_to = False  # before the look: a thread may add one right after it
        if self._waiting:
            self._is_seen_to = True
            self._timer = self._loop.call_later(self.trace.interval, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._waiting and len(self._sends) < _MOST_SENDS:
            self._start_send()
        self._look()

    def _start_send(self) -> None:
        parcel = TraceBatch.next(self._waiting, self.trace.batch)
        task = self._loop.create_task(self._send(parcel), name="bolide-trace")
        self._sends.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._sends.discard(task)
        if not self._is_closed:
            self._look()

    async def _send(self, parcel: TraceBatch) -> None:
        deadline = self._loop.time() + _SEND_WITHIN
        topic = self.trace.topic
        try:
            request = await self._builder.build(parcel.message(topic))
            async with self._sender.within_deadline(deadline, topic):
                queues = await self._instance.routes.publish_queues(topic, self._fallback)
            await self._sender.send(request, queues, deadline)
        except BolideError as exc:
            self._drop(parcel.count, str(exc))
        except asyncio.CancelledError:
            self._drop(parcel.count, "the client was closed")
            raise
        except Exception as exc:  # a trace must never be what ends a program
            self._drop(parcel.count, repr(exc))
            log.exception("a trace could not be sent")

    def _drop(self, count: int, reason: str) -> None:
        self.dropped += count
        text = "%s: trace records are dropped, %d by now: %s"
        self._throttled.warning("dropped", text, self._group, self.dropped, reason)
