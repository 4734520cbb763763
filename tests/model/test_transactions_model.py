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

from bolide.broker.produce.intake import Intake
from bolide.broker.transactions.ending import EndRequest
from bolide.broker.transactions.half_messages import Half, Op
from bolide.broker.transactions.open_halves import read_all
from bolide.config import ConfigCell
from bolide.model.message import TransactionType
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import IllegalOperation, TransactionFailed
from bolide.store.appending import Appended
from bolide.store.config import StoreConfig
from bolide.store.memory_store import MemoryStore
from tests.support.clock import FakeClock
from tests.support.transaction_core import Producers, TransactionCore, new_tables, number_of

T = TypeVar("T")
IMMUNITY = 20.0
MOST_CHECKS = 3
FOREVER = 10**9

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

    left = FOREVER

    def append(self, draft: RecordDraft) -> Appended:
        if self.left == 0:
            raise Crash
        self.left -= 1
        return super().append(draft)


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
        self.tables = new_tables(self.directory, self.clock, transaction_check_max=MOST_CHECKS)
        self.begin_life()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def begin_life(self) -> None:
        async def begin() -> None:
            self.core = TransactionCore(self.store, self.tables, MortalIntake, self.producers)
            await self.core.start()

        self.run(begin())

    def live_for(self, appends: int) -> None:
        assert isinstance(self.core.intake, MortalIntake)
        self.core.intake.left = appends

    # ---- what happens

    @rule(immune=st.booleans())
    def send(self, immune: bool) -> None:
        more = {"CHECK_IMMUNITY_TIME_IN_SECONDS": str(int(IMMUNITY))} if immune else {}
        if immune:
            self.immune.add(len(self.fates))
        place = self.run(self.core.send(len(self.fates), **more))
        self.fates.append(Fate.OPEN)
        self.addresses.append([(place.physical_offset, place.queue_offset)])

    @precondition(lambda self: self.fates)
    @rule(
        data=st.data(),
        state=states,
        from_check=st.booleans(),
        appends=st.sampled_from([0, 1, 2, 3, FOREVER]),
    )
    def end(
        self, data: st.DataObject, state: TransactionType, from_check: bool, appends: int
    ) -> None:
        """Somebody ends a transaction by a half he knows of; the process may not live so long."""
        number = data.draw(st.integers(0, len(self.fates) - 1))
        at, queue_offset = data.draw(st.sampled_from(self.addresses[number]))
        ending = EndRequest(at, queue_offset, state, "g", from_check)
        ended = self.fates[number] in (Fate.COMMIT, Fate.ROLLBACK)
        self.live_for(appends)
        try:
            self.run(self.core.coordinator.ender.end(ending))
        except Crash:
            assert not ended
            self.begin_life_after_crash()
        except TransactionFailed:
            assert ended
            assert self.fates[number] is not Fate(state)
        except IllegalOperation:
            assert number in self.immune
            assert not from_check
        else:
            assert not ended or self.fates[number] is Fate(state)
            self.fates[number] = Fate(state)
        self.live_for(FOREVER)

    @rule(appends=st.sampled_from([0, 1, 2, 3, 5, 8, FOREVER]), are_there=st.booleans())
    def look(self, appends: int, are_there: bool) -> None:
        self.producers.are_there = are_there
        self.producers.asked.clear()
        self.live_for(appends)
        try:
            self.run(self.core.coordinator.check_back.run_round())
        except Crash:
            self.learn_of_questions()
            self.begin_life_after_crash()
        else:
            self.learn_of_questions()
            self.see_what_was_set_aside()
        self.live_for(FOREVER)

    def learn_of_questions(self) -> None:
        for half in self.producers.asked:
            number = number_of(half)
            assert self.fates[number] is Fate.OPEN
            if number in self.immune:
                assert self.clock() >= half.record.born_timestamp / 1000 + IMMUNITY
            self.addresses[number].append((half.record.physical_offset, half.queue_offset))

    def see_what_was_set_aside(self) -> None:
        """Those that are no longer open lie aside, and were asked often enough for that."""
        for number, fate in enumerate(self.fates):
            if fate is Fate.OPEN and number not in self.core.open:
                halves = self.halves_of(number, HALF_TOPIC)
                aside = self.halves_of(number, TRANS_CHECK_MAX_TIME_TOPIC)
                assert max(half.check_times for half in halves) == MOST_CHECKS
                assert aside[-1].record.physical_offset > halves[-1].record.physical_offset
                self.fates[number] = Fate.ASIDE

    @rule()
    def resume_all(self) -> None:
        for number, fate in enumerate(self.fates):
            if fate is Fate.ASIDE:
                aside = self.halves_of(number, TRANS_CHECK_MAX_TIME_TOPIC)
                self.run(self.core.coordinator.resume(aside[0]))
                self.fates[number] = Fate.OPEN

    @rule(seconds=st.floats(0, 40))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def save_offsets(self) -> None:
        self.tables.offsets.save()

    @rule()
    def stop_and_start(self) -> None:
        self.core.coordinator.save()
        self.tables.offsets.save()
        self.crash()

    @rule()
    def crash(self) -> None:
        self.tables = self.tables.restarted()
        self.begin_life()

    def begin_life_after_crash(self) -> None:
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
                self.fates[number] = Fate.OPEN if number in self.core.open else Fate.ASIDE

    # ---- what must hold

    @invariant()
    def what_was_committed_is_there_once(self) -> None:
        committed = [n for n, fate in enumerate(self.fates) if fate is Fate.COMMIT]
        assert Counter(self.core.delivered) == Counter(committed)

    @invariant()
    def every_open_one_has_one_open_half(self) -> None:
        left = [n for n, fate in enumerate(self.fates) if fate is Fate.OPEN]
        assert sorted(self.core.open) == left
        end = self.store.max_offset(HALF_TOPIC, 0)
        assert self.core.coordinator.queue.open.count(end) == len(left)

    def halves_of(self, number: int, topic: str) -> list[Half]:
        halves = map(Half, read_all(self.store, topic, 0, 10**6))
        return [half for half in halves if number_of(half) == number]

    def teardown(self) -> None:
        self.core.stop()
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
    run_model(examples=50, steps=30)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_is_committed_is_delivered_once_in_long_runs_too() -> None:
    run_model(examples=600, steps=60)
