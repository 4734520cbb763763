"""Records whose topic a replica does not know yet, or knows with queues of another kind."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol.bodies.topics import TopicConfig, TopicConfigTable
from bolide.store import queue_kinds as module
from bolide.store.message_store import MessageStore
from bolide.store.tables import TOPICS, Table, has_batch_queues, with_batch_queues
from bolide.store.truncation import truncate_store
from tests.support.batches import batch_draft, items
from tests.support.faults import copy_store
from tests.support.store import draft, small_config
from tests.unit.store.test_replica_log import log_bytes

TOPIC = "Bulk"

Work = Callable[[MessageStore], None]
Units = dict[int, list[tuple[int, int, int]]]
"""By queue id: queue offset, physical offset and size of each message."""


@contextmanager
def opened(root: Path, *, is_slave: bool = False) -> Iterator[MessageStore]:
    with MessageStore(small_config(root), background=False) as store:
        if is_slave:
            store.replica.begin()
        yield store


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(tmp_path / "master") as store:
        store.set_batched(TOPIC, is_batched=True)
        yield store


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(tmp_path / "slave", is_slave=True) as store:
        yield store


def batch(store: MessageStore, count: int = 3, topic: str = TOPIC, queue_id: int = 0) -> None:
    store.append(batch_draft(items(0, count), topic, queue_id))


def single(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> None:
    store.append(draft(topic, b"single", queue_id=queue_id))


def ship(master: MessageStore, slave: MessageStore, end: int | None = None) -> None:
    """Send the log from the slave's end on."""
    slave.replica.append(slave.log.end, memoryview(log_bytes(master))[slave.log.end : end])
    slave.replica.dispatch()


def units(store: MessageStore, topic: str = TOPIC) -> Units:
    found: Units = {}
    for queue_id in range(2):
        queue = store.queues.find(topic.encode(), queue_id)
        if queue is not None and queue.max_offset:
            offsets = range(queue.min_offset, queue.max_offset)
            places = [(offset, unit) for offset in offsets if (unit := queue.unit(offset))]
            found[queue_id] = [(at, unit.physical_offset, unit.size) for at, unit in places]
    return found


def recreate(store: MessageStore, *, is_batched: bool) -> None:
    store.remove_topic(TOPIC)
    store.set_batched(TOPIC, is_batched=is_batched)


def mixed(master: MessageStore) -> None:
    single(master)
    batch(master)
    single(master, queue_id=1)
    batch(master, queue_id=1)
    single(master, "Other")
    batch(master)


def batches_only(master: MessageStore) -> None:
    batch(master)
    batch(master, queue_id=1)


def singles_only(master: MessageStore) -> None:
    single(master)
    single(master)


def many(master: MessageStore) -> None:
    """More than one log file."""
    for number in range(60):
        single(master, queue_id=number % 2)
        batch(master, queue_id=number % 2)
        single(master, "Other")


ALL = pytest.mark.parametrize("work", [mixed, batches_only, singles_only, many])
FEW = pytest.mark.parametrize("stride", [1, 300, 1 << 20])


@ALL
@FEW
def test_the_table_comes_after_the_records(
    master: MessageStore,
    slave: MessageStore,
    work: Work,
    stride: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_STRIDE", stride)
    work(master)
    ship(master, slave)
    slave.adopt_kinds({TOPIC: True}, 0)
    assert units(slave) == units(master)
    assert units(slave, "Other") == units(master, "Other")
    assert slave.units == slave.queues.units() == master.units

    work(master)
    ship(master, slave)
    assert units(slave) == units(master)
    assert units(slave, "Other") == units(master, "Other")
    assert slave.units == slave.queues.units() == master.units


@ALL
def test_records_come_while_others_are_added_again(
    master: MessageStore, slave: MessageStore, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STRIDE", 1)
    work(master)
    ship(master, slave)
    slave.kinds.learn(TOPIC.encode(), True, 0)
    is_left = True
    while is_left:
        single(master)
        batch(master)
        ship(master, slave)
        with slave._lock:
            is_left = all(slave.kinds.step() for _ in range(4))
    assert units(slave) == units(master)
    assert slave.units == slave.queues.units() == master.units


@ALL
def test_the_settings_of_a_new_master_never_came(
    master: MessageStore, slave: MessageStore, work: Work
) -> None:
    work(master)
    ship(master, slave)
    slave.finish_replication()
    assert units(slave) == units(master)
    assert (TOPIC.encode() in slave.queues.batch_topics) is (work is not singles_only)
    work(slave)
    work(master)
    assert units(slave) == units(master)


@ALL
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_restart_comes_between_the_records_and_the_table(
    master: MessageStore, tmp_path: Path, work: Work, is_killed: bool
) -> None:
    root = tmp_path / "slave"
    with opened(root, is_slave=True) as slave:
        ship(master, slave)
        slave.maintenance.checkpoint()
        single(master)
        work(master)
        ship(master, slave)
        copy_store(root, tmp_path / "killed")
    with opened(tmp_path / "killed" if is_killed else root, is_slave=True) as slave:
        slave.adopt_kinds({TOPIC: True}, slave.replica.dispatched)
        assert units(slave) == units(master)
        work(master)
        ship(master, slave)
        assert units(slave) == units(master)
        left = copy_store(slave.config.value.root, tmp_path / "left")
    with opened(left, is_slave=True) as slave:
        assert units(slave) == units(master)


@ALL
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_restart_comes_between_the_records_and_the_election(
    master: MessageStore, tmp_path: Path, work: Work, is_killed: bool
) -> None:
    root = tmp_path / "slave"
    with opened(root, is_slave=True) as slave:
        single(master)
        work(master)
        ship(master, slave)
        copy_store(root, tmp_path / "killed")
    with opened(tmp_path / "killed" if is_killed else root, is_slave=True) as slave:
        slave.finish_replication()
        assert units(slave) == units(master)


@ALL
def test_a_crash_while_records_are_added_again_loses_none(
    master: MessageStore, tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STRIDE", 1)
    root = tmp_path / "slave"
    with opened(root, is_slave=True) as slave:
        work(master)
        ship(master, slave)
        slave.maintenance.checkpoint()
        save_topics(root, {TOPIC: True})
        slave.kinds.learn(TOPIC.encode(), True, 0)
        copies: list[Path] = []
        while slave.kinds.step():
            slave.maintenance._write_queues()
            copies.append(copy_store(root, tmp_path / f"killed-{len(copies)}"))
    for left in copies:
        with opened(left, is_slave=True) as slave:
            assert units(slave) == units(master)


@pytest.mark.parametrize("is_batched", [True, False])
def test_a_topic_created_again_has_the_other_kind(
    master: MessageStore, slave: MessageStore, is_batched: bool
) -> None:
    recreate(master, is_batched=not is_batched)
    single(master)
    ship(master, slave)
    slave.adopt_kinds({TOPIC: not is_batched}, slave.replica.dispatched)
    position = slave.replica.dispatched

    recreate(master, is_batched=is_batched)
    single(master)
    if is_batched:
        batch(master)
    ship(master, slave)
    slave.adopt_kinds({TOPIC: is_batched}, position)
    assert units(slave) == units(master)
    assert (TOPIC.encode() in slave.queues.batch_topics) is is_batched


def test_the_first_records_of_a_topic_created_again_survive_its_deletion(
    master: MessageStore, slave: MessageStore
) -> None:
    mixed(master)
    ship(master, slave)
    slave.adopt_kinds({TOPIC: True}, 0)
    position = slave.replica.dispatched
    recreate(master, is_batched=True)
    mixed(master)
    ship(master, slave)

    slave.adopt_kinds({TOPIC: None}, position)  # the table as it was in between
    assert units(slave) == units(master)
    position = slave.replica.dispatched
    slave.adopt_kinds({TOPIC: True}, position)
    assert units(slave) == units(master)
    assert not slave.kinds.doubtful(position)


@ALL
def test_the_last_records_of_a_deleted_topic_go_with_the_next_table(
    master: MessageStore, slave: MessageStore, work: Work
) -> None:
    mixed(master)
    ship(master, slave)
    slave.adopt_kinds({TOPIC: True}, 0)
    position = slave.replica.dispatched
    work(master)
    ship(master, slave)
    slave.adopt_kinds({TOPIC: None}, position)
    assert units(slave)

    position = slave.replica.dispatched
    (topic,) = slave.kinds.doubtful(position)
    slave.adopt_kinds({topic.decode(): None}, position)
    assert not units(slave)
    assert not slave.kinds.doubtful(position)
    assert units(slave, "Other") == units(master, "Other")


def test_an_older_table_does_not_refute_an_inner_batch(
    master: MessageStore, slave: MessageStore
) -> None:
    position = slave.replica.dispatched
    mixed(master)
    ship(master, slave)
    slave.maintenance.checkpoint()  # it has to count the units
    assert units(slave) == units(master)

    slave.adopt_kinds({TOPIC: False}, position)
    assert units(slave) == units(master)
    position = slave.replica.dispatched
    slave.adopt_kinds({TOPIC: False}, position)
    assert TOPIC.encode() not in slave.queues.batch_topics
    assert not slave.kinds.doubtful(position)


def test_inner_batches_of_a_deleted_topic_are_no_proof(
    master: MessageStore, slave: MessageStore
) -> None:
    mixed(master)
    recreate(master, is_batched=False)
    single(master)
    ship(master, slave)
    position = slave.replica.dispatched
    slave.adopt_kinds({TOPIC: False}, position)
    slave.adopt_kinds(dict.fromkeys(map(bytes.decode, slave.kinds.doubtful(position)), False), 0)
    for _ in range(2):
        slave.maintenance.checkpoint()
        assert TOPIC.encode() not in slave.queues.batch_topics
    assert units(slave)[0] == units(master)[0]


@pytest.mark.parametrize("keep", [0, 2, 4])
def test_a_cut_takes_back_what_was_behind_it(
    master: MessageStore, slave: MessageStore, keep: int
) -> None:
    places = [master.log.end]
    for work in (singles_only, batches_only, singles_only, batches_only):
        work(master)
        places.append(master.log.end)
    ship(master, slave)
    truncate_store(slave, places[keep])
    ship(master, slave)
    slave.finish_replication()
    assert units(slave) == units(master)


def test_behind_a_cut_no_table_is_known_yet(master: MessageStore, slave: MessageStore) -> None:
    single(master, "Other")
    cut = master.log.end
    ship(master, slave)
    slave.replica.append(cut, memoryview(log_bytes(master)))  # what another master wrote
    end = slave.log.end
    slave.replica.dispatched = end
    slave.adopt_kinds({}, end)

    truncate_store(slave, cut)
    batches_only(master)
    ship(master, slave)
    slave.finish_replication()
    assert units(slave) == units(master)


@pytest.mark.parametrize("is_elected", [True, False])
def test_queues_of_a_deleted_topic_do_not_become_those_of_another_kind(
    master: MessageStore, slave: MessageStore, is_elected: bool
) -> None:
    recreate(master, is_batched=False)
    single(master, queue_id=1)
    ship(master, slave)
    slave.adopt_kinds({TOPIC: False}, slave.replica.dispatched)
    position = slave.replica.dispatched
    recreate(master, is_batched=True)
    batch(master)
    ship(master, slave)
    if is_elected:
        slave.finish_replication()
    else:
        slave.adopt_kinds({TOPIC: True}, position)
    assert units(slave) == units(master)


def test_a_topic_created_again_with_batch_queues_is_told_after_a_crash(
    master: MessageStore, tmp_path: Path
) -> None:
    root = tmp_path / "slave"
    with opened(root, is_slave=True) as slave:
        recreate(master, is_batched=False)
        single(master, "Other")
        ship(master, slave)
        save_topics(root, {TOPIC: False})
        slave.adopt_kinds({TOPIC: False}, slave.replica.dispatched)
        slave.maintenance.checkpoint()
        recreate(master, is_batched=True)
        batches_only(master)
        ship(master, slave)
        killed = copy_store(root, tmp_path / "killed")
    with opened(killed, is_slave=True) as slave:
        slave.maintenance.checkpoint()
        slave.adopt_kinds({TOPIC: True}, slave.replica.dispatched)
        assert units(slave) == units(master)


def test_a_log_that_begins_anew_has_no_doubts(master: MessageStore, slave: MessageStore) -> None:
    mixed(master)
    ship(master, slave)
    slave.kinds.learn(TOPIC.encode(), True, 0)
    slave.restart_at(100 * 4096)
    assert slave.kinds.is_settled
    assert slave.units == 0


def test_a_checkpoint_waits_until_every_record_has_its_unit(
    master: MessageStore, slave: MessageStore
) -> None:
    many(master)
    ship(master, slave)
    slave.kinds.learn(TOPIC.encode(), True, 0)
    slave.maintenance.checkpoint()
    assert units(slave) == units(master)
    point = slave._checkpoint.value.recovery_point
    assert point is not None
    assert point.units == master.units
    assert not list(slave.config.value.root.glob(".removed-*"))


# ---- any order


def save_topics(root: Path, kinds: dict[str, bool]) -> None:
    table = Table(root / "config", TOPICS)
    topics = {name: TopicConfig(topic_name=name) for name in kinds}
    table.value = TopicConfigTable(
        topic_config_table={
            name: with_batch_queues(topic) if kinds[name] else topic
            for name, topic in topics.items()
        }
    )
    table.changed()
    table.save()


class Pair:
    """A master, and a slave that copies its log and its table of topics now and then."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._root = root
        self._stack = stack
        self.master = stack.enter_context(opened(root / "master"))
        self.topics: dict[str, bool] = {}
        self._lives = 0
        self._slave = ExitStack()
        stack.callback(self._close)
        self.slave = self._slave.enter_context(opened(root / "slave-0", is_slave=True))
        self.known: dict[str, bool] = {}
        self._asked: tuple[int, dict[str, bool], int] | None = None
        self.was_killed = False

    def _close(self) -> None:
        self._slave.close()

    def create(self, topic: str, kind: bool) -> None:
        if topic not in self.topics:
            self.topics[topic] = kind
            self.master.set_batched(topic, is_batched=kind)

    def delete(self, topic: str, _: bool) -> None:
        if self.topics.pop(topic, None) is not None:
            self.master.remove_topic(topic)

    def send(self, topic: str, in_first: bool) -> None:
        if topic in self.topics:
            single(self.master, topic, 1 - in_first)

    def send_batch(self, topic: str, in_first: bool) -> None:
        if self.topics.get(topic):
            batch(self.master, 3, topic, 1 - in_first)

    def ship(self, _: str, all_of_it: bool) -> None:
        end = self.master.log.end
        ship(self.master, self.slave, end if all_of_it else (self.slave.log.end + end) // 2)

    def ask(self, *_: object) -> None:
        self._asked = self.slave.replica.dispatched, dict(self.topics), self.master.log.end

    def adopt(self, *_: object) -> None:
        if self._asked is None:
            return
        position, topics, end = self._asked
        self._asked = None
        if self.slave.log.end < end:
            ship(self.master, self.slave, end)
        names = {n for n in self.known.keys() | topics.keys() if self.known.get(n) != topics.get(n)}
        names |= set(map(bytes.decode, self.slave.kinds.doubtful(position)))
        self.known = topics
        save_topics(self.slave.config.value.root, topics)
        self.slave.adopt_kinds({name: topics.get(name) for name in names}, position)

    def checkpoint(self, *_: object) -> None:
        self.slave.maintenance.checkpoint()

    def restart(self, _: str, is_killed: bool) -> None:
        self._asked = None
        self.was_killed |= is_killed
        root = self.slave.config.value.root
        if is_killed:
            self._lives += 1
            root = copy_store(root, self._root / f"slave-{self._lives}")
        self._slave.close()
        self._slave = ExitStack()
        self.slave = self._slave.enter_context(opened(root, is_slave=True))

    def check(self, topics: list[str]) -> None:
        for topic in topics:
            for queue_id, wanted in units(self.master, topic).items():
                found = units(self.slave, topic).get(queue_id, [])
                assert found[-len(wanted) :] == wanted, (topic, queue_id)
        assert self.slave.units == self.slave.queues.units()


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "delete", "send", "send", "send_batch", "send_batch", "ship", "ship", "ask",
             "ask", "adopt", "adopt", "checkpoint", "restart"]
        ),
        st.sampled_from(["A", "B"]),
        st.booleans(),
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(operations=OPERATIONS, is_elected=st.booleans())
def test_a_slave_has_every_message_of_the_topics_that_exist(
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[tuple[str, str, bool]],
    is_elected: bool,
) -> None:
    with ExitStack() as stack:
        pair = Pair(tmp_path_factory.mktemp("pair"), stack)
        for name, topic, choice in operations:
            getattr(pair, name)(topic, choice)
        pair.ship("", True)
        topics = list(pair.topics)
        if is_elected:
            pair.slave.finish_replication()
            if pair.was_killed:  # the old table, and a recovery, are not told from the new topic
                topics = [each for each in topics if each not in pair.known]
        else:
            pair.ask()
            pair.adopt()
            for each in topics:
                assert (each.encode() in pair.slave.queues.batch_topics) is pair.topics[each]
        pair.check(topics)


def test_a_topic_with_batch_queues_says_so() -> None:
    topic = TopicConfig(topic_name="T", attributes={"a": "b"})
    assert not has_batch_queues(topic)
    assert has_batch_queues(with_batch_queues(topic))
    assert "a" not in with_batch_queues(topic).attributes
