"""The transactions of a broker in memory, without sockets and with a fake clock."""

from pathlib import Path
from typing import Any

from bolide.broker.background import Background
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.dedup.windows import DedupWindows
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.statistics import Statistics
from bolide.broker.timers.timetable import Timetable
from bolide.broker.transactions.coordinator import Coordinator
from bolide.broker.transactions.ending import EndingParts
from bolide.broker.transactions.half_messages import Half, half_draft
from bolide.broker.transactions.open_halves import read_all
from bolide.model.message import Host
from bolide.model.names import HALF_TOPIC
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended
from bolide.store.memory_store import MemoryStore
from tests.support.broker_tables import BrokerTables
from tests.support.clock import FakeClock

HOST = Host("10.0.0.1", 10911)
PACKED = pack_host(HOST)


class Producers:
    """Producers that are connected or not, and never answer by themselves."""

    def __init__(self) -> None:
        self.are_there = True
        self.asked: list[Half] = []

    def choose(self, _: Half) -> object | None:
        return self if self.are_there else None

    async def send_check(self, _: object, half: Half) -> None:
        self.asked.append(half)


class TransactionCore:
    """One run of a broker with a topic T; the store and the tables may come from the last run."""

    def __init__(
        self,
        store: MemoryStore,
        tables: BrokerTables,
        intake: type[Intake] = Intake,
        producers: Producers | None = None,
    ) -> None:
        self.store = store
        self.tables = tables
        self.clock: FakeClock = tables.clock
        self.producers = producers or Producers()
        self.durability = Durability(store, store.config)
        self.intake = intake(store, self.durability, LongPolling())
        self.durability.on_progress.add(self.intake.wake_up_to)
        self.background = Background()
        items = store.log.items()
        self.coordinator = Coordinator(
            self._parts(),
            cell=tables.cell,
            store_cell=store.config,
            offsets=tables.offsets,
            clients=tables.clients,
            host=HOST,
            last_record=items[-1][0] if items else -1,
        )
        self.coordinator.check_back._sender = self.producers  # type: ignore[assignment]

    def _parts(self) -> EndingParts:
        windows = DedupWindows(
            cell=self.tables.cell,
            store=self.store,
            topics=self.tables.topics,
            background=self.background,
            waiting=dict,
            now=self.clock,
        )
        return EndingParts(
            store=self.store,
            topics=self.tables.topics,
            intake=self.intake,
            duplicates=Duplicates(
                windows,
                store=self.store,
                intake=self.intake,
                now=self.clock,
            ),
            durability=self.durability,
            statistics=Statistics("c", self.clock),
            store_host=PACKED,
            max_level=18,
            timetable=Timetable(self.tables.cell, self.clock),
            now=self.clock,
        )

    async def start(self) -> None:
        self.durability.start()
        self.intake.start()
        if "T" not in self.tables.topics:
            topic = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
            await self.tables.topics.update(topic)
        await self.coordinator.queue.load()

    def stop(self) -> None:
        self.intake.stop()
        self.durability.stop()

    async def send(self, number: int, **more: str) -> Appended:
        """Store a half whose body is the number."""
        properties = {"UNIQ_KEY": f"id-{number}", "TRAN_MSG": "true", "PGROUP": "g"} | more
        now = int(self.clock() * 1000)
        plain = RecordDraft(b"T", str(number).encode(), b"", 0, now, PACKED, PACKED)
        return self.intake.append(half_draft(plain, properties, "g"))

    @property
    def halves(self) -> list[Half]:
        """All halves in the queue, copies included."""
        return list(map(Half, read_all(self.store, HALF_TOPIC, 0, 10**6)))

    @property
    def open(self) -> list[int]:
        """The queue offsets of the open halves."""
        queue = self.coordinator.queue.open
        return [number_of(half) for half in self.halves if queue.is_open(half.queue_offset)]

    @property
    def delivered(self) -> list[int]:
        found = read_all(self.store, "T", 0, self.store.max_offset("T", 0))
        return [int(bytes(record.body)) for record in found]


def number_of(half: Half) -> int:
    return int(bytes(half.record.body))


def new_tables(directory: Path, clock: FakeClock, **settings: Any) -> BrokerTables:
    chosen = {"transaction_timeout": 6.0, "transaction_check_max": 3} | settings
    return BrokerTables(directory, chosen, clock)
