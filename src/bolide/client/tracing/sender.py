"""Sends trace records to the trace topic, in batches and in the background."""

import asyncio
import logging
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Final

from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.routes import TopicTemplate
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
"""Bytes; all properties of a message together may have 32,767."""

GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_MAX_SENDS = 4
_SEND_TIMEOUT = 5.0
_CLOSE_TIMEOUT = 5.0

log = logging.getLogger(__name__)

_numbers = count(1)


class TraceBatch:
    """Trace records that are sent as one message."""

    def __init__(self) -> None:
        self.count = 0
        self._texts: list[bytes] = []
        self._size = 0
        self._keys: dict[str, None] = {}
        self._keys_size = 0

    @classmethod
    def pop_from(cls, waiting: deque[TraceRecord], limit: int) -> "TraceBatch":
        """Move the first waiting records, at least one, into a new batch."""
        batch = cls()
        while waiting and batch.count < limit and batch.add(waiting[0]):
            waiting.popleft()
        return batch

    def add(self, record: TraceRecord) -> bool:
        """Add a record; False if it does not fit. An empty batch accepts any record."""
        text = encode_record(record).encode()
        words = [word for word in record.index_keys() if word not in self._keys]
        size = _size_of(words)
        if self.count and (self._size + len(text) > MAX_BODY or self._keys_size + size > MAX_KEYS):
            return False
        if size > MAX_KEYS:  # index the record by its id only
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


class TraceSender:
    """The internal trace producer of one client.

    Args:
        group: the group of the traced client, with namespace.
        purpose: PRODUCE or CONSUME.
    """

    def __init__(self, trace: Trace, instance: ClientInstance, group: str, purpose: str) -> None:
        self.trace = trace
        self.dropped = 0
        """Number of records dropped: too many waited, or they could not be sent."""
        self._group = f"{GROUP_PREFIX}-{group}-{purpose}-{next(_numbers)}"
        self._instance = instance
        settings = ProducerSettings(send_timeout=_SEND_TIMEOUT)
        client = replace(instance.settings, namespace="")  # the trace topic has no namespace
        self._template = TopicTemplate(settings.create_topic_key, settings.default_topic_queue_nums)
        self._builder = RequestBuilder(self._group, client, settings)
        self._sender = RetryingSender(
            instance, settings, None, group=self._group, send_hooks=[], forbidden_hooks=[]
        )
        self._waiting: deque[TraceRecord] = deque()
        self._sends: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._is_scheduled = False  # a call of `_schedule` is pending, or the timer runs
        self._throttled = ThrottledLog(log)

    def start(self) -> None:
        """Register the producer with the brokers."""
        self._instance.add_producer(self._group, self)

    def add(self, record: TraceRecord) -> None:
        """Queue a record, from any thread."""
        if self._is_closed or len(self._waiting) >= self.trace.most_waiting:
            self._drop(1, "too many records wait to be sent")
            return
        self._waiting.append(record)
        if not self._is_scheduled or len(self._waiting) % self.trace.batch == 0:
            self._is_scheduled = True
            with suppress(RuntimeError):  # a handler may outlive the loop
                self._loop.call_soon_threadsafe(self._schedule)

    def is_trace_topic(self, topic: str) -> bool:
        """Whether this is the trace topic, whose messages are not traced."""
        return topic == self.trace.topic

    def topics(self) -> Collection[str]:
        """For the client instance: the topics whose routes are refreshed periodically."""
        return [self.trace.topic]

    async def close(self) -> None:
        """Send the waiting records, for a few seconds at most, and stop."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
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
            while self._waiting and len(self._sends) < _MAX_SENDS:
                self._start_send()
            await asyncio.wait(self._sends, return_when=asyncio.FIRST_COMPLETED)

    # On the event loop

    def _schedule(self) -> None:
        """Send full batches, and start the timer for the rest."""
        while len(self._waiting) >= self.trace.batch and len(self._sends) < _MAX_SENDS:
            self._start_send()
        if self._timer is not None or self._is_closed:
            return
        self._is_scheduled = False  # before the check: a thread may add a record right after it
        if self._waiting:
            self._is_scheduled = True
            self._timer = self._loop.call_later(self.trace.interval, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._waiting and len(self._sends) < _MAX_SENDS:
            self._start_send()
        self._schedule()

    def _start_send(self) -> None:
        batch = TraceBatch.pop_from(self._waiting, self.trace.batch)
        task = self._loop.create_task(self._send(batch), name="bolide-trace")
        self._sends.add(task)
        task.add_done_callback(self._on_sent)

    def _on_sent(self, task: asyncio.Task[None]) -> None:
        self._sends.discard(task)
        if not self._is_closed:
            self._schedule()

    async def _send(self, batch: TraceBatch) -> None:
        deadline = self._loop.time() + _SEND_TIMEOUT
        topic = self.trace.topic
        try:
            request = await self._builder.build(batch.message(topic))
            async with self._sender.within_deadline(deadline, topic):
                queues = await self._instance.routes.publish_queues(topic, self._template)
            await self._sender.send(request, queues, deadline)
        except BolideError as exc:
            self._drop(batch.count, str(exc))
        except asyncio.CancelledError:
            self._drop(batch.count, "the client was closed")
            raise
        except Exception as exc:  # tracing must not fail the traced program
            self._drop(batch.count, repr(exc))
            log.exception("a trace could not be sent")

    def _drop(self, count: int, reason: str) -> None:
        self.dropped += count
        text = "%s: trace records are dropped, %d so far: %s"
        self._throttled.warning("dropped", text, self._group, self.dropped, reason)
