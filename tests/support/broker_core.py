"""The core of a broker in memory: sends, pulls and send-backs, without sockets and with no disk."""

from pathlib import Path
from typing import Any

from bolide.broker.background import Background
from bolide.broker.consume.expiry import EXPIRING_TOPICS, Expiring
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.consume.pull import PullHandlers, PullParts, Pulls
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.dedup.windows import DedupWindows
from bolide.broker.fast_path.dispatch import FastPath
from bolide.broker.fast_path.pulls import PullLanes
from bolide.broker.fast_path.sends import SendLanes
from bolide.broker.gate import Hooks
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.produce.send import SendHandlers, SendParts
from bolide.broker.produce.send_back import SendBackHandlers, SendBackParts
from bolide.broker.statistics import Statistics
from bolide.broker.timers.timetable import Timetable
from bolide.broker.transactions.coordinator import Coordinator, TransactionHandlers
from bolide.broker.transactions.ending import EndingParts
from bolide.config import ConfigCell
from bolide.model.message import Host
from bolide.model.names import SCHEDULE_TOPIC
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.framing import FrameDecoder
from bolide.protocol.header import Header
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import UniqueIdMaker
from bolide.remoting.calls import ConnectionLimits
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from bolide.remoting.wire import Outbox
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.memory_store import MemoryStore
from bolide.store.tables import TOPICS, Table
from tests.support.aio import until
from tests.support.broker_tables import BrokerTables
from tests.support.clock import FakeClock
from tests.support.transport import FakeTransport
from tests.support.wire import request_bytes

HOST = Host("10.0.0.1", 10911)
MAX_LEVEL = 18


class BrokerCore:
    """Use it inside an event loop, and `await stop()` at the end.

    Topics are `T` with four queues and those that are given. Two cores are alike to the last bit.
    """

    def __init__(
        self,
        directory: Path,
        *topics: TopicConfig,
        hooks: Hooks | None = None,
        mode: FlushMode = FlushMode.ASYNC,
        store: MemoryStore | None = None,
        **settings: Any,
    ) -> None:
        self.clock = FakeClock(1_700_000_000.0)
        self.tables = BrokerTables(directory, settings, self.clock)
        self.cell = self.tables.cell
        self.store_cell = ConfigCell(StoreConfig(root=directory / "store", flush_mode=mode))
        self.store = store or MemoryStore(self.store_cell, clock=self.clock)
        self.store.__enter__()
        known = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
        self.topics = self._topic_table(directory, known, *topics)
        self.hooks = hooks or Hooks()
        self.statistics = Statistics("cluster", self.clock)
        self.durability = Durability(self.store, self.store_cell)
        self.long_polling = LongPolling()
        self.intake = Intake(self.store, self.durability, self.long_polling)
        self.background = Background()
        self.expiring = Expiring(Table(directory / "config", EXPIRING_TOPICS), now=self.clock)
        for part in (self.durability, self.intake, self.long_polling):
            part.start()
        self.duplicates = self.new_duplicates()
        self.duplicates.windows.start()
        self.pulls = self._pulls()
        self.lanes = PullLanes(self.pulls)
        self.transactions = self._coordinator()
        self.fast_path = self._fast_path()
        self.dispatcher = Dispatcher(
            self._send(),
            self._send_back(),
            PullHandlers(self.pulls),
            TransactionHandlers(self.transactions, self.store, self.background),
        )

    async def stop(self) -> None:
        self.long_polling.stop()
        self.duplicates.windows.stop()
        self.intake.stop()
        self.durability.stop()
        await self.background.stop()

    def connect(self, *, fast: bool = True, limits: ConnectionLimits | None = None) -> "Peer":
        return Peer(self, fast=fast, limits=limits)

    @property
    def log(self) -> list[tuple[int, bytes]]:
        """All that the store was given, byte for byte."""
        return self.store.log.items()

    def _topic_table(self, directory: Path, *topics: TopicConfig) -> TopicTable:
        table = Table(directory / "config", TOPICS)
        table.value.topic_config_table = {topic.topic_name: topic for topic in topics}
        return TopicTable(table, self.cell, self.clock)

    def new_duplicates(self) -> Duplicates:
        """As a restart makes them: they know nothing yet."""
        windows = DedupWindows(
            cell=self.cell,
            store=self.store,
            topics=self.topics,
            background=self.background,
            waiting=self._waiting,
            now=self.clock,
        )
        return Duplicates(
            windows,
            store=self.store,
            intake=self.intake,
            durability=self.durability,
            now=self.clock,
        )

    def _waiting(self) -> dict[int, tuple[int, int]]:
        """Nobody delivers delayed messages here: all of them wait."""
        return {
            level: (0, self.store.max_offset(SCHEDULE_TOPIC, level - 1))
            for level in range(1, MAX_LEVEL + 1)
        }

    def _fast_path(self) -> FastPath:
        sends = SendLanes(
            cell=self.cell,
            store_cell=self.store_cell,
            store=self.store,
            topics=self.topics,
            intake=self.intake,
            durability=self.durability,
            statistics=self.statistics,
            store_host=HOST,
            hooks=self.hooks,
            halves=self.transactions.queue,
        )
        return FastPath(sends, self.lanes)

    def _coordinator(self) -> Coordinator:
        parts = EndingParts(
            store=self.store,
            topics=self.topics,
            intake=self.intake,
            duplicates=self.duplicates,
            durability=self.durability,
            statistics=self.statistics,
            store_host=pack_host(HOST),
            max_level=MAX_LEVEL,
            timetable=Timetable(self.cell, self.clock, lenient=True),
            now=self.clock,
        )
        return Coordinator(
            parts,
            cell=self.cell,
            store_cell=self.store_cell,
            offsets=self.tables.offsets,
            clients=self.tables.clients,
            host=HOST,
        )

    def _send(self) -> SendHandlers:
        return SendHandlers(
            SendParts(
                cell=self.cell,
                topics=self.topics,
                groups=self.tables.groups,
                locks=self.tables.locks,
                intake=self.intake,
                duplicates=self.duplicates,
                durability=self.durability,
                statistics=self.statistics,
                background=self.background,
                expiring=self.expiring,
                unique_ids=UniqueIdMaker(b"\x0a\0\0\1", 1, 1),
                store_host=HOST,
                max_level=MAX_LEVEL,
                max_message_size=lambda: self.store_cell.value.max_message_size,
                hooks=self.hooks,
                now=self.clock,
            )
        )

    def _send_back(self) -> SendBackHandlers:
        return SendBackHandlers(
            SendBackParts(
                cell=self.cell,
                store=self.store,
                topics=self.topics,
                groups=self.tables.groups,
                intake=self.intake,
                durability=self.durability,
                statistics=self.statistics,
                store_host=HOST,
                max_level=MAX_LEVEL,
                now=self.clock,
            )
        )

    def _pulls(self) -> Pulls:
        return Pulls(
            PullParts(
                cell=self.cell,
                store_cell=self.store_cell,
                store=self.store,
                log_end=lambda: self.store.log.written,
                topics=self.topics,
                groups=self.tables.groups,
                offsets=self.tables.offsets,
                clients=self.tables.clients,
                long_polling=self.long_polling,
                statistics=self.statistics,
                background=self.background,
                expiring=self.expiring,
                filters=self.tables.filters,
                hooks=self.hooks,
                now=self.clock,
            )
        )


class Peer:
    """A client of a core: what it sends is received at once, what it gets is kept."""

    def __init__(self, core: BrokerCore, *, fast: bool, limits: ConnectionLimits | None) -> None:
        self._outbox = Outbox()
        self._decoder = FrameDecoder()
        self._opaque = 0
        self._answers: dict[int, Frame] = {}
        self.connection = Connection(
            core.dispatcher,
            limits or ConnectionLimits(),
            outbox=self._outbox,
            fast=core.fast_path if fast else None,
        )
        self.transport = FakeTransport()
        self.transport.attach(self.connection)

    def receive(self, data: bytes) -> None:
        self.connection.data_received(data)

    @property
    def written(self) -> bytes:
        """All bytes that the broker sent."""
        self._outbox.flush()
        return b"".join(self.transport.writes)

    def answer(self, opaque: int) -> Frame | None:
        """The response to a request, if there is one by now."""
        self._outbox.flush()
        writes, self.transport.writes = self.transport.writes, []
        for frame in self._decoder.feed(b"".join(writes)):
            assert frame.opaque not in self._answers, "answered twice"
            self._answers[frame.opaque] = frame
        return self._answers.get(opaque)

    def ask(
        self,
        code: RequestCode,
        header: Header | dict[str, str],
        body: bytes = b"",
        *,
        one_way: bool = False,
    ) -> int:
        """Send a request; its number is what `answer` wants."""
        self._opaque += 1
        fields = header.to_fields() if isinstance(header, Header) else header
        self.receive(request_bytes(code, fields, opaque=self._opaque, body=body, one_way=one_way))
        return self._opaque

    async def call(
        self, code: RequestCode, header: Header | dict[str, str], body: bytes = b""
    ) -> Frame:
        """Send a request and wait for its response, whatever its code."""
        opaque = self.ask(code, header, body)
        await until(lambda: self.answer(opaque))
        found = self.answer(opaque)
        assert found is not None
        return found
