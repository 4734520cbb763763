"""Keys that are parked, through failures, crashes, late writes and administrators.

The code under test does the steps; the log of the park queue, the source queue and its committed
offset are values here. Whenever a handler is called, or a dead letter is made, everything before it
of the same key was handled or became a dead letter before; and in the end that is true of all.
"""

import asyncio
from collections import defaultdict
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bolide.client.consumer.counters import TopicCounters
from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers import key_scheduler, key_step_runner
from bolide.client.consumer.handlers.handler import Handler
from bolide.client.consumer.handlers.invocation import ConsumerRuntime, Hooks
from bolide.client.consumer.handlers.key_scheduler import KeyScheduler, RewriteParked
from bolide.client.consumer.handlers.key_step_runner import KeyStepRunner, RetryRules
from bolide.client.consumer.handlers.workers import Workers
from bolide.client.consumer.parking.park import Park, Superseded
from bolide.client.consumer.parking.parked_keys import NONE
from bolide.client.consumer.parking.records import Kind, ParkRecord
from bolide.model.message import StoredMessage
from tests.support.park_log import SOURCE, Crash, MemoryParkLog

KEYS = ["a", ""]

_MOST_STEPS = 500

keys = st.sampled_from(KEYS)


class Handled(Exception):
    """What a handler raises that is told to fail."""


class Member:
    """One tenure, with the parts that do the work."""

    def __init__(self, world: "ParkingMachine", start: int) -> None:
        self.world = world
        self.held = HeldQueue(SOURCE, start, lambda: 0.0)
        self.park = Park(cast(Any, world.log), SOURCE, lambda: None)
        self.scheduler = KeyScheduler(self.park.keys, lambda: self.held.process.next_offset)
        self.last: dict[str, int] = {}
        handler = Handler.of(self.handle, ordered=True, batch=1, inline=True)
        runtime = ConsumerRuntime(
            "group",
            {"T": handler},
            Workers(4, "model"),
            cast(Any, self),
            TopicCounters(lambda: 0.0),
            Hooks(()),
        )
        rules = RetryRules(0, 0.0)
        self.steps = KeyStepRunner(self.held, "T", runtime, self.scheduler, self.park, rules)
        self.reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.park.open()
        self.reading = asyncio.create_task(self.park.run())

    def handle(self, message: StoredMessage) -> None:
        key = message.sharding_key or ""
        self.world.may_come(key, message)
        if message.queue_offset <= self.last.get(key, -1):
            self.world.wrongs.append(f"{message.queue_offset} comes again in one tenure")
        if self.world.fails:
            raise Handled
        self.last[key] = message.queue_offset
        self.world.settled.add(message.queue_offset)

    async def resend(self, message: StoredMessage, *, dead: bool) -> None:
        """As `SendBack`: here are dead letters."""
        self.world.may_come(message.sharding_key or "", message)
        self.world.settled.add(message.queue_offset)

    async def step(self, key: str) -> bool:
        """Do the next step of a key; False if there is none."""
        step = self.scheduler.next(key, 1)
        if step is None:
            return False
        note(f"{key!r}: {step}")
        self.scheduler.begin(key)
        try:
            await self.steps.run(key, step)
        finally:
            self.scheduler.end(key)
        return True

    async def stop(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            await asyncio.wait([self.reading])


class ParkingMachine(RuleBasedStateMachine):
    """A source queue, its park queue, and members that hold it one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.source: list[StoredMessage] = []
        self.of_key: defaultdict[str, list[int]] = defaultdict(list)
        self.committed = 0
        self.settled: set[int] = set()
        self.wrongs: list[str] = []  # noted, as a handler that raises is not heard of
        self.fails = False
        self.member: Member | None = None
        self.left: Member | None = None

    @initialize()
    def begin(self) -> None:
        self.log = MemoryParkLog()

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert self.wrongs == []

    # The world

    @rule(some=st.lists(keys, min_size=1, max_size=4))
    def produce(self, some: list[str]) -> None:
        for key in some:
            self.send(key)

    def send(self, key: str) -> None:
        offset = len(self.source)
        properties = {"__SHARDINGKEY": key} if key else {}
        message = StoredMessage("T", b"%d" % offset, properties, queue_offset=offset)
        self.source.append(message)
        self.of_key[key].append(offset)

    @rule(key=keys, dead=st.booleans())
    def administrate(self, key: str, *, dead: bool) -> None:
        parked = self.log.fold().find(key)
        if parked is not None:
            offset = parked.last_offset if dead else NONE
            record = ParkRecord(kind=Kind.RESUME, topic="T", queue_id=0, key=key, offset=offset)
            self.log.put(record)
            self.run(asyncio.sleep(0))

    @rule()
    def delete_old_files(self) -> None:
        """As a broker does, but nothing that was written again in time."""
        seen = self.log.fold()
        park_offsets = [entry.park_offset for each in seen for entry in each.entries.values()]
        kinds = [record.kind for record, _ in self.log.records]
        resumes = [at for at, (r, _) in enumerate(self.log.records) if r.key in seen.resuming]
        opens = [at for at, kind in enumerate(kinds) if kind is Kind.OPEN]
        self.log.first = min([len(kinds), *park_offsets, *resumes, *opens[-1:]])

    # A member

    @precondition(lambda self: self.member is None)
    @rule()
    def join(self) -> None:
        member = Member(self, self.committed)
        self.run(member.open())
        self.member = member

    @precondition(lambda self: self.member is not None)
    @rule(count=st.integers(1, 4))
    def pull(self, count: int) -> None:
        held = self.require().held
        at = held.process.next_offset
        fresh = held.accept(self.source[at : at + count], min(at + count, len(self.source)))
        self.require().scheduler.add(fresh)

    @precondition(lambda self: self.member is not None)
    @rule(key=keys, fails=st.booleans(), count=st.integers(1, 3))
    def step(self, key: str, *, fails: bool, count: int) -> None:
        self.fails = fails
        try:
            while count and self.run(self.require().step(key)):
                count -= 1
                self.fails = False
        except Superseded:
            self.leave()

    @precondition(lambda self: self.member is not None)
    @rule(key=keys, fails=st.booleans(), when=st.sampled_from(["before", "after"]))
    def crash_writing(self, key: str, *, fails: bool, when: str) -> None:
        self.fails, self.log.crashes = fails, when
        try:
            for _ in range(_MOST_STEPS):
                if not self.log.crashes or not self.run(self.require().step(key)):
                    break
            else:
                raise AssertionError("it comes to no end")
        except (Crash, Superseded):
            self.leave()
        self.log.crashes = None

    @precondition(lambda self: self.member is not None)
    @rule(key=keys, fails=st.booleans())
    def write_unheard(self, key: str, *, fails: bool) -> None:
        """A record is written, but whoever wrote it takes it for failed."""
        self.log.crashes = "unheard"
        self.step(key, fails=fails, count=3)
        self.log.crashes = None

    @precondition(lambda self: self.member is not None)
    @rule(key=keys)
    def refresh(self, key: str) -> None:
        scheduler = self.require().scheduler
        scheduler.request_rewrite([key])
        try:
            if isinstance(scheduler.next(key, 1), RewriteParked):
                self.run(self.require().step(key))
        except Superseded:
            self.leave()

    @precondition(lambda self: self.member is not None)
    @rule()
    def commit(self) -> None:
        self.committed = self.require().held.process.unfinished

    @precondition(lambda self: self.member is not None)
    @rule()
    def crash(self) -> None:
        self.leave()

    @precondition(lambda self: self.member is not None and self.left is not None)
    @rule(key=keys)
    def write_late(self, key: str) -> None:
        """A member that lost the queue does one more write; it must not count."""
        assert self.left is not None
        scheduler, before = self.left.scheduler, self.log.fold()
        waiting = scheduler._keys.get(key)  # what it had pulled
        if waiting is None or not waiting.waiting:
            return
        message = waiting.waiting[0]
        self.left.reading = self.loop.create_task(self.left.park.run())
        with pytest.raises(Superseded):
            self.run(self.left.park.put(key, message, "late", 1))
        after = self.log.fold()
        assert list(before) == list(after)

    @precondition(lambda self: self.member is not None)
    @rule()
    def open_late(self) -> None:
        """One that lost the queue begins anew: whoever has it writes nothing that is lost."""
        self.log.put(ParkRecord(kind=Kind.OPEN, topic="T", queue_id=0, epoch="late"))

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            if self.member is not None:
                self.leave()
            if self.left is not None:
                self.run(self.left.stop())
            self.loop.close()

    def finish(self) -> None:
        """Everything works again: nothing may be missing then."""
        if self.member is not None:
            self.leave()
        self.fails = False
        self.join()
        for count in (0, 1, len(self.source), 0):  # what is set aside goes on before all is pulled
            for parked in self.log.fold():
                self.administrate(parked.key, dead=False)
            self.run(asyncio.sleep(0))
            self.pull(count)
            for key in KEYS:
                for _ in range(_MOST_STEPS):
                    if not self.run(self.require().step(key)):
                        break
                else:
                    raise AssertionError("it comes to no end")
        assert self.wrongs == []
        assert self.settled == set(range(len(self.source)))
        assert len(self.log.fold()) == 0
        assert self.require().held.process.unfinished == len(self.source)

    # Help

    def may_come(self, key: str, message: StoredMessage) -> None:
        before = [each for each in self.of_key[key] if each < message.queue_offset]
        if missing := set(before) - self.settled:
            self.wrongs.append(f"{message.queue_offset} of {key!r} comes before {missing}")
        if message.body != b"%d" % message.queue_offset:
            self.wrongs.append(f"{message.queue_offset} is {message.body!r}")

    def require(self) -> Member:
        assert self.member is not None
        return self.member

    def leave(self) -> None:
        if self.left is not None:
            self.run(self.left.stop())
        self.left, self.member = self.require(), None
        self.run(self.left.stop())

    def run(self, work: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(5):
                return await work

        return self.loop.run_until_complete(bounded())


CHECKS = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def _others_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_scheduler, "_MAX_LAG", 3)
    monkeypatch.setattr(key_step_runner, "AFTER_FAILURE", 0.0)


def test_no_message_of_a_key_is_lost_or_overtaken() -> None:
    run_state_machine_as_test(ParkingMachine, settings=CHECKS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_message_of_a_key_is_lost_or_overtaken_in_many_histories() -> None:
    many = settings(CHECKS, max_examples=2000, stateful_step_count=80)
    run_state_machine_as_test(ParkingMachine, settings=many)
