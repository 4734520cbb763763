"""POP of a broker in memory: no sockets, a clock that stands, and crashes that cost nothing."""

from pathlib import Path
from typing import Any

from bolide.broker.background import Background
from bolide.broker.consume.expiry import EXPIRING_TOPICS, Expiring
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.gate import Hooks
from bolide.broker.pop.ack_handlers import PopAckHandlers
from bolide.broker.pop.ordered import ORDERS
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.pop_handlers import PopHandlers, PopParts
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.model.message import Host
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft
from bolide.remoting.dispatch import Dispatcher
from bolide.store.config import StoreConfig
from bolide.store.memory_store import MemoryStore
from bolide.store.tables import Table
from tests.support.broker_core import Peer
from tests.support.broker_tables import BrokerTables
from tests.support.clock import FakeClock

HOST = pack_host(Host("10.0.0.1", 10911))


class PopCore:
    """Use it inside an event loop. `crashed` is what a broker knows that starts on what it left."""

    fast_path = None

    def __init__(
        self,
        directory: Path,
        *,
        clock: FakeClock | None = None,
        store: MemoryStore | None = None,
        max_backlog: int = 50_000,
        **settings: Any,
    ) -> None:
        self._directory = directory
        self._max_backlog = max_backlog
        self._settings = settings
        self.clock = clock or FakeClock(1_700_000_000.0)
        self.tables = BrokerTables(directory, settings, self.clock)
        self.store = store or MemoryStore(clock=self.clock)
        self.store.__enter__()
        cell = ConfigCell(StoreConfig(root=directory / "store"))
        self.durability = Durability(self.store, cell)
        self.long_polling = LongPolling()
        self.intake = Intake(self.store, self.durability, self.long_polling)
        self.durability.on_progress.add(self.intake.wake_up_to)
        self.background = Background()
        self.pop = self._pop(cell)
        self.long_polling.on_arrival.add(self.pop.polling.arrived)
        self.tables.offsets.on_reset.add(self.pop.positions.reset)
        self.tables.offsets.on_removed.add(self.pop.positions.forget)
        for part in (self.durability, self.intake, self.long_polling):
            part.start()
        self.pop.load()
        self.pop.start()
        self.dispatcher = self._dispatcher()
        self.peer = Peer(self.dispatcher)

    async def create(self, topic: str, queues: int) -> None:
        config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        await self.tables.topics.update(config)

    def send(self, topic: str, queue_id: int, body: bytes, properties: bytes = b"") -> int:
        """The offset of the new message."""
        born = int(self.clock() * 1000)
        draft = RecordDraft(topic.encode(), body, properties, queue_id, born, HOST, HOST)
        return self.intake.append(draft).queue_offset

    async def call(self, code: RequestCode, header: Header, body: bytes = b"") -> Frame:
        return await self.peer.call(code, header, body)

    async def work(self) -> None:
        """Do all that is due."""
        while await self.pop.work():
            pass

    def save(self) -> None:
        """Write the tables, as a broker does now and then."""
        self.tables.offsets.save()
        self.tables.groups.save()
        self.pop.checkpointer.save_orders(float("inf"))

    async def stop(self) -> None:
        self.long_polling.stop()
        self.pop.journal.end_burst()
        self.intake.stop()
        self.durability.stop()
        await self.background.stop()

    async def stopped(self) -> "PopCore":
        """The next one, after a clean end."""
        await self.stop()
        self.pop.save()
        self.save()
        return self._next()

    async def crashed(self) -> "PopCore":
        """The next one: it knows what is in the log, and of the tables what was saved."""
        await self.stop()
        return self._next()

    def _next(self) -> "PopCore":
        return PopCore(
            self._directory,
            clock=self.clock,
            store=self.store,
            max_backlog=self._max_backlog,
            **self._settings,
        )

    def _pop(self, store_cell: ConfigCell[StoreConfig]) -> Pop:
        tables = self.tables
        orders = Table(self._directory / "config", ORDERS)
        orders.load()
        return Pop(
            cell=tables.cell,
            store_cell=store_cell,
            store=self.store,
            log_end=lambda: self.store.log.written,
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            statistics=Statistics("cluster", self.clock),
            intake=self.intake,
            durability=self.durability,
            long_polling=self.long_polling,
            expiring=Expiring(Table(self._directory / "config", EXPIRING_TOPICS), now=self.clock),
            orders=orders,
            store_host=HOST,
            now=self.clock,
            max_backlog=self._max_backlog,
        )

    def _dispatcher(self) -> Dispatcher:
        parts = PopParts(
            cell=self.tables.cell,
            pop=self.pop,
            filters=self.tables.filters,
            statistics=self.pop.statistics,
            background=self.background,
            hooks=Hooks(),
            now=self.clock,
        )
        return Dispatcher(PopHandlers(parts), PopAckHandlers(self.pop, self.pop.statistics))
