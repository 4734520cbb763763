"""Queue locks of ordered consumers."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bolide.broker.metadata.queue_locks import LOCK_TIME, QueueLocks
from bolide.protocol.bodies.message_queue import MessageQueue
from tests.support.clock import FakeClock

Q = [MessageQueue("T", "broker-a", n) for n in range(4)]
QUEUES = st.lists(st.sampled_from(Q), max_size=4, unique=True)
CLIENTS = st.sampled_from(["a", "b", "c"])
GROUPS = st.sampled_from(["g", "h"])


def test_a_lock_is_held_until_it_is_released() -> None:
    locks = QueueLocks(FakeClock())
    assert locks.lock("g", "a", Q[:2]) == Q[:2]
    assert locks.lock("g", "b", Q[:3]) == [Q[2]]
    locks.unlock("g", "b", [Q[0]])
    assert locks.lock("g", "b", [Q[0]]) == []
    locks.unlock("g", "a", [Q[0]])
    assert locks.lock("g", "b", [Q[0]]) == [Q[0]]


def test_groups_do_not_disturb_each_other() -> None:
    locks = QueueLocks(FakeClock())
    assert locks.lock("g", "a", Q) == locks.lock("h", "b", Q) == Q


def test_a_lock_that_is_not_renewed_is_anybodys_after_a_minute() -> None:
    clock = FakeClock()
    locks = QueueLocks(clock)
    locks.lock("g", "a", Q)
    clock.advance(LOCK_TIME)
    assert locks.lock("g", "b", Q) == []
    locks.lock("g", "a", Q[:1])
    clock.advance(1)
    assert locks.lock("g", "b", Q) == Q[1:]


def test_a_group_holds_locks_while_one_of_them_lasts() -> None:
    clock = FakeClock()
    locks = QueueLocks(clock)
    assert not locks.holds_any("g")
    locks.lock("g", "a", Q[:1])
    assert locks.holds_any("g")
    assert locks.is_locked("g", Q[0])
    assert not locks.is_locked("g", Q[1])
    clock.advance(LOCK_TIME + 1)
    assert not locks.holds_any("g")
    assert not locks.is_locked("g", Q[0])


def test_expired_locks_are_removed() -> None:
    clock = FakeClock()
    locks = QueueLocks(clock)
    locks.lock("g", "a", Q)
    locks.lock("nobody", "a", [])
    clock.advance(LOCK_TIME + 1)
    locks.lock("h", "a", Q)
    locks.expire()
    assert list(locks._groups) == ["h"]


class LocksAgainstAModel(RuleBasedStateMachine):
    """Compare the locks with a plain map of (owner, time)."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.locks = QueueLocks(self.clock)
        self.owners: dict[tuple[str, MessageQueue], tuple[str, float]] = {}

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        client, taken = self.owners.get((group, queue), ("", -1e9))
        return client if self.clock.now - taken <= LOCK_TIME else None

    @rule(group=GROUPS, client=CLIENTS, queues=QUEUES)
    def lock(self, group: str, client: str, queues: list[MessageQueue]) -> None:
        free = [queue for queue in queues if self.owner(group, queue) in {None, client}]
        assert self.locks.lock(group, client, queues) == free
        self.owners |= {(group, queue): (client, self.clock.now) for queue in free}

    @rule(group=GROUPS, client=CLIENTS, queues=QUEUES)
    def unlock(self, group: str, client: str, queues: list[MessageQueue]) -> None:
        self.locks.unlock(group, client, queues)
        for queue in queues:
            if self.owners.get((group, queue), ("", 0))[0] == client:
                del self.owners[group, queue]

    @rule(seconds=st.sampled_from([1.0, 20.0, LOCK_TIME, LOCK_TIME + 1]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def expire(self) -> None:
        self.locks.expire()

    @invariant()
    def both_tell_the_same(self) -> None:
        for group in ("g", "h"):
            held = [queue for queue in Q if self.owner(group, queue)]
            assert [queue for queue in Q if self.locks.is_locked(group, queue)] == held
            assert self.locks.holds_any(group) == bool(held)


LocksAgainstAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestLocksAgainstAModel = LocksAgainstAModel.TestCase
