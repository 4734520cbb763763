"""Sends row batches, each until it is stored or fails for good.

Tasks of Spark have no event loop: `BlockingSender` runs a `Sender` on a loop in a thread of its
own, so that the task encodes the next rows while requests are in flight. Batches for one queue are
sent in order, one at a time; batches for any queue are sent concurrently. A broker that is away is
retried, and a batch may then be stored twice unless its rows have deduplication keys.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import fields
from types import TracebackType
from typing import Self, TypeVar

from bolide.arrow.cluster import Connection
from bolide.arrow.errors import OutOfPatience
from bolide.arrow.retry import Backoff, is_transient
from bolide.client.blocking import Caller
from bolide.client.errors import RouteNotFound, SendFailed
from bolide.client.producer.producer import Producer, SendArguments
from bolide.errors import BolideError
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.protocol.batch import iter_batch
from bolide.protocol.refusals import Refusal, ServerError
from bolide.spark.sink.options import Dedup, SinkOptions
from bolide.spark.sink.row_batches import RowBatch
from bolide.spark.sink.rows import RowFailed, RowsFailed, Task
from bolide.spark.sink.topic_checks import refuse_absent_topic, require_dedup_window

T = TypeVar("T")
_ROUTE_DELAY = 1.0
"""Seconds until NameServers know a new topic."""
_NO_TIMER = "timerWheelEnable is false"
"""Remark of brokers without timers. Its response code alone looks transient."""


class Sender:
    """One producer per task. Batches for a named queue are sent in order, one at a time."""

    def __init__(self, connection: Connection, options: SinkOptions, task: Task) -> None:
        self._connection = connection
        self._options = options
        self._partition = task.partition
        self._queue_locks: dict[MessageQueue, asyncio.Lock] = {}
        self._known_topics: set[str] = set()  # topics that had a route before

    async def start(self) -> None:
        given = {field.name: getattr(self._connection, field.name) for field in fields(Connection)}
        group = self._options.producer_group
        self._producer = Producer(group, **given, **self._options.producer())
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.close()

    async def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues of a topic, sorted; checks its deduplication window if one is needed.

        Raises:
            NoDedupWindow: the topic has none.
            TopicAbsent: no broker has the topic.
            OutOfPatience: the lookup failed for longer than the configured patience.
        """
        if self._options.dedup in {Dedup.TRUE, Dedup.ROW}:
            await self._retry(topic, lambda: require_dedup_window(self._connection, topic))
        return sorted(await self._retry(topic, lambda: self._producer.fetch_publish_queues(topic)))

    async def send(self, row_batch: RowBatch) -> None:
        """Raises RowFailed, RowsFailed or TopicAbsent."""
        try:
            if row_batch.queue is None:
                await self._send(row_batch)
                return
            async with self._queue_locks.setdefault(row_batch.queue, asyncio.Lock()):
                await self._send(row_batch)
        except OutOfPatience as exc:
            first, last = row_batch.rows[0], row_batch.rows[-1]
            raise RowsFailed(self._partition, first, last, row_batch.topic, str(exc)) from exc

    async def _send(self, row_batch: RowBatch) -> None:
        if not row_batch.is_batchable:
            await self._send_each(row_batch)
            return
        try:
            await self._retry(
                row_batch.topic,
                lambda: self._producer.send_encoded(
                    row_batch.topic, row_batch.body, **_send_arguments(row_batch)
                ),
            )
        except (Refusal, SendFailed):  # a batch is stored as a whole or not at all
            await self._send_each(row_batch)

    async def _send_each(self, row_batch: RowBatch) -> None:
        """Send row by row, concurrently if the rows may go to any queue."""
        messages = [item.message(row_batch.topic) for item in iter_batch(row_batch.body)]
        sends = [
            self._send_row(row_batch, number, message)
            for number, message in zip(row_batch.rows, messages, strict=True)
        ]
        if row_batch.queue is None:
            await asyncio.gather(*sends)
            return
        for send in sends:
            await send

    async def _send_row(self, row_batch: RowBatch, number: int, message: Message) -> None:
        try:
            await self._retry(
                row_batch.topic, lambda: self._producer.send(message, **_send_arguments(row_batch))
            )
        except OutOfPatience:
            raise
        except BolideError as exc:
            keys = " ".join(message.keys) or None
            raise RowFailed(self._partition, number, row_batch.topic, keys, str(exc)) from exc

    async def _retry(self, topic: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry transient failures until the attempt succeeds or patience ends."""
        backoff = Backoff(f"sending to topic {topic}", self._options.patience)
        began = time.monotonic()
        while True:
            try:
                done = await attempt()
            except BolideError as exc:
                if not _is_transient(exc):
                    raise
                if isinstance(exc, RouteNotFound) and time.monotonic() - began > _ROUTE_DELAY:
                    await self._refuse_absent_topic(topic)
                await backoff.back_off(exc)
                with suppress(BolideError):  # the broker may be back at another address
                    await self._producer.fetch_publish_queues(topic)
            else:
                backoff.succeeded()
                self._known_topics.add(topic)
                return done

    async def _refuse_absent_topic(self, topic: str) -> None:
        """Topics that had a route before are retried instead."""
        if topic not in self._known_topics:
            await refuse_absent_topic(self._connection, topic)


def _send_arguments(row_batch: RowBatch) -> SendArguments:
    return {} if row_batch.queue is None else {"queue": row_batch.queue}


def _is_transient(failure: BolideError) -> bool:
    if isinstance(failure, SendFailed):
        cause = failure.__cause__
        return not isinstance(cause, Refusal) or _is_transient(cause)
    if isinstance(failure, ServerError) and _NO_TIMER in failure.remark:
        return False
    return is_transient(failure)


class BlockingSender:
    """Sends row batches within its `with` block; on exit all of them are stored."""

    def __init__(self, connection: Connection, options: SinkOptions, task: Task) -> None:
        self.requests = 0
        """Batches sent so far."""
        self._caller = Caller()
        self._sender = Sender(connection, options, task)
        self._max_in_flight = options.in_flight
        self._in_flight: deque[Future[None]] = deque()
        self._queues: dict[str, Sequence[MessageQueue]] = {}

    def __enter__(self) -> Self:
        self._caller.wait(self._sender.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc is None:
                while self._in_flight:
                    self._in_flight.popleft().result()
        finally:
            for future in self._in_flight:
                future.cancel()
            self._caller.wait(self._sender.close())

    def send(self, row_batch: RowBatch) -> None:
        """Submit a batch; waits for the oldest one if too many are in flight.

        Raises:
            RowFailed: a broker refuses a row.
            RowsFailed: rows could not be sent within the configured patience.
        """
        while len(self._in_flight) >= self._max_in_flight:
            self._in_flight.popleft().result()
        self._in_flight.append(self._caller.submit(self._sender.send(row_batch)))
        self.requests += 1

    def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues of a topic, sorted; cached for the task."""
        if topic not in self._queues:
            self._queues[topic] = self._caller.wait(self._sender.queues_of(topic))
        return self._queues[topic]
