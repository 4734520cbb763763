"""Stores for the consumed offsets of a group: at the brokers, in a local file, or user-defined."""

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import field

from bolide import snapshot
from bolide.client.errors import BrokerUnknown
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.leader_calls import call_group, call_leader
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import Long
from bolide.protocol.headers.offsets import CommitOffsetHeader, OffsetReply, QueryOffsetHeader
from bolide.remoting.errors import RemotingError

log = logging.getLogger(__name__)

LOCAL_DIRECTORY = ".rocketmq_offsets"
"""Below the home directory, where Java clients store theirs too."""

_BrokerTopic = tuple[str, str]  # broker name and topic


class OffsetStore(Protocol):
    """Stores one offset for each queue: everything before it was consumed."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The stored offset, or None; raises if the store cannot be read now."""

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Store offsets; with `wait`, return after they are stored and raise if that fails."""


class OffsetSettings(Protocol):
    """The settings that select a store."""

    @property
    def offset_store(self) -> OffsetStore | None: ...

    @property
    def offset_directory(self) -> str | Path | None: ...

    @property
    def is_broadcasting(self) -> bool: ...


def offset_store(instance: ClientInstance, group: str, settings: OffsetSettings) -> OffsetStore:
    """The store given in the settings, or the default one of the message model."""
    if settings.offset_store is not None:
        return settings.offset_store
    if settings.is_broadcasting:
        return LocalOffsets(settings.offset_directory, instance.client_id, group)
    return RemoteOffsets(instance, group)


class RemoteOffsets:
    """Offsets at the broker of each queue, shared by all members of the group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._throttled = ThrottledLog(log)
        # Brokers may process requests in any order, so writes are serialized.
        self._writing = asyncio.Lock()
        self._announcing = asyncio.Lock()
        self._announced: set[str] = set()  # addresses of brokers that know the group
        # RocketMQ's brokers may lose one of two concurrent commits that create a topic's table.
        self._first_commits: defaultdict[_BrokerTopic, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._committed: set[_BrokerTopic] = set()

    async def read(self, queue: MessageQueue) -> int | None:
        """The committed offset; from a slave if the master is away.

        Raises:
            BrokerUnknown: the master is away, and a slave has no offset. The master may have one.
        """
        reply, from_slave = await call_group(
            self._instance,
            queue,
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryOffsetHeader(
                consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id
            ),
            accept={ResponseCode.QUERY_NOT_FOUND},
        )
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            if from_slave:
                raise BrokerUnknown(queue.broker_name)
            return None
        return OffsetReply.from_fields(reply.fields).offset

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Commit; without `wait`, failures are only logged: the next write supersedes this one.

        Raises:
            BolideError: with `wait`: not all offsets were committed.
        """
        async with self._writing:
            writes = (self._write(*each) for each in offsets.items())
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
        for queue, outcome in zip(offsets, outcomes, strict=True):
            if outcome is None:
                self._throttled.forget(queue.broker_name)
            elif wait or not isinstance(outcome, BolideError):
                raise outcome
            else:
                text = "group %s: offsets at %s cannot be committed now: %s"
                name = queue.broker_name
                self._throttled.warning(name, text, self._group, name, outcome)

    async def _write(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit to the master; while it is away to a slave, for members that start meanwhile.

        Consumers commit all their offsets periodically, so a master that returns gets them then.
        """
        header = CommitOffsetHeader(self._group, queue.topic, queue.queue_id, queue_offset)
        routes = self._instance.routes
        if routes.master_of(queue) in self._instance.suspects and routes.slaves_of(queue):
            await self._write_to_slave(queue, header)
            return
        try:
            await self._write_to_master(queue, header)
        except (RemotingError, BrokerUnknown) as exc:
            try:
                await self._write_to_slave(queue, header)
            except BolideError:
                raise exc from None

    async def _write_to_slave(self, queue: MessageQueue, header: CommitOffsetHeader) -> None:
        failure: BolideError = BrokerUnknown(queue.broker_name)
        for address in self._instance.routes.slaves_of(queue):
            try:
                await self._instance.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
            except RemotingError as exc:
                failure = exc
            else:
                return
        raise failure

    async def _write_to_master(self, queue: MessageQueue, header: CommitOffsetHeader) -> None:
        routes, code = self._instance.routes, RequestCode.UPDATE_CONSUMER_OFFSET
        await self._announce(await routes.require_master_of(queue))
        broker_topic = (routes.broker_of(queue), queue.topic)
        async with self._first_commits[broker_topic]:
            if broker_topic not in self._committed:
                await call_leader(self._instance, queue, code, header)
                self._committed.add(broker_topic)
                return
        await call_leader(self._instance, queue, code, header)

    async def _announce(self, address: str) -> None:
        """Send a heartbeat first: brokers refuse offsets of groups they do not know."""
        async with self._announcing:
            if address not in self._announced:
                known = self._instance.routes.addresses()
                await self._instance.heartbeat()
                self._announced |= {address, *known}


class OffsetFile(fastjson.Struct, kw_only=True):
    """The file of a broadcasting consumer (`OffsetSerializeWrapper` in Java)."""

    offset_table: dict[MessageQueue, Long] = field(default_factory=dict)


class LocalOffsets:
    """Offsets in `<directory>/<client id>/<group>/offsets.json`, in the format of Java's clients.

    The file is replaced atomically, so a crash leaves the old or the new version; `.bak` is the
    previous version and is read if the file is damaged. With neither, the group has no offsets.
    """

    def __init__(self, directory: str | Path | None, client_id: str, group: str) -> None:
        root = Path(directory) if directory else Path.home() / LOCAL_DIRECTORY
        self.path = root / client_id / group / "offsets.json"
        self._table: dict[MessageQueue, int] | None = None
        self._changes = self._saved = 0  # number of changes of the table, and of those in the file
        self._writing = threading.Lock()  # a write whose awaiting task was cancelled may still run

    async def read(self, queue: MessageQueue) -> int | None:
        return (await self._load()).get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        table = await self._load()
        if any(table.get(queue) != offset for queue, offset in offsets.items()):
            table.update(offsets)
            self._changes += 1
        if self._saved < self._changes:
            await asyncio.to_thread(self._save, table, self._changes)

    async def _load(self) -> dict[MessageQueue, int]:
        if self._table is None:
            loaded = await asyncio.to_thread(self._read_file)
            # A concurrent reader may have loaded the table first, and it may have changed since.
            self._table = loaded if self._table is None else self._table
        return self._table

    def _save(self, table: dict[MessageQueue, int], change: int) -> None:
        with self._writing:
            if self._saved >= change:
                return  # a later write included this change
            changes = self._changes  # read before the copy, which has at least these changes
            snapshot.replace(self.path, fastjson.encode(OffsetFile(offset_table=dict(table))))
            self._saved = changes

    def _read_file(self) -> dict[MessageQueue, int]:
        for data in snapshot.read(self.path):
            try:
                return fastjson.decode(data, OffsetFile).offset_table
            except fastjson.BadJson as exc:
                log.warning("%s or its backup cannot be read: %s", self.path, exc)
        return {}
