"""Transactions against a table of what became of them, through ends, questions and crashes.

A crash ends the process between any two appends; the store keeps what it was given, the offsets
are those of the last time they were saved. Whatever happens, what was committed is in its topic
exactly once, and nothing else is.
"""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine
from enum import Enum, auto
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bolide.broker.arrivals import Arrivals
from bolide.broker.background import Background
from bolide.broker.duplicates import Duplicates
from bolide.broker.durability import Durability
from bolide.broker.intake import Intake
from bolide.broker.key_windows import KeyWindows
from bolide.broker.statistics import Statistics
from bolide.broker.timers.timetable import Timetable
from bolide.broker.transactions.coordinator import Coordinator
from bolide.broker.transactions.ending import Ending, EndingParts
from bolide.broker.transactions.half import Half, Op, half_draft
from bolide.broker.transactions.half_queue import read_all
from bolide.config import ConfigCell
from bolide.model.message import Host, TransactionType
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import IllegalOperation, TransactionFailed
from bolide.store.appending import Appended
from bolide.store.config import StoreConfig
from bolide.store.memory_store import MemoryStore
from tests.support.broker_tables import BrokerTables
from tests.support.clock import FakeClock

T = TypeVar("T")
HOST = Host("10.0.0.1", 10911)
PACKED = pack_host(HOST)
RULES = {"transaction_timeout": 6.0, "transaction_check_max": 3}
IMMUNITY = 20.0

states = st.sampled_from([TransactionType.COMMIT, TransactionType.ROLLBACK])


class Crash(BaseException):
    """The process is gone."""


class Fate(Enum):
    OPEN = auto()
    ASIDE = auto()
    COMMIT = TransactionType.COMMIT
    ROLLBACK = TransactionType.ROLLBACK


class MortalIntake(Intake):
    """Ends the process after so many appends."""

    left = 10**9

    def append(self, draft: RecordDraft) -> Appended:
        if self.left == 0:
            raise Crash
        self.left -= 1
        return super().append(draft)


class Producers:
    """Whom the broker may ask: they are there or not, and never answer by themselves."""

    def __init__(self) -> None:
        self.are_there = True
        self.asked: list[Half] = []

    def choose(self, _: str) -> object | None:
        return self if self.are_there else None

    async def ask(self, _: object, half: Half) -> None:
        self.asked.append(half)


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(1_700_000_000.0)
        self.directory = Path(tempfile.mkdtemp(prefix="transactions-model-"))
        self.store = MemoryStore(ConfigCell(StoreConfig()), clock=self.clock)
        self.store.__enter__()
        self.loop = asyncio.new_event_loop()
        self.fates: list[Fate] = []
        self.addresses: list[list[tuple[int, int]]] = []
        """By transaction: the halves that somebody knows of, by physical and queue offset."""
        self.immune: set[int] = set()
        self.producers = Producers()
        self.background = Background()
        self.tables = BrokerTables(self.directory, dict(RULES), self.clock)
        topic = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
        self.run(self.tables.topics.update(topic))
        self.begin_life()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def begin_life(self) -> None:
        self.run(self._begin_life())

    async def _begin_life(self) -> None:
        durability = Durability(self.store, self.store.config)
        self.intake = MortalIntake(self.store, durability, Arrivals())
        durability.start()
        self.intake.start()
        windows = KeyWindows(
            cell=self.tables.cell,
            store=self.store,
            topics=self.tables.topics,
            background=self.background,
            waiting=dict,
            now=self.clock,
        )
        duplicates = Duplicates(
            windows, store=self.store, intake=self.intake, durability=durability, now=self.clock
        )
        parts = EndingParts(
            store=self.store,
            topics=self.tables.topics,
            intake=self.intake,
            duplicates=duplicates,
            durability=durability,
            statistics=Statistics("c", self.clock),
            store_host=PACKED,
            max_level=18,
            timetable=Timetable(self.tables.cell, self.clock),
            now=self.clock,
        )
        items = self.store.log.items()
        self.coordinator = Coordinator(
            parts,
            cell=self.tables.cell,
            store_cell=self.store.config,
            offsets=self.tables.offsets,
            clients=self.tables.clients,
            host=HOST,
            last_record=items[-1][0] if items else -1,
        )
        self.coordinator.checking._asking = self.producers  # type: ignore[assignment]
        await self.coordinator.queue.load()

    # ---- what happens

    @rule(immune=st.booleans())
    def send(self, immune: bool) -> None:
        number = len(self.fates)
        properties = {"UNIQ_KEY": f"id-{number}", "TRAN_MSG": "true", "PGROUP": "g"}
        if immune:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(int(IMMUNITY))
            self.immune.add(number)
        now = int(self.clock() * 1000)
        plain = RecordDraft(b"T", str(number).encode(), b"", 0, now, PACKED, PACKED)
        place = self.run(self._append(half_draft(plain, properties, "g")))
        self.fates.append(Fate.OPEN)
        self.addresses.append([(place.physical_offset, place.queue_offset)])

    async def _append(self, draft: RecordDraft) -> Appended:
        return self.intake.append(draft)

    @precondition(lambda self: self.fates)
    @rule(data=st.data(), state=states, from_check=st.booleans(), appends=st.integers(0, 4))
    def end(
        self, data: st.DataObject, state: TransactionType, from_check: bool, appends: int
    ) -> None:
        """Somebody ends a transaction by a half he knows of; the process may not live so long."""
        number = data.draw(st.integers(0, len(self.fates) - 1))
        at, queue_offset = data.draw(st.sampled_from(self.addresses[number]))
        self.intake.left = appends if appends < 4 else 10**9
        ending = Ending(at, queue_offset, state, "g", from_check)
        ended = self.fates[number] in (Fate.COMMIT, Fate.ROLLBACK)
        try:
            self.run(self.coordinator.endings.end(ending))
        except Crash:
            assert not ended
            self.restart_after_crash()
        except TransactionFailed:
            assert ended
            assert self.fates[number] is not Fate(state)
        except IllegalOperation:
            assert number in self.immune
            assert not from_check
        else:
            assert not ended or self.fates[number] is Fate(state)
            self.fates[number] = Fate(state)
        self.intake.left = 10**9

    @rule(appends=st.integers(0, 12), are_there=st.booleans())
    def look(self, appends: int, are_there: bool) -> None:
        self.intake.left = appends if appends < 12 else 10**9
        self.producers.are_there = are_there
        self.producers.asked.clear()
        try:
            self.run(self.coordinator.checking.look())
        except Crash:
            self.learn_of_questions()
            self.restart_after_crash()
        else:
            self.learn_of_questions()
            self.see_what_was_set_aside()
        self.intake.left = 10**9

    def learn_of_questions(self) -> None:
        for half in self.producers.asked:
            number = int(bytes(half.record.body))
            assert self.fates[number] is Fate.OPEN
            if number in self.immune:
                assert self.clock() >= half.record.born_timestamp / 1000 + IMMUNITY
            self.addresses[number].append((half.record.physical_offset, half.queue_offset))

    def see_what_was_set_aside(self) -> None:
        """Those whose last copy lies aside, and that were asked often enough for that."""
        for number, fate in enumerate(self.fates):
            if fate is Fate.OPEN and not self.is_open(number):
                halves = self.halves_of(number, HALF_TOPIC)
                aside = self.halves_of(number, TRANS_CHECK_MAX_TIME_TOPIC)
                assert max(half.times for half in halves) == RULES["transaction_check_max"]
                assert aside[-1].record.physical_offset > halves[-1].record.physical_offset
                self.fates[number] = Fate.ASIDE

    @rule()
    def resume_all(self) -> None:
        for number, fate in enumerate(self.fates):
            if fate is Fate.ASIDE:
                aside = self.halves_of(number, TRANS_CHECK_MAX_TIME_TOPIC)
                self.run(self.coordinator.resume(aside[0]))
                self.fates[number] = Fate.OPEN

    @rule(seconds=st.floats(0, 40))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def save_offsets(self) -> None:
        self.tables.offsets.save()

    @rule()
    def restart(self) -> None:
        self.coordinator.save()
        self.tables.offsets.save()
        self.crash()

    @rule()
    def crash(self) -> None:
        self.tables = self.tables.restarted()
        self.begin_life()

    def restart_after_crash(self) -> None:
        """What the end of the process left undone may be done or not; the store tells."""
        self.crash()
        ends = {}
        for record in read_all(self.store, OP_HALF_TOPIC, 0, 10**6):
            op = Op.read(record)
            if op.origin is not None and op.state is not TransactionType.NONE:
                ends[op.origin] = op.state
        for number, fate in enumerate(self.fates):
            origin = self.addresses[number][0][1]
            if origin in ends:
                self.fates[number] = Fate(ends[origin])
            elif fate in (Fate.OPEN, Fate.ASIDE):
                self.fates[number] = Fate.OPEN if self.is_open(number) else Fate.ASIDE

    # ---- what must hold

    @invariant()
    def what_was_committed_is_there_once(self) -> None:
        found = read_all(self.store, "T", 0, self.store.max_offset("T", 0))
        delivered = Counter(int(bytes(record.body)) for record in found)
        committed = {n for n, fate in enumerate(self.fates) if fate is Fate.COMMIT}
        assert delivered == Counter(committed)

    @invariant()
    def every_open_one_has_one_open_half(self) -> None:
        halves = list(map(Half, read_all(self.store, HALF_TOPIC, 0, 10**6)))
        queue = self.coordinator.queue.open
        left = [int(bytes(h.record.body)) for h in halves if queue.is_open(h.queue_offset)]
        assert sorted(left) == [n for n, fate in enumerate(self.fates) if fate is Fate.OPEN]
        assert queue.count(len(halves)) == len(left)

    def is_open(self, number: int) -> bool:
        queue = self.coordinator.queue.open
        return any(queue.is_open(h.queue_offset) for h in self.halves_of(number, HALF_TOPIC))

    def halves_of(self, number: int, topic: str) -> list[Half]:
        halves = map(Half, read_all(self.store, topic, 0, 10**6))
        return [half for half in halves if int(bytes(half.record.body)) == number]

    def teardown(self) -> None:
        self.intake.stop()
        self.loop.close()
        shutil.rmtree(self.directory)


def run_model(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        TransactionMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def test_what_is_committed_is_delivered_once_whatever_happens() -> None:
    run_model(examples=40, steps=30)


@pytest.mark.long
def test_what_is_committed_is_delivered_once_in_long_runs_too() -> None:
    run_model(examples=600, steps=60)
