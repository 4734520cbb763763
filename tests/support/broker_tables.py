"""The tables of a broker on files of a test, and a server with the handlers that use them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolide.broker.filters.filters import Filters
from bolide.broker.filters.functions import FILTER_FUNCTIONS, FilterFunctions
from bolide.broker.filters.subscriptions import FilterTable
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_locks import QueueLocks
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.remoting.client import RemotingClient
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.server import RemotingServer, ServerConfig
from bolide.store.disk import Disk
from bolide.store.memory_store import MemoryStore
from bolide.store.tables import (
    CONSUMER_FILTERS,
    CONSUMER_OFFSETS,
    GROUPS,
    QUEUE_MAPPINGS,
    TOPICS,
    Table,
    TableKind,
)
from tests.support.clock import FakeClock


class BrokenDisk(Disk):
    """A disk that can be told to refuse whole files."""

    is_full = False

    def replace(self, path: Path, data: bytes) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().replace(path, data)


@dataclass
class BrokerTables:
    """All tables of one broker; making them again on the same directory is a restart."""

    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=FakeClock)
    told: list[tuple[Connection, str]] = field(default_factory=list)
    """Who was told that the members of which group changed."""

    def __post_init__(self) -> None:
        names = {"broker_name": "broker-a", "broker_ip1": "10.0.0.1"}
        self.cell = ConfigCell(BrokerConfig(**names | self.settings))
        self.disk = BrokenDisk()
        self.topics = TopicTable(self._load(TOPICS), self.cell, self.clock)
        self.mappings = QueueMappings(self._load(QUEUE_MAPPINGS), self.clock)
        self.groups = GroupTable(self._load(GROUPS), self.cell, self.clock)
        self.offsets = OffsetTable(self._load(CONSUMER_OFFSETS), self.clock)
        self.clients = ClientTable(self.cell, self.groups, self.clock)
        self.clients.on_members_changed.add(self._tell)
        self.locks = QueueLocks(self.clock)
        self.filters = Filters(
            self.cell,
            FilterTable(self._load(CONSUMER_FILTERS), self.clock),
            FilterFunctions(self._load(FILTER_FUNCTIONS), self.cell, self.clock),
            self.clients,
        )
        self.store = MemoryStore(clock=self.clock)
        self.store.__enter__()

    def _tell(self, name: str) -> None:
        group = self.clients.consumer_group(name)
        self.told.extend(
            (connection, name) for connection in (group.by_connection if group else ())
        )

    def _load(self, kind: TableKind[Any]) -> Table[Any]:
        table = Table(self.directory / "config", kind, disk=self.disk)
        table.load()
        return table

    def restarted(self, **settings: Any) -> "BrokerTables":
        """What a broker finds that starts on these files."""
        return BrokerTables(self.directory, self.settings | settings, self.clock)


class Caller:
    """A client of one server, whose connections the server knows."""

    def __init__(self, server: RemotingServer, client: RemotingClient) -> None:
        self.server = server
        self._client = client

    async def call(
        self, code: RequestCode, header: Header | dict[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        return await self._client.call(self.server.address, code, header, body=body)

    @property
    def connection(self) -> Connection:
        """The one connection, as the server sees it."""
        (connection,) = self.server.connections
        return connection


@asynccontextmanager
async def served(tables: BrokerTables, *handlers: object) -> AsyncIterator[Caller]:
    server = RemotingServer(
        ServerConfig(host="127.0.0.1"),
        Dispatcher(*handlers),
        on_close=tables.clients.connection_lost,
    )
    async with server, RemotingClient() as client:
        yield Caller(server, client)
