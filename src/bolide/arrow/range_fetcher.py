"""Fetch all records of queue ranges from the brokers, or report the loss.

A range is fetched completely: empty replies are retried, and deleted messages raise `DataLost`
unless the options allow data loss.
"""

import asyncio
import logging
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from bolide.arrow.batches import BATCH_BYTES, BATCH_ROWS
from bolide.arrow.cluster import PATIENCE, READER_GROUP, Cluster
from bolide.arrow.errors import DataLost, OutOfPatience
from bolide.arrow.offsets import Bounds, QueueRange
from bolide.arrow.retry import Patience, may_pass
from bolide.arrow.schema import message_schema, parse_ddl
from bolide.client.consumer.pull.pull_request import MAX_COUNT, Pull, PullStatus, RawPull
from bolide.client.consumer.subscription import Filter, Sql
from bolide.errors import BolideError, ConfigError
from bolide.protocol.refusals import ServerError

log = logging.getLogger(__name__)


_QUEUE_OFFSET = struct.Struct(">20xq")  # of the first record; see bolide.protocol.record
_REMOVING = "MESSAGE_WAS_REMOVING"
_PASSED_OVER = "NO_MATCHED_MESSAGE"
_CANNOT_FILTER = "to filter message by"
_SECOND_LOOK = 1.0
_HANDED_OVER = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Plain values that travel to workers; durations are seconds."""

    tags: str = "*"
    """`A || B`; judged by the broker, and again here."""
    sql: str | None = None
    """A SQL92 expression over properties, judged by the broker; instead of tags."""
    include_properties: bool = True
    value_schema: str | None = None
    """Columns of JSON bodies, such as `id bigint, name string`; they become `value`."""
    fail_on_data_loss: bool = True
    pull_batch_size: int = 1024
    """Messages asked for at a time; brokers have a limit of their own."""
    pull_timeout: float = 10.0
    patience: float = PATIENCE
    """How long a reader goes without progress before it gives up."""
    group: str = READER_GROUP
    """Whose pulls these are by the eyes of the broker; its position does not move."""
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    """Of bodies and properties in one batch; the last message may be more."""

    def __post_init__(self) -> None:
        """Raises ConfigError, BadTagExpression or BadValueSchema."""
        if self.sql is not None and self.tags != "*":
            raise ConfigError("tags and sql: a broker filters by one of them; give only one")
        if not 1 <= self.pull_batch_size <= MAX_COUNT:
            raise ConfigError(f"pull_batch_size={self.pull_batch_size}: must be over 0")
        for name in ("pull_timeout", "batch_rows", "batch_bytes"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be over 0")
        self.filter_of("")
        _ = self.value

    @property
    def value(self) -> pa.StructType | None:
        return None if self.value_schema is None else parse_ddl(self.value_schema)

    @property
    def schema(self) -> pa.Schema:
        """That of every batch."""
        return message_schema(include_properties=self.include_properties, value=self.value)

    def filter_of(self, topic: str) -> Filter:
        """What the broker of a topic is asked for, the topic by its name on the wire."""
        return Filter.of(topic, self.tags if self.sql is None else Sql(self.sql), 0)

    @property
    def wants_all(self) -> bool:
        """Whether every message of a range is to be read."""
        return self.sql is None and not self.filter_of("").tags


class Fetched(NamedTuple):
    """Records as a broker sent them; some may lie past the end of the part."""

    body: bytes
    offset_delta: int
    """To be added to the queue offsets that records tell."""


class RangeFetch:
    """One part of a queue, pull after pull; once.

    It ends where the part ends and not before: what a filter leaves out uses up offsets, and a
    broker that has nothing is asked again.
    """

    def __init__(self, cluster: Cluster, part: QueueRange, options: ReadOptions) -> None:
        self._cluster = cluster
        self._part = part
        self._options = options
        self._queue = cluster.on_wire(part.queue)
        self._filter = options.filter_of(self._queue.topic)
        self._wants_all = options.wants_all
        self._at = part.start
        self._patience = Patience(f"queue {part.queue}", options.patience)
        self._gaps_are_usual = False

    async def replies(self) -> AsyncGenerator[Fetched, None]:
        """Raises as `bolide.arrow.topic_reader.read_range` does."""
        while self._at < self._part.end:
            try:
                found = await self._turn()
            except BolideError as exc:
                await self._endure(exc)
            else:
                self._patience.succeeded()
                if found is not None:
                    yield found

    async def _endure(self, failure: BolideError) -> None:
        if not (isinstance(failure, _NothingYet) or self._may_pass(failure)):
            raise failure
        try:
            await self._patience.endure(failure)
        except OutOfPatience:
            if not isinstance(failure, _NothingYet):
                raise
            self._lose(self._part.end, failure.bounds)
        await self._cluster.renew(self._part.queue.topic)

    def _may_pass(self, failure: BolideError) -> bool:
        if isinstance(failure, ServerError) and _CANNOT_FILTER in failure.remark:
            return False
        return may_pass(failure)

    async def _turn(self) -> Fetched | None:
        """One pull; moves on as far as its answer allows."""
        reply = await self._cluster.pull(self._pull(), self._options.group)
        if reply.is_reset:
            return None  # meant for members of the group
        if reply.status is PullStatus.FOUND:
            return await self._take(reply)
        if reply.status is PullStatus.NO_MATCHED_MSG:
            self._pass_over(reply)
        else:
            self._judge_outside(reply)
        return None

    def _pull(self) -> Pull:
        wanted = self._options.pull_batch_size
        if self._wants_all:
            wanted = min(wanted, self._part.end - self._at)
        return Pull(
            queue=self._queue,
            filter=self._filter,
            offset=self._at,
            max_count=wanted,
            within=self._options.pull_timeout,
            with_subscription=True,
        )

    # What answers mean

    async def _take(self, reply: RawPull) -> Fetched:
        header, delta = reply.header, reply.header.offset_delta or 0
        if header.next_begin_offset <= self._at:
            raise _NothingYet(reply)
        first = _QUEUE_OFFSET.unpack_from(reply.body)[0] + delta
        if self._wants_all and first > self._at:
            await self._judge_gap(first, reply)
        self._at = header.next_begin_offset
        return Fetched(reply.body, delta)

    def _pass_over(self, reply: RawPull) -> None:
        """A slave that hands over to its master says the same, with another remark."""
        after = reply.header.next_begin_offset
        if after <= self._at or (reply.remark or _PASSED_OVER) not in (_PASSED_OVER, _REMOVING):
            raise _NothingYet(reply)
        if reply.remark == _REMOVING:
            self._lose(after, _bounds(reply))
        else:
            self._at = after

    def _judge_outside(self, reply: RawPull) -> None:
        oldest, end = bounds = _bounds(reply)
        if reply.from_slave:
            raise _NothingYet(reply)  # it may be behind its master
        if self._at < oldest:
            self._lose(oldest, bounds)
        elif self._at > end:
            self._lose(self._part.end, bounds)
        else:
            raise _NothingYet(reply)

    async def _judge_gap(self, first: int, reply: RawPull) -> None:
        """Messages are missing before the first one: deleted just now, or long ago one by one.

        The first is a loss. The second is how a compacted topic looks, whose queue begins earlier.
        A broker may delete files of the log a moment before its queues begin later.
        """
        for pause in (0.0, _SECOND_LOOK):
            if self._gaps_are_usual:
                return
            await asyncio.sleep(pause)
            bounds = (await self._cluster.bounds([self._part.queue]))[self._part.queue]
            if bounds.oldest > self._at:
                self._lose(first, bounds)
                return
        self._gaps_are_usual = True

    def _lose(self, goes_on: int, bounds: Bounds) -> None:
        """Raises DataLost, unless that is allowed."""
        if self._options.fail_on_data_loss:
            raise DataLost(self._part.queue, self._at, *bounds)
        goes_on = min(goes_on, self._part.end)
        log.warning(
            "queue %s: %s messages are lost, offsets %s up to %s; the broker has %s up to %s",
            self._part.queue, goes_on - self._at, self._at, goes_on, *bounds,
        )  # fmt: skip
        self._at = goes_on


class _NothingYet(BolideError):
    """The broker has no answer about an offset that it should know of."""

    def __init__(self, reply: RawPull) -> None:
        super().__init__(f"the broker has no message there: {reply.remark or reply.status.name}")
        self.bounds = _bounds(reply)


def _bounds(reply: RawPull) -> Bounds:
    return Bounds(reply.header.min_offset, reply.header.max_offset)


class Share(NamedTuple):
    """What was fetched for one of several parts; `is_last` when that part has ended."""

    number: int
    replies: Sequence[Fetched]
    is_last: bool


async def fetch_all(
    cluster: Cluster, parts: Iterable[QueueRange], options: ReadOptions, at_once: int = 1
) -> AsyncGenerator[Share, None]:
    """Fetch parts, so many at once, each in its order and a little ahead of who takes them."""
    waiting = enumerate(parts)
    ready: asyncio.Queue[Share | Exception | None] = asyncio.Queue(at_once)

    async def fetch() -> None:
        for number, part in waiting:
            async with aclosing(RangeFetch(cluster, part, options).replies()) as replies:
                async for some in _together(replies):
                    await ready.put(Share(number, some, is_last=False))
            await ready.put(Share(number, (), is_last=True))

    async def work() -> None:
        try:
            await fetch()
        except Exception as exc:  # noqa: BLE001  it is raised to who takes them
            await ready.put(exc)
        else:
            await ready.put(None)

    workers = [asyncio.create_task(work(), name="bolide-fetch") for _ in range(at_once)]
    try:
        async for share in _until_all_end(ready, at_once):
            yield share
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _together(replies: AsyncIterator[Fetched]) -> AsyncIterator[Sequence[Fetched]]:
    """Many small replies are handed over as one: going from thread to thread takes its time."""
    some: list[Fetched] = []
    size = 0
    async for each in replies:
        some.append(each)
        size += len(each.body)
        if size >= _HANDED_OVER:
            yield some
            some, size = [], 0
    if some:
        yield some


async def _until_all_end(
    ready: "asyncio.Queue[Share | Exception | None]", workers: int
) -> AsyncIterator[Share]:
    while workers:
        item = await ready.get()
        if item is None:
            workers -= 1
        elif isinstance(item, Exception):
            raise item
        else:
            yield item
