"""The pop journal and the state replayed from it."""

from pathlib import Path

import pytest

from bolide.broker.pop.events import (
    Acknowledged,
    Changed,
    Popped,
    Repositioned,
    merge_acknowledgements,
)
from bolide.broker.pop.journal import Journal
from bolide.broker.pop.state import PopState
from bolide.broker.produce.durability import Durability
from bolide.model.names import POP_JOURNAL_TOPIC
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import PopHeader
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended
from bolide.store.config import StoreConfig
from bolide.store.errors import StoreUnwritable
from bolide.store.memory_store import MemoryStore
from tests.support.aio import on_loop
from tests.support.clock import FakeClock
from tests.support.pop_core import HOST, PopCore
from tests.support.popping import read_pop

NAME = ("T", "G", 0)
NOW = 1_700_000_000_000


def popped(start: int, count: int) -> Popped:
    return Popped(*NAME, start, NOW, 60_000, start + count, list(range(count)))


class PostponedDurability(Durability):
    """Postpones every durability callback until `tell_all`."""

    def __init__(self) -> None:
        self.waits = True
        self.told: list[tuple[Appended, object]] = []

    def when_durable(self, appended: Appended, tell: object) -> None:
        self.told.append((appended, tell))

    def tell_all(self, outcome: int | StoreUnwritable) -> None:
        told, self.told = self.told, []
        for _, tell in told:
            tell(outcome)  # type: ignore[operator]


def replayed(core: PopCore) -> PopState:
    """Return the state of a broker that starts now."""
    state = PopState(core.clock)
    journal = Journal(
        state, store=core.store, intake=core.intake, durability=core.durability,
        store_host=HOST, now=core.clock,
    )  # fmt: skip
    journal.replay(0)
    return state


def known(state: PopState) -> dict[tuple[int, int], list[int]]:
    queue = state.queues[NAME]
    return {key: each.unacknowledged for key, each in queue.checkpoints.items()}


@on_loop
async def test_acknowledgements_of_a_burst_are_one_record(tmp_path: Path) -> None:
    core = PopCore(tmp_path)
    journal = core.pop.journal
    journal.append([popped(0, 8)])
    told: list[object] = []
    for offset in (0, 1, 5):
        journal.enqueue(Acknowledged(*NAME, 0, NOW, [offset]), told.append)
    journal.enqueue(Changed(*NAME, 0, NOW, 7, NOW + 1, 1000, 8), told.append)
    assert told == []
    assert core.store.max_offset(POP_JOURNAL_TOPIC, 0) == 1
    journal.end_burst()
    assert told == [ResponseCode.SUCCESS] * 4
    assert core.store.max_offset(POP_JOURNAL_TOPIC, 0) == 2
    left = {(0, NOW): [2, 3, 4, 6], (7, NOW + 1): [7]}
    assert known(core.pop.state) == known(replayed(core)) == left
    await core.stop()


@on_loop
async def test_what_the_disk_took_back_is_written_again(tmp_path: Path) -> None:
    core = PopCore(tmp_path)
    journal, durability = core.pop.journal, PostponedDurability()
    journal._durability = durability
    journal.append([popped(0, 4)])
    durability.tell_all(ResponseCode.FLUSH_DISK_TIMEOUT)
    durability.tell_all(ResponseCode.SUCCESS)
    told: list[object] = []
    journal.append([popped(4, 4)])
    journal.enqueue(Acknowledged(*NAME, 0, NOW, [2]), told.append)
    journal.end_burst()
    failure = StoreUnwritable("no disk")
    durability.tell_all(failure)
    assert told == [failure]
    assert not journal.is_complete
    # A repeated acknowledgement waits until the disk has it.
    journal.when_durable(told.append)
    assert journal.is_complete
    assert len(told) == 1
    durability.tell_all(ResponseCode.SUCCESS)
    assert told == [failure, ResponseCode.SUCCESS]
    last = core.store.max_offset(POP_JOURNAL_TOPIC, 0) - 1
    assert core.pop.state.queues[NAME].checkpoints[4, NOW].journal_offset == last
    assert known(replayed(core)) == {(0, NOW): [0, 1, 3], (4, NOW): [4, 5, 6, 7]}
    await core.stop()


@on_loop
async def test_much_that_the_disk_took_back_is_written_again_in_parts(tmp_path: Path) -> None:
    clock = FakeClock(NOW / 1000)
    config = StoreConfig(root=tmp_path, max_message_size=2000)
    core = PopCore(tmp_path, clock=clock, store=MemoryStore(config, clock=clock))
    journal, durability = core.pop.journal, PostponedDurability()
    journal._durability = durability
    for number in range(40):
        journal.append([popped(number * 32, 32)])
    durability.tell_all(StoreUnwritable("no disk"))
    journal.append([popped(40 * 32, 32)])
    assert journal.is_complete
    end = core.store.max_offset(POP_JOURNAL_TOPIC, 0)
    assert all(40 <= lease.journal_offset < end for lease in core.pop.state.by_age())
    assert known(replayed(core)) == known(core.pop.state)
    await core.stop()


@on_loop
async def test_who_says_something_twice_in_a_burst_hears_the_same_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = PopCore(tmp_path)
    journal, failure = core.pop.journal, StoreUnwritable("no disk")
    journal.append([popped(0, 4)])

    def refuse(draft: RecordDraft) -> Appended:
        raise failure

    monkeypatch.setattr(core.store, "append", refuse)
    told: list[object] = []
    journal.enqueue(Acknowledged(*NAME, 0, NOW, [2]), told.append)
    journal.when_durable(told.append)
    journal.end_burst()
    assert told == [failure, failure]
    await core.stop()


@on_loop
async def test_old_pops_are_brought_forward_so_that_little_is_read_again(tmp_path: Path) -> None:
    core = PopCore(tmp_path, max_backlog=10)
    journal = core.pop.journal
    for number in range(100):
        journal.append([popped(number * 2, 2)])
        if number not in {3, 50}:
            journal.append([Acknowledged(*NAME, number * 2, NOW, [number * 2, number * 2 + 1])])
        await core.work()
    oldest = core.pop.state.oldest
    assert oldest is not None
    assert journal.end - oldest.journal_offset <= 11
    state = PopState(core.clock)
    again = Journal(
        state, store=core.store, intake=core.intake, durability=core.durability,
        store_host=HOST, now=core.clock,
    )  # fmt: skip
    assert again.replay(oldest.journal_offset) <= 11
    assert known(state) == known(core.pop.state)
    assert state.queues[NAME].next_offset == 200
    await core.stop()


@on_loop
async def test_a_record_larger_than_allowed_is_parted(tmp_path: Path) -> None:
    clock = FakeClock(NOW / 1000)
    config = StoreConfig(root=tmp_path, max_message_size=2000)
    core = PopCore(tmp_path, clock=clock, store=MemoryStore(config, clock=clock), max_backlog=3)
    core.pop.journal.append([popped(number * 32, 32) for number in range(200)])
    assert core.store.max_offset(POP_JOURNAL_TOPIC, 0) > 1
    assert len(core.pop.state) == len(replayed(core)) == 200
    assert core.pop.journal.rewrite(3)
    assert len(replayed(core)) == 200
    await core.stop()


def test_the_lowest_offset_is_that_of_the_first_that_is_not_settled() -> None:
    state = PopState(FakeClock(NOW / 1000))
    for event in (popped(0, 3), popped(3, 3), popped(6, 3)):
        state.apply(event, 0)
    queue = state.queues[NAME]
    state.apply(Acknowledged(*NAME, 3, NOW, [3, 4]), 1)
    assert queue.low == 0
    state.apply(Changed(*NAME, 0, NOW, 1, NOW + 5, 1000, 9), 2)
    state.apply(Acknowledged(*NAME, 0, NOW, [0, 2]), 3)
    assert queue.low == 1
    state.apply(Acknowledged(*NAME, 1, NOW + 5, [1]), 4)
    assert queue.low == 5
    assert queue.in_flight == 4
    state.apply(Repositioned(*NAME, 2), 5)
    assert (queue.low, queue.in_flight, len(state)) == (2, 0, 0)


def test_events_of_one_pop_are_merged_and_others_keep_their_order() -> None:
    first, second = Acknowledged(*NAME, 0, 1, [0]), Acknowledged(*NAME, 0, 1, [1])
    change = Changed(*NAME, 0, 1, 2, 2, 3, 4)
    assert merge_acknowledgements([first, change, second]) == [
        Acknowledged(*NAME, 0, 1, [0, 1]),
        change,
    ]
    assert first.offsets == [0]


@on_loop
async def test_what_retention_took_is_neither_waited_for_nor_in_the_way(tmp_path: Path) -> None:
    core = PopCore(tmp_path)
    await core.create("T", 1)
    for number in range(4):
        core.send("T", 0, b"%d" % number)
    core.tables.groups.require("G")
    first = await pop(core, 2)
    assert first == [b"0", b"1"]
    gone = core.store.log.written
    core.send("T", 0, b"4")
    await core.work()
    await core.work()
    core.save()
    core.store.trim(gone)
    core.clock.now += 100
    await core.work()
    assert not len(core.pop.state)  # the messages no longer exist
    core = await core.crashed()  # the journal is incomplete as well
    assert await pop(core, 32) == [b"4"]
    await core.stop()


@on_loop
async def test_retention_never_takes_what_tells_of_pops_that_are_not_over(tmp_path: Path) -> None:
    core = PopCore(tmp_path)
    await core.create("T", 1)
    core.tables.groups.require("G")
    week = 7 * 24 * 3600
    core.send("T", 0, b"slow")
    assert await pop(core, 1, invisible_time=week * 1000) == [b"slow"]
    gone = core.store.log.written
    for day in range(4):
        core.clock.now += 24 * 3600
        core.send("T", 0, b"%d" % day)
        await core.work()
        if day == 1:
            core = await core.crashed()
        assert await pop(core, 1, invisible_time=week * 1000) == [b"%d" % day]
        await core.work()
    core.save()
    core.store.trim(gone)
    core = await core.crashed()
    assert await pop(core, 32) == []  # leased to consumers
    assert len(core.pop.state) == 5
    await core.stop()


async def pop(core: PopCore, most: int, invisible_time: int = 60_000) -> list[bytes]:
    header = PopHeader(
        consumer_group="G", topic="T", queue_id=-1, max_msg_nums=most,
        invisible_time=invisible_time, poll_time=0, born_time=0, init_mode=0,
    )  # fmt: skip
    return read_pop("T", await core.call(RequestCode.POP_MESSAGE, header)).bodies
