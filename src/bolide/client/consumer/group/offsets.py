"""Where the progress of a group is kept: at the brokers, in a file, or where the user likes."""

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import field

from bolide import snapshot
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import Long
from bolide.protocol.headers.offsets import CommitOffsetHeader, OffsetReply, QueryOffsetHeader

log = logging.getLogger(__name__)

LOCAL_DIRECTORY = ".rocketmq_offsets"
"""Below the home directory, where Java clients keep theirs too."""


Table = tuple[str, str]
"""A broker and a topic: where a group has one offset for each queue."""


class OffsetStore(Protocol):
    """Keeps one offset for each queue: everything before it was consumed."""

    async def read(self, queue: MessageQueue) -> int | None:
        """None if there is none; raises if that cannot be said now."""

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Keep these; with `wait` return only when they are kept, and raise if they are not."""


class OffsetSettings(Protocol):
    """Where a consumer wants its offsets."""

    @property
    def offset_store(self) -> OffsetStore | None: ...

    @property
    def offset_directory(self) -> str | Path | None: ...

    @property
    def is_broadcasting(self) -> bool: ...


def offset_store(instance: ClientInstance, group: str, settings: OffsetSettings) -> OffsetStore:
    """The store that a consumer has been given, or the usual one of its model."""
    if settings.offset_store is not None:
        return settings.offset_store
    if settings.is_broadcasting:
        return LocalOffsets(settings.offset_directory, instance.client_id, group)
    return RemoteOffsets(instance, group)


class RemoteOffsets:
    """At the broker of each queue, where every member of the group finds them."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._rare = ThrottledLog(log)
        # RocketMQ's brokers take requests in any order: one write has ended before the next begins.
        self._writing = asyncio.Lock()
        self._greeting = asyncio.Lock()
        self._greeted: set[str] = set()  # brokers that know of the group
        # Of two offsets that begin a topic's table at once RocketMQ's brokers may lose one.
        self._beginning: defaultdict[Table, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._begun: set[Table] = set()

    async def read(self, queue: MessageQueue) -> int | None:
        address = await self._instance.routes.require_master(queue.broker_name, queue.topic)
        found = await self._instance.call(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryOffsetHeader(
                consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id
            ),
            accept={ResponseCode.QUERY_NOT_FOUND},
        )
        if found.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return OffsetReply.from_fields(found.fields).offset

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Commit; without `wait` failures are logged only: the next write says more anyway.

        Raises:
            BolideError: with `wait`: not all were kept.
        """
        async with self._writing:
            writes = (self._write(*each) for each in offsets.items())
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
        for queue, outcome in zip(offsets, outcomes, strict=True):
            if outcome is None:
                self._rare.forget(queue.broker_name)
            elif wait or not isinstance(outcome, BolideError):
                raise outcome
            else:
                text = "group %s: offsets at %s cannot be committed now: %s"
                self._rare.warning(queue.broker_name, text, self._group, queue.broker_name, outcome)

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        header = CommitOffsetHeader(self._group, queue.topic, queue.queue_id, offset)
        address = await self._instance.routes.require_master(queue.broker_name, queue.topic)
        await self._greet(address)
        table = (queue.broker_name, queue.topic)
        async with self._beginning[table]:
            if table not in self._begun:
                await self._instance.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
                self._begun.add(table)
                return
        await self._instance.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _greet(self, address: str) -> None:
        """Brokers take no offsets of groups they have not heard of; a heartbeat makes a group."""
        async with self._greeting:
            if address not in self._greeted:
                known = self._instance.routes.addresses()
                await self._instance.heartbeat()
                self._greeted |= {address, *known}


class OffsetTable(fastjson.Struct, kw_only=True):
    """The file of a broadcasting consumer (`OffsetSerializeWrapper`)."""

    offset_table: dict[MessageQueue, Long] = field(default_factory=dict)


class LocalOffsets:
    """In `<directory>/<client id>/<group>/offsets.json`, in the form of Java's clients.

    The file is replaced whole, so a crash leaves the old one or the new one; `.bak` is the one
    before. A file that cannot be read falls back to it, and with neither the group begins anew.
    """

    def __init__(self, directory: str | Path | None, client_id: str, group: str) -> None:
        root = Path(directory) if directory else Path.home() / LOCAL_DIRECTORY
        self.path = root / client_id / group / "offsets.json"
        self._table: dict[MessageQueue, int] | None = None
        self._changes = self._kept = 0  # changes of the table, and how many the file has
        self._writing = threading.Lock()  # a write whose waiter was cancelled may still be at it

    async def read(self, queue: MessageQueue) -> int | None:
        return (await self._load()).get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        table = await self._load()
        if any(table.get(queue) != offset for queue, offset in offsets.items()):
            table.update(offsets)
            self._changes += 1
        if self._kept < self._changes:
            await asyncio.to_thread(self._keep, table, self._changes)

    async def _load(self) -> dict[MessageQueue, int]:
        if self._table is None:
            found = await asyncio.to_thread(self._read_file)
            # Another reader may have been first, and its table may have been written to.
            self._table = found if self._table is None else self._table
        return self._table

    def _keep(self, table: dict[MessageQueue, int], change: int) -> None:
        with self._writing:
            if self._kept >= change:
                return  # another write took it along
            changes = self._changes  # before the copy: it has these changes at least
            snapshot.replace(self.path, fastjson.encode(OffsetTable(offset_table=dict(table))))
            self._kept = changes

    def _read_file(self) -> dict[MessageQueue, int]:
        for data in snapshot.read(self.path):
            try:
                return fastjson.decode(data, OffsetTable).offset_table
            except fastjson.BadJson as exc:
                log.warning("%s or its backup cannot be read: %s", self.path, exc)
        return {}
