"""The store of files against the store in memory, through appends, crashes and retention.

A crash is a copy of the directory while the store is open: what a killed process leaves, as the
page cache outlives it. With SYNC_FLUSH what was not flushed is lost then, and nothing else; with
ASYNC_FLUSH nothing is.
"""

import shutil
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bolide.kernel import records as reference
from bolide.model.message import SysFlag
from bolide.protocol.headers.offsets import Boundary
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended
from bolide.store.config import FlushMode
from bolide.store.disk import Disk
from bolide.store.memory_store import MemoryStore
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits, ReadStatus
from tests.support.clock import FakeClock
from tests.support.store import MONDAY_NOON, draft, small_config

TOPICS = ["A", "B"]
QUEUES = [0, 1]
KEYS = ["k1", "k2", "k3"]
_NOTHING_THERE = {ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE}

topics = st.sampled_from(TOPICS)
queue_ids = st.sampled_from(QUEUES)
bodies = st.sampled_from([0, 1, 100, 700, 1500]).map(lambda size: b"x" * size)
properties = st.fixed_dictionaries(
    {}, optional={"TAGS": st.sampled_from("ab"), "KEYS": st.sampled_from([*KEYS, "k1 k2", "k3 k3"])}
)
flags = st.sampled_from([0, 0, int(SysFlag.PREPARED), int(SysFlag.ROLLBACK)])


class HastyDisk(Disk):
    """Waits for nothing: the page cache is what survives here."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


class StoreMachine(RuleBasedStateMachine):
    """`pending` is what the store of files was given and has not flushed (SYNC_FLUSH)."""

    mode = FlushMode.ASYNC

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(MONDAY_NOON)
        self.directory = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.runs = count()
        self.pending: list[tuple[list[RecordDraft], list[Appended], float]] = []
        self.topic_was_removed = False

    @initialize(log_size=st.sampled_from([4096, 16384]), queue_units=st.sampled_from([3, 8]))
    def begin(self, log_size: int, queue_units: int) -> None:
        self.sizes = {"log_size": log_size, "queue_units": queue_units}
        self.root = self.directory / str(next(self.runs))
        self.files = self.open()
        self.told = FakeClock(MONDAY_NOON)
        self.memory = MemoryStore(self.files.config.value, clock=self.told).__enter__()

    def open(self) -> MessageStore:
        config = small_config(
            self.root, mode=self.mode, delete_when=(), file_reserved_hours=1, **self.sizes
        )
        store = MessageStore(config, clock=self.clock, disk=HastyDisk(), background=False)
        return store.__enter__()

    def teardown(self) -> None:
        if hasattr(self, "files"):
            self.files.close()
        shutil.rmtree(self.directory)

    def all_is_flushed(self) -> None:
        """Give the model what the store of files has made readable."""
        for drafts, appended, when in self.pending:
            self.told.now = when
            assert self.memory.append_batch(drafts) == [
                each._replace(generation=0) for each in appended
            ]
        self.pending.clear()

    # ---- appending

    @rule(
        topic=topics, queue_id=queue_ids,
        messages=st.lists(st.tuples(bodies, properties, flags), min_size=1, max_size=3),
    )  # fmt: skip
    def append(
        self, topic: str, queue_id: int, messages: list[tuple[bytes, dict[str, str], int]]
    ) -> None:
        drafts = [
            draft(topic, body, queue_id=queue_id, properties=properties, sys_flag=flag)
            for body, properties, flag in messages
        ]
        if sum(len(each.body) + 200 for each in drafts) > self.sizes["log_size"]:
            drafts = drafts[:1]
        self.put(drafts)

    @rule(number=st.integers(2, 25), size=st.sampled_from([10, 300, 700]))
    def append_many(self, number: int, size: int) -> None:
        for each in range(number):
            properties = {"KEYS": KEYS[each % 3]} if each % 2 else {}
            self.put([draft(TOPICS[each % 5 // 3], bytes(size), queue_id=0, properties=properties)])

    def put(self, drafts: list[RecordDraft]) -> None:
        self.pending.append((drafts, self.files.append_batch(drafts), self.clock.now))
        if self.mode is FlushMode.ASYNC:
            self.all_is_flushed()

    @rule()
    def flush(self) -> None:
        waiting = [each for _, appended, _ in self.pending for each in appended]
        assert self.files.flush()
        assert all(self.files.wait_flushed(each) for each in waiting)
        self.all_is_flushed()

    @rule()
    def end_burst(self) -> None:
        assert self.files.end_burst()

    @rule(seconds=st.sampled_from([10, 60, 1800]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    # ---- maintenance

    @rule()
    def keep_house(self) -> None:
        self.files.maintenance.run()

    @rule()
    def prepare_the_next_file(self) -> None:
        self.files.log.prepare()

    @rule()
    def checkpoint(self) -> None:
        assert self.files.maintenance.checkpoint()
        self.all_is_flushed()

    @rule(hours=st.sampled_from([0, 2]), flushed=st.booleans())
    def delete_expired(self, hours: int, flushed: bool) -> None:
        """What is not flushed is not deleted."""
        if flushed:
            self.flush()
        self.clock.advance(hours * 3600)
        self.files.maintenance.run()
        self.files.retention.delete_expired_soon()
        self.files.retention.run()
        if self.files.log.min_offset > self.memory.log.min_offset:
            self.memory.trim(self.files.log.min_offset)

    @rule(topic=topics)
    def remove_topic(self, topic: str) -> None:
        had = {key for key in self.files.queues.keys if key[0] == topic.encode()}
        assert self.files.remove_topic(topic) == len(had)
        if had:
            self.all_is_flushed()  # a checkpoint follows
            self.topic_was_removed = True
        self.memory.remove_topic(topic)

    # ---- stopping and starting

    @rule()
    def reopen(self) -> None:
        self.files.close()
        assert not (self.root / "abort").exists()
        self.all_is_flushed()
        self.files = self.open()
        assert self.files.recovery.clean
        assert not self.files.recovery.rebuilt

    @rule(late=st.booleans(), rebooted=st.booleans(), plain=st.booleans())
    def crash(self, late: bool, rebooted: bool, plain: bool) -> None:
        """`late`: there was time to write everything. `plain`: recover with the plain kernel."""
        if late:
            self.flush()
            self.keep_house()
        self.die()
        with ExitStack() as stack:
            if rebooted:
                stack.enter_context(patch("bolide.store.recovery.boot_id", lambda: "another"))
            if plain:
                stack.enter_context(patch("bolide.store.recovery.scan", reference.scan))
                stack.enter_context(patch("bolide.store.index_file.put_keys", reference.put_keys))
            self.files = self.open()
        assert not self.files.recovery.clean
        assert not self.files.recovery.cut
        assert not self.files.recovery.rebuilt

    @precondition(lambda self: not self.topic_was_removed)
    @rule()
    def crash_and_lose_the_checkpoint(self) -> None:
        self.die()
        (self.root / "checkpoint").unlink(missing_ok=True)
        self.files = self.open()

    def die(self) -> None:
        old, self.root = self.root, self.directory / str(next(self.runs))
        shutil.copytree(old, self.root)
        self.files._open = False
        self.files._release()
        shutil.rmtree(old)
        self.pending.clear()

    # ---- what must agree

    @rule(
        topic=topics, queue_id=queue_ids, offset=st.integers(-1, 60),
        limits=st.builds(ReadLimits, st.integers(1, 5), st.sampled_from([1, 600, 10**6])),
    )  # fmt: skip
    def read(self, topic: str, queue_id: int, offset: int, limits: ReadLimits) -> None:
        ours = self.files.read(topic, queue_id, offset, limits)
        theirs = self.memory.read(topic, queue_id, offset, limits)
        if theirs.status in _NOTHING_THERE:  # an empty queue leaves nothing to be found again
            assert ours.status in _NOTHING_THERE
        else:
            assert ours == theirs

    @rule(topic=topics, limit=st.sampled_from([1, 3, 64]))
    def find(self, topic: str, limit: int) -> None:
        now = int(self.clock() * 1000)
        for key in KEYS:
            for begin, end in ((0, now), (now - 65_000, now), (0, now - 65_000)):
                ours = self.files.find(topic, key, limit=limit, begin=begin, end=end)
                assert ours == self.memory.find(topic, key, limit=limit, begin=begin, end=end)

    @rule(topic=topics, queue_id=queue_ids, ago=st.sampled_from([0, 5, 10, 65, 1800, 10**6]))
    def search_by_time(self, topic: str, queue_id: int, ago: int) -> None:
        time = int(self.clock() * 1000) - ago * 1000
        for boundary in Boundary:
            ours = self.files.offset_at(topic, queue_id, time, boundary)
            assert ours == self.memory.offset_at(topic, queue_id, time, boundary)

    @invariant()
    def queues_agree(self) -> None:
        if not hasattr(self, "files"):
            return
        assert self.files.health.writable
        for topic in TOPICS:
            for queue_id in QUEUES:
                for ask in ("min_offset", "max_offset", "earliest_time"):
                    ours = getattr(self.files, ask)(topic, queue_id)
                    assert ours == getattr(self.memory, ask)(topic, queue_id), ask

    @invariant()
    def the_log_agrees(self) -> None:
        if hasattr(self, "files"):
            assert self.files.log.written == self.memory.log.written
            assert self.files.log.min_offset == self.memory.log.min_offset
            for place, record in self.memory.log.items():
                assert bytes(self.files.record_at(place) or b"") == record


class SyncStoreMachine(StoreMachine):
    mode = FlushMode.SYNC


_SETTINGS = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_files_behave_as_memory_does() -> None:
    run_state_machine_as_test(StoreMachine, settings=_SETTINGS)


def test_files_flushed_in_groups_behave_as_memory_does() -> None:
    run_state_machine_as_test(SyncStoreMachine, settings=_SETTINGS)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("machine", [StoreMachine, SyncStoreMachine])
def test_files_behave_as_memory_does_for_long(machine: type[StoreMachine]) -> None:
    many = settings(_SETTINGS, max_examples=1500, stateful_step_count=80)
    run_state_machine_as_test(machine, settings=many)
