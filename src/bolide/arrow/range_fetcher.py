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
from bolide.arrow.retry import Backoff, is_transient
from bolide.arrow.schema import message_schema, parse_ddl
from bolide.client.consumer.pull.pull_request import MAX_COUNT, Pull, PullStatus, RawPull
from bolide.client.consumer.subscription import Filter, Sql
from bolide.errors import BolideError, ConfigError
from bolide.protocol.refusals import ServerError

log = logging.getLogger(__name__)


_QUEUE_OFFSET = struct.Struct(">20xq")  # of the first record; layout in bolide.protocol.record
_REMARK_REMOVING = "MESSAGE_WAS_REMOVING"
_REMARK_FILTERED = "NO_MATCHED_MESSAGE"
_REMARK_BAD_FILTER = "to filter message by"
_RECHECK_DELAY = 1.0
"""Seconds between the two checks of a gap."""
_COALESCE_SIZE = 256 * 1024
"""Bytes of replies that cross to the reader's thread together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a reader: plain values that can be sent to worker processes."""

    tags: str = "*"
    """`A || B`; the broker filters by tag hash, the reader by the tag itself."""
    sql: str | None = None
    """SQL92 expression over properties, evaluated by the broker; excludes `tags`."""
    include_properties: bool = True
    value_schema: str | None = None
    """Columns of JSON bodies, such as `id bigint, name string`; they form the column `value`."""
    fail_on_data_loss: bool = True
    pull_batch_size: int = 1024
    """Messages requested per pull; brokers have a limit of their own."""
    pull_timeout: float = 10.0
    patience: float = PATIENCE
    """Seconds without progress after which a reader gives up."""
    group: str = READER_GROUP
    """Consumer group in whose name the reader pulls; its committed offsets do not change."""
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    """Bytes of bodies and properties per batch; the last message may exceed it."""

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
        """The schema of every batch."""
        return message_schema(include_properties=self.include_properties, value=self.value)

    def filter_of(self, topic: str) -> Filter:
        """The filter sent to the broker; `topic` is the wire name."""
        return Filter.of(topic, self.tags if self.sql is None else Sql(self.sql), 0)

    @property
    def wants_all(self) -> bool:
        """Whether no filter is set, so that every message of a range is read."""
        return self.sql is None and not self.filter_of("").tags


class RecordBlock(NamedTuple):
    """Records as a broker sent them; some may lie beyond the end of the range."""

    body: bytes
    offset_delta: int
    """Added to the queue offset stored in each record."""


class RangeFetcher:
    """Fetches one queue range by successive pulls; single use.

    The fetch ends at the end offset of the range: filtered messages advance the offset too, and
    an empty reply is retried.
    """

    def __init__(self, cluster: Cluster, queue_range: QueueRange, options: ReadOptions) -> None:
        self._cluster = cluster
        self._range = queue_range
        self._options = options
        self._queue = cluster.on_wire(queue_range.queue)
        self._filter = options.filter_of(self._queue.topic)
        self._wants_all = options.wants_all
        self._offset = queue_range.start
        self._backoff = Backoff(f"queue {queue_range.queue}", options.patience)
        self._gaps_are_normal = False

    async def blocks(self) -> AsyncGenerator[RecordBlock, None]:
        """Raises as `bolide.arrow.topic_reader.read_range` does."""
        while self._offset < self._range.end:
            try:
                found = await self._pull_once()
            except BolideError as exc:
                await self._back_off(exc)
            else:
                self._backoff.succeeded()
                if found is not None:
                    yield found

    async def _back_off(self, failure: BolideError) -> None:
        if not (isinstance(failure, _NotAvailable) or self._is_transient(failure)):
            raise failure
        try:
            await self._backoff.back_off(failure)
        except OutOfPatience:
            if not isinstance(failure, _NotAvailable):
                raise
            self._report_loss(self._range.end, failure.bounds)
        await self._cluster.refresh_route(self._range.queue.topic)

    def _is_transient(self, failure: BolideError) -> bool:
        if isinstance(failure, ServerError) and _REMARK_BAD_FILTER in failure.remark:
            return False
        return is_transient(failure)

    async def _pull_once(self) -> RecordBlock | None:
        """Pull once and advance the offset as far as the reply covers."""
        reply = await self._cluster.pull(self._next_request(), self._options.group)
        if reply.is_reset:
            return None  # an offset reset concerns the members of the group only
        if reply.status is PullStatus.FOUND:
            return await self._accept(reply)
        if reply.status is PullStatus.NO_MATCHED_MSG:
            self._skip_filtered(reply)
        else:
            self._handle_out_of_bounds(reply)
        return None

    def _next_request(self) -> Pull:
        wanted = self._options.pull_batch_size
        if self._wants_all:
            wanted = min(wanted, self._range.end - self._offset)
        return Pull(
            queue=self._queue,
            filter=self._filter,
            queue_offset=self._offset,
            max_count=wanted,
            within=self._options.pull_timeout,
            with_subscription=True,
        )

    # Replies

    async def _accept(self, reply: RawPull) -> RecordBlock:
        header, delta = reply.header, reply.header.offset_delta or 0
        if header.next_begin_offset <= self._offset:
            raise _NotAvailable(reply)
        first = _QUEUE_OFFSET.unpack_from(reply.body)[0] + delta
        if self._wants_all and first > self._offset:
            await self._check_gap(first, reply)
        self._offset = header.next_begin_offset
        return RecordBlock(reply.body, delta)

    def _skip_filtered(self, reply: RawPull) -> None:
        """Skip messages that the filter rejected.

        A slave that redirects to its master replies with the same status and another remark.
        """
        after, remark = reply.header.next_begin_offset, reply.remark or _REMARK_FILTERED
        if after <= self._offset or remark not in (_REMARK_FILTERED, _REMARK_REMOVING):
            raise _NotAvailable(reply)
        if reply.remark == _REMARK_REMOVING:
            self._report_loss(after, _bounds(reply))
        else:
            self._offset = after

    def _handle_out_of_bounds(self, reply: RawPull) -> None:
        oldest, end = bounds = _bounds(reply)
        if reply.from_slave:
            raise _NotAvailable(reply)  # a slave may be behind its master
        if self._offset < oldest:
            self._report_loss(oldest, bounds)
        elif self._offset > end:
            self._report_loss(self._range.end, bounds)
        else:
            raise _NotAvailable(reply)

    async def _check_gap(self, first: int, reply: RawPull) -> None:
        """Decide whether missing offsets before `first` are a loss or compaction.

        Deleted log files are a loss: the minimum offset of the queue then exceeds the requested
        one. In a compacted topic single messages are missing and the queue begins earlier. The
        check is repeated, because a broker deletes log files before it raises the minimum offset.
        """
        for pause in (0.0, _RECHECK_DELAY):
            if self._gaps_are_normal:
                return
            await asyncio.sleep(pause)
            bounds = (await self._cluster.bounds([self._range.queue]))[self._range.queue]
            if bounds.oldest > self._offset:
                self._report_loss(first, bounds)
                return
        self._gaps_are_normal = True

    def _report_loss(self, resume_at: int, bounds: Bounds) -> None:
        """Raise DataLost, or log the loss and continue at `resume_at` if data loss is allowed."""
        if self._options.fail_on_data_loss:
            raise DataLost(self._range.queue, self._offset, *bounds)
        resume_at = min(resume_at, self._range.end)
        log.warning(
            "queue %s: %s messages are lost, offsets %s up to %s; the broker has %s up to %s",
            self._range.queue, resume_at - self._offset, self._offset, resume_at, *bounds,
        )  # fmt: skip
        self._offset = resume_at


class _NotAvailable(BolideError):
    """The broker has no reply yet for an offset within the range."""

    def __init__(self, reply: RawPull) -> None:
        super().__init__(f"the broker has no message there: {reply.remark or reply.status.name}")
        self.bounds = _bounds(reply)


def _bounds(reply: RawPull) -> Bounds:
    return Bounds(reply.header.min_offset, reply.header.max_offset)


class RangeBlocks(NamedTuple):
    """Blocks fetched for one of several ranges."""

    number: int
    """Index of the range."""
    blocks: Sequence[RecordBlock]
    is_last: bool
    """Whether the range is complete."""


async def fetch_all(
    cluster: Cluster, ranges: Iterable[QueueRange], options: ReadOptions, at_once: int = 1
) -> AsyncGenerator[RangeBlocks, None]:
    """Fetch ranges, up to `at_once` concurrently, each in queue order.

    The fetch runs ahead of its consumer by a bounded number of blocks.
    """
    pending = enumerate(ranges)
    fetched: asyncio.Queue[RangeBlocks | Exception | None] = asyncio.Queue(at_once)

    async def fetch() -> None:
        for number, queue_range in pending:
            async with aclosing(RangeFetcher(cluster, queue_range, options).blocks()) as blocks:
                async for group in _coalesce(blocks):
                    await fetched.put(RangeBlocks(number, group, is_last=False))
            await fetched.put(RangeBlocks(number, (), is_last=True))

    async def work() -> None:
        try:
            await fetch()
        except Exception as exc:  # noqa: BLE001  re-raised in the consumer by `_drain`
            await fetched.put(exc)
        else:
            await fetched.put(None)

    workers = [asyncio.create_task(work(), name="bolide-fetch") for _ in range(at_once)]
    try:
        async for blocks in _drain(fetched, at_once):
            yield blocks
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _coalesce(blocks: AsyncIterator[RecordBlock]) -> AsyncIterator[Sequence[RecordBlock]]:
    """Group small replies: each hand-over to another thread has a fixed cost."""
    group: list[RecordBlock] = []
    size = 0
    async for each in blocks:
        group.append(each)
        size += len(each.body)
        if size >= _COALESCE_SIZE:
            yield group
            group, size = [], 0
    if group:
        yield group


async def _drain(
    fetched: "asyncio.Queue[RangeBlocks | Exception | None]", workers: int
) -> AsyncIterator[RangeBlocks]:
    while workers:
        item = await fetched.get()
        if item is None:
            workers -= 1
        elif isinstance(item, Exception):
            raise item
        else:
            yield item
