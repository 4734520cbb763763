"""Copies the metadata of a master to its slave: topics, groups, offsets, timers and the rest.

What features need to go on after a failover is in the log, so it arrives with it: half messages,
waiting timers, the POP journal, the keys of dedup windows. The tables below `config` say how far
the master has come with them. A slave asks for the tables that have changed, once a second, and
adopts them when its log has reached the position that the master's had when it read them: a table
that was ahead of the log would skip messages. It asks only a master whose log it continues: one
that lost its log would have it delete its topics.

A master of RocketMQ is asked by RocketMQ's own requests, table by table, and less often.
"""

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bolide.broker.background import ADMIN, on_saving_thread, on_thread
from bolide.broker.delay import DelayScheduler
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.replicas.table_copies import MAX_PARTS, CopyReader, copied_tables
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.tables import Tables
from bolide.broker.timers import Timers
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.protocol.codes import RequestCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.headers.offsets import CommitOffsetHeader, OffsetReply, QueryOffsetHeader
from bolide.protocol.headers.replication import ReplicaStateHeader, ReplicaStateReply
from bolide.protocol.refusals import QueryNotFound, Refusal, RequestCodeNotSupported
from bolide.remoting.client import RemotingClient
from bolide.remoting.tasks import uninterrupted
from bolide.store.message_store import MessageStore
from bolide.store.tables import has_batch_queues
from bolide.store.timers import TimerCheckpoint

log = logging.getLogger(__name__)

_JAVA_INTERVAL = 3.0
"""Seconds between two copies from a master of RocketMQ, which sends every table as a whole."""
_MAX_LOAD, _LONGEST_PAUSE = 20, 10.0
"""The requests for the tables take at most one part in so many of the time, however large they are;
the pause between two is never longer than the second, in seconds."""
_UNKNOWN_MASTER_DELAY = 0.1
_LEAST_PAUSE = 0.05
_LOG_PATIENCE = 5.0
"""Seconds that a copy waits for the log before it is replaced by a newer one."""
_JAVA_TABLES = {
    "topics": RequestCode.GET_ALL_TOPIC_CONFIG,
    "groups": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "offsets": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "delay_offsets": RequestCode.GET_ALL_DELAY_OFFSET,
    "request_modes": RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
}


@dataclass(slots=True, kw_only=True)
class SyncedParts:
    """The parts of a slave that use copied tables while it is a slave."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    delay: DelayScheduler
    timers: Timers


class MetadataSync:
    """Keeps the tables of a slave equal to its master's; belongs to one event loop."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        store: MessageStore,
        tables: Tables,
        parts: SyncedParts,
        broker_id: int = -1,
    ) -> None:
        self._broker_id = broker_id
        self._cell = cell
        self._store = store
        self._tables = copied_tables(tables)
        self._parts = parts
        self._known: dict[str, int] = {}
        """CRC of each table that was adopted, by file name."""
        self._client: RemotingClient | None = None
        self._is_java = False
        self._calls_took = 0.0
        self._failing = ""
        self._connection: Callable[[], int] = lambda: 0
        """See `Replica.following`."""
        self._adopted_on = 0
        """The connection on which the last copy was adopted."""
        self._new_topics: set[str] = set()
        """Topics of the adopted table of which the store does not know the kind of queues yet."""
        self._timers = b""
        """The checkpoint of the timers that was adopted last."""
        self._hurry = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()  # copies write the same files

    def use(self, client: RemotingClient) -> None:
        self._client = client

    async def run(self, master: Callable[[], str | None], following: Callable[[], int]) -> None:
        """Copy tables until cancelled; failures are logged once and tried again.

        Args:
            master: returns the address of the master for requests.
            following: see `Replica.following`.
        """
        self._connection = following
        while True:
            address, connection = master(), following()
            if address is None or not connection:
                await asyncio.sleep(_UNKNOWN_MASTER_DELAY)
                continue
            self._calls_took = 0.0
            self._hurry.clear()
            try:
                was_first = self._adopted_on != connection
                await self.copy(address)
                self._failing = ""
                if was_first and self._adopted_on == connection:
                    continue  # the master learns at once that this slave has its tables
            except Exception as exc:  # noqa: BLE001  logged; the next round tries again
                self._report(address, exc)
            await self._wait()

    async def _wait(self) -> None:
        """Pause, for less time if a topic is missing."""
        interval = _JAVA_INTERVAL if self._is_java else self._cell.value.metadata_sync_interval
        least = max(min(_MAX_LOAD * self._calls_took, _LONGEST_PAUSE), _LEAST_PAUSE)
        await asyncio.sleep(least)
        with suppress(TimeoutError):
            async with asyncio.timeout(interval - least):
                await self._hurry.wait()

    def arrived(self, topics: Iterable[str]) -> None:
        """Messages of these topics have arrived: copy the settings of unknown ones soon."""
        if not self._is_java and any(topic not in self._parts.topics for topic in topics):
            self._hurry.set()

    def _report(self, address: str, exc: Exception) -> None:
        if self._failing != str(exc):
            self._failing = str(exc)
            log.warning("the metadata of master %s cannot be copied: %s", address, exc)

    async def copy(self, address: str) -> None:
        """Copy what has changed at the master once, unless its log is not followed.

        Raises:
            RemotingError, Refusal: the master does not answer, or not with the tables.
            BadJson: its answer cannot be read.
        """
        async with self._one_at_a_time:
            await self._copy(address)

    async def _copy(self, address: str) -> None:
        assert self._client is not None
        connection, is_adopted = self._connection(), False
        if not connection:
            return
        if not self._is_java:
            try:
                is_adopted = await self._copy_changes(self._client, address)
            except RequestCodeNotSupported:
                self._is_java = True
        if self._is_java:
            is_adopted = await self._copy_from_java(self._client, address)
        if is_adopted:
            self._adopted_on = connection
            await self._send_home(self._client, address)

    async def _send_home(self, client: RemotingClient, address: str) -> None:
        """Commit at the master what was committed here meanwhile and is ahead.

        Consumers do so until they know that the master is back, for up to half a minute.
        """
        offsets = self._parts.offsets
        for group, topic, queue_id, offset in offsets.own():
            try:
                if await _offset_at(client, address, (group, topic, queue_id)) < offset:
                    header = CommitOffsetHeader(group, topic, queue_id, offset)
                    await client.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
            except Refusal as exc:
                log.info("the master does not take an offset of %s in %s: %s", group, topic, exc)
            offsets.forget_own(group, topic, queue_id)

    async def _copy_changes(self, client: RemotingClient, address: str) -> bool:
        """Adopt the tables that have changed; False if the log has not come that far."""
        connection, position = self._connection(), self._store.replica.dispatched
        copy = await self._fetch(client, address, connection)
        state = await on_thread(ADMIN, copy.finish)
        if not await self._has_log(state.log_end) or self._connection() != connection:
            return False
        by_file = {table.path.name: name for name, table in self._tables.items()}
        values = {by_file[file]: value for file, value in copy.values.items()}
        await uninterrupted(self._adopt(values, position))
        if state.timer_checkpoint:
            await uninterrupted(self._adopt_timers(base64.b64decode(state.timer_checkpoint)))
        self._known |= {table.name: table.crc for table in state.tables}
        return True

    async def _fetch(self, client: RemotingClient, address: str, connection: int) -> CopyReader:
        """Fetch all parts of a copy of what has changed.

        Raises:
            ProtocolError: the copy is damaged, or has too many parts.
        """
        known = ";".join(f"{name}={crc}" for name, crc in self._known.items())
        has_adopted = self._adopted_on == connection
        wanted = ReplicaStateHeader(known, self._broker_id, has_adopted)
        copy = CopyReader({table.path.name: table for table in self._tables.values()})
        part, parts = 0, 1
        while part < parts:
            begun = time.monotonic()
            try:
                answer = await client.call(address, RequestCode.BOLIDE_GET_REPLICA_STATE, wanted)
            finally:
                self._calls_took += time.monotonic() - begun
            reply = ReplicaStateReply.from_fields(answer.fields)
            if not 0 < reply.parts <= MAX_PARTS:
                raise ProtocolError(
                    f"the master's copy of its tables has {reply.parts} parts: at most {MAX_PARTS}"
                    " are copied"
                )
            await on_thread(ADMIN, copy.add, bytes(answer.body))
            part, parts = part + 1, reply.parts
            wanted = ReplicaStateHeader(copy_id=reply.copy_id, part=part)
        return copy

    async def _has_log(self, position: int) -> bool:
        """Wait until this log, as far as it is confirmed, has reached a position."""
        deadline = time.monotonic() + _LOG_PATIENCE
        while self._store.log.readable < position:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    async def _copy_from_java(self, client: RemotingClient, address: str) -> bool:
        connection, texts = self._connection(), {}
        position = self._store.replica.dispatched
        for name, code in _JAVA_TABLES.items():
            try:
                answer = await client.call(address, code)
            except RequestCodeNotSupported:
                continue  # RocketMQ 4.9 has no request modes
            if answer.body:
                texts[name] = bytes(answer.body)
        try:
            answer = await client.call(address, RequestCode.GET_TIMER_CHECK_POINT)
            timers = bytes(answer.body).ljust(4096, b"\0") if answer.body else b""
        except BolideError:
            timers = b""  # RocketMQ 4.9 has no timers, and 5.x may have them switched off
        if self._connection() != connection:
            return False
        decoded = {
            name: await on_thread(ADMIN, self._tables[name].decode, text)
            for name, text in texts.items()
        }
        await uninterrupted(self._adopt(decoded, position))
        if timers:
            await uninterrupted(self._adopt_timers(timers))
        return True

    # ---- adopting

    async def _adopt(self, tables: Mapping[str, Any], position: int) -> None:
        """Adopt tables.

        Args:
            position: what was dispatched when they were asked for: so far they cover the log, as a
                master saves the settings of a topic before its first message.
        """
        for name in [each for each in self._tables if each in tables]:  # topics come first
            await self._adopt_one(name, tables[name])
        await self._adopt_kinds(position)

    async def _adopt_kinds(self, position: int) -> None:
        """Tell the store which topics exist now, and which have batch queues."""
        doubtful = self._store.kinds.doubtful(position)
        names = self._new_topics | {name.decode(errors="replace") for name in doubtful}
        if names:
            await on_thread(ADMIN, self._tell_kinds, names, position)
        else:
            self._store.kinds.adopt({}, position)
        self._new_topics.clear()

    def _tell_kinds(self, names: Collection[str], position: int) -> None:
        find = self._parts.topics.find
        kinds = {name: has_batch_queues(topic) if (topic := find(name)) else None for name in names}
        self._store.adopt_kinds(kinds, position)

    async def _adopt_one(self, name: str, value: Any) -> None:
        parts, table = self._parts, self._tables[name]
        if name == "topics":
            self._new_topics |= await parts.topics.adopt(value)
        elif name == "groups":
            await parts.groups.adopt(value)
        elif name == "offsets":
            await parts.offsets.adopt(value)
        elif name == "delay_offsets":
            parts.delay.adopt(value)
        else:  # read when this slave becomes master
            table.value = value
            table.changed()
            await on_saving_thread(table.save)

    async def _adopt_timers(self, data: bytes) -> None:
        checkpoint = TimerCheckpoint.decode(data)
        if checkpoint.read_time and data != self._timers:
            await on_thread(ADMIN, self._parts.timers.adopt, checkpoint)
            self._timers = data


async def _offset_at(client: RemotingClient, address: str, queue: tuple[str, str, int]) -> int:
    """What the master has for a group, a topic and a queue id; -1 if nothing."""
    group, topic, queue_id = queue
    header = QueryOffsetHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
    )
    try:
        answer = await client.call(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    except QueryNotFound:
        return -1
    return OffsetReply.from_fields(answer.fields).offset
