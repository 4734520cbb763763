"""The table of committed offsets."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bolide.broker.metadata.offsets import OffsetTable
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.refusals import ServerError
from bolide.store.tables import CONSUMER_OFFSETS, Table
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables

GROUPS = st.sampled_from(["g", "h", "gg"])
TOPICS = st.sampled_from(["T", "U", "TT", "%RETRY%g"])
QUEUES = st.integers(0, 2)
OFFSETS = st.integers(0, 5)
Known = dict[tuple[str, str, int], int]


def test_a_committed_offset_is_found(tables: BrokerTables) -> None:
    assert tables.offsets.find("g", "T", 0) is None
    assert tables.offsets.commit("g", "T", 0, 5)
    assert tables.offsets.find("g", "T", 0) == 5
    assert tables.offsets.find("g", "T", 1) is None
    assert tables.offsets.find("h", "T", 0) is None
    assert tables.offsets.of("g", "T") == {0: 5}
    assert tables.offsets.of("h", "T") == {}


def test_offsets_survive_a_restart_once_they_are_saved(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 5)
    assert tables.restarted().offsets.find("g", "T", 0) is None
    assert tables.offsets.save_due(0.0)
    assert tables.restarted().offsets.find("g", "T", 0) == 5


def test_saving_waits_for_its_interval_and_for_a_change(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 5)
    assert tables.offsets.save_due(100.0)
    assert not tables.offsets.save_due(200.0)
    tables.offsets.commit("g", "T", 0, 6)
    assert not tables.offsets.save_due(100.0 + CONSUMER_OFFSETS.interval - 1)
    assert tables.offsets.save_due(100.0 + CONSUMER_OFFSETS.interval)


def test_the_same_offset_again_is_no_change(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 5)
    tables.offsets.save()
    tables.offsets.commit("g", "T", 0, 5)
    assert not tables.offsets.save()


def test_the_version_moves_with_changes_and_with_nothing_else(tables: BrokerTables) -> None:
    first = tables.offsets.data_version
    tables.offsets.commit("g", "T", 0, 1)
    tables.offsets.commit("g", "T", 0, 2)
    second = tables.offsets.table.data_version
    assert second.counter == first.counter + 1
    assert second.timestamp == int(tables.clock.now * 1000)
    assert tables.offsets.data_version == second
    tables.offsets.save()
    assert tables.restarted().offsets.data_version == second


def test_a_smaller_offset_is_accepted_with_one_warning_a_minute(
    tables: BrokerTables, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for offset in (9, 5, 9, 4):
        tables.offsets.commit("g", "T", 0, offset, peer="10.0.0.7:1")
    assert tables.offsets.find("g", "T", 0) == 4
    assert caplog.messages == ["10.0.0.7:1 moved the offset of T@g in queue 0 back from 9 to 5"]
    tables.clock.advance(60)
    tables.offsets.commit("g", "T", 0, 1)
    assert "back from 4 to 1" in caplog.messages[-1]


# ---- resets


def test_a_reset_is_pending_until_a_pull_takes_it(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 9)
    tables.offsets.reset("g", "T", {0: 2, 1: 7})
    assert tables.offsets.find("g", "T", 0) == 2
    assert not tables.offsets.commit("g", "T", 0, 10)
    assert tables.offsets.find("g", "T", 0) == 2
    assert tables.offsets.claim_reset("g", "T", 0) == 2
    assert tables.offsets.claim_reset("g", "T", 0) is None
    assert tables.offsets.commit("g", "T", 0, 3)
    assert not tables.offsets.commit("g", "T", 1, 8)
    assert tables.offsets.find("g", "T", 1) == 7


def test_a_reset_of_one_group_is_nothing_to_another(tables: BrokerTables) -> None:
    tables.offsets.reset("g", "T", {0: 2})
    assert tables.offsets.claim_reset("h", "T", 0) is None
    assert tables.offsets.claim_reset("g", "U", 0) is None
    assert tables.offsets.commit("h", "T", 0, 5)
    assert tables.offsets.commit("g", "T", 1, 5)


def test_a_reset_of_a_group_that_is_away_survives_a_restart(tables: BrokerTables) -> None:
    tables.offsets.reset("g", "T", {0: 2})
    tables.offsets.save()
    assert tables.restarted().offsets.find("g", "T", 0) == 2


# ---- others


def test_topics_and_groups_are_matched_by_whole_names(tables: BrokerTables) -> None:
    for group, topic in (("g", "T"), ("g", "TT"), ("gg", "T")):
        tables.offsets.commit(group, topic, 0, 1)
    assert tables.offsets.topics_of("g") == {"T", "TT"}
    assert tables.offsets.groups_of("T") == {"g", "gg"}
    tables.offsets.remove_group("g")
    assert tables.offsets.groups_of("T") == {"gg"}
    tables.offsets.remove_topic("T")
    assert tables.offsets.topics_of("gg") == set()


class Unlisted(dict[str, dict[int, int]]):
    """A table that must not be listed as a whole."""

    is_loaded = False

    def __iter__(self) -> Iterator[str]:
        assert not self.is_loaded
        return super().__iter__()


def test_the_topics_of_a_group_are_found_without_looking_at_all_offsets() -> None:
    table = Table(Path("unused"), CONSUMER_OFFSETS)
    table.value.offset_table = offsets = Unlisted({"T@g": {0: 1}, "T@h": {0: 1}, "U@h": {0: 1}})
    found = OffsetTable(table)
    offsets.is_loaded = True
    assert (found.groups_of("T"), found.topics_of("h")) == ({"g", "h"}, {"T", "U"})
    assert (found.groups_of("X"), found.topics_of("x")) == (set(), set())


def test_a_clone_is_a_copy(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 5)
    tables.offsets.clone("g", "h", "T")
    tables.offsets.commit("g", "T", 0, 6)
    assert tables.offsets.of("h", "T") == {0: 5}
    tables.offsets.clone("nobody", "h", "T")
    assert tables.offsets.of("h", "T") == {0: 5}


def test_pull_offsets_are_recorded_beside_committed_offsets(
    tables: BrokerTables,
) -> None:
    assert tables.offsets.find_pulled("g", "T", 0) is None
    tables.offsets.commit("g", "T", 0, 5)
    assert tables.offsets.find_pulled("g", "T", 0) == 5
    tables.offsets.pulled("g", "T", 0, 37)
    assert tables.offsets.find_pulled("g", "T", 0) == 37
    assert tables.offsets.find("g", "T", 0) == 5
    tables.offsets.remove_topic("T")
    assert tables.offsets.find_pulled("g", "T", 0) is None


@on_loop
async def test_a_failed_save_is_reported_and_retried(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 5)
    tables.disk.is_full = True
    with pytest.raises(ServerError, match=r"consumerOffset.json cannot be written: .*No space"):
        await tables.offsets.save_now()
    tables.disk.is_full = False
    assert tables.offsets.save()
    assert tables.restarted().offsets.find("g", "T", 0) == 5


class OffsetsAgainstAModel(RuleBasedStateMachine):
    """Compare the table with plain maps of committed offsets and of resets."""

    def __init__(self) -> None:
        super().__init__()
        self.table = OffsetTable(Table(Path("unused"), CONSUMER_OFFSETS), lambda: 0.0)
        self.committed: Known = {}
        self.resets: Known = {}

    @rule(group=GROUPS, topic=TOPICS, queue=QUEUES, offset=OFFSETS)
    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        key = group, topic, queue
        assert self.table.commit(group, topic, queue, offset) == (key not in self.resets)
        if key not in self.resets:
            self.committed[key] = offset

    @rule(group=GROUPS, topic=TOPICS, offsets=st.dictionaries(QUEUES, OFFSETS))
    def reset(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        self.table.reset(group, topic, offsets)
        for queue, offset in offsets.items():
            self.resets[group, topic, queue] = self.committed[group, topic, queue] = offset

    @rule(group=GROUPS, topic=TOPICS, queue=QUEUES)
    def claim_reset(self, group: str, topic: str, queue: int) -> None:
        expected = self.resets.pop((group, topic, queue), None)
        assert self.table.claim_reset(group, topic, queue) == expected

    @rule(source=GROUPS, copy=GROUPS, topic=TOPICS)
    def clone(self, source: str, copy: str, topic: str) -> None:
        self.table.clone(source, copy, topic)
        cloned = {q: n for (g, t, q), n in self.committed.items() if (g, t) == (source, topic)}
        if cloned:
            self._forget(lambda group, name: (group, name) == (copy, topic), self.committed)
            self.committed |= {(copy, topic, queue): n for queue, n in cloned.items()}

    @rule(group=GROUPS)
    def remove_group(self, group: str) -> None:
        self.table.remove_group(group)
        for known in (self.committed, self.resets):
            self._forget(lambda owner, _: owner == group, known)

    @rule(topic=TOPICS)
    def remove_topic(self, topic: str) -> None:
        self.table.remove_topic(topic)
        for known in (self.committed, self.resets):
            self._forget(lambda _, name: name == topic, known)

    def _forget(self, is_wanted: Callable[[str, str], bool], known: Known) -> None:
        for key in [key for key in known if is_wanted(key[0], key[1])]:
            del known[key]

    @invariant()
    def both_tell_the_same(self) -> None:
        for group in ("g", "h", "gg"):
            for topic in ("T", "U", "TT", "%RETRY%g"):
                for queue in range(3):
                    key = group, topic, queue
                    expected = self.resets.get(key, self.committed.get(key))
                    assert self.table.find(group, topic, queue) == expected
        for group in ("g", "h", "gg"):
            assert {t for g, t, _ in self.committed if g == group} == self.table.topics_of(group)
        for topic in ("T", "U", "TT", "%RETRY%g"):
            assert {g for g, t, _ in self.committed if t == topic} == self.table.groups_of(topic)


OffsetsAgainstAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestOffsetsAgainstAModel = OffsetsAgainstAModel.TestCase


# ---- slaves


@on_loop
async def test_a_slave_keeps_what_was_committed_to_it_until_the_master_has_come_as_far(
    tmp_path: Path,
) -> None:
    offsets = OffsetTable(Table(tmp_path, CONSUMER_OFFSETS), is_copy=True)
    await offsets.adopt(ConsumerOffsets(offset_table={"T@g": {0: 3, 1: 3}}))
    offsets.commit("g", "T", 0, 7)
    offsets.commit("g", "T", 1, 2)  # back: that is the consumer's own affair
    assert offsets.own() == [("g", "T", 0, 7)]

    await offsets.adopt(ConsumerOffsets(offset_table={"T@g": {0: 5, 1: 3}}))
    assert offsets.of("g", "T") == {0: 7, 1: 3}
    await offsets.adopt(ConsumerOffsets(offset_table={"T@g": {0: 8, 1: 3}}))
    assert offsets.own() == []
    await offsets.adopt(ConsumerOffsets(offset_table={"T@g": {0: 1, 1: 3}}))  # reset there
    assert offsets.of("g", "T") == {0: 1, 1: 3}


@on_loop
async def test_a_slave_touches_only_what_differs_from_its_master(tmp_path: Path) -> None:
    offsets = OffsetTable(Table(tmp_path, CONSUMER_OFFSETS), is_copy=True)
    await offsets.adopt(ConsumerOffsets(offset_table={"T@g": {0: 3}, "U@g": {0: 1}, "V@h": {0: 1}}))
    table, unchanged = offsets._offsets, offsets._offsets["T@g"]
    await offsets.adopt(
        ConsumerOffsets(
            offset_table={"T@g": {0: 3}, "U@g": {0: 2}, "U@h": {0: 5}},
            data_version=DataVersion(counter=7),
        )
    )
    assert offsets._offsets is table
    assert offsets._offsets["T@g"] is unchanged
    assert offsets.table == ConsumerOffsets(
        offset_table={"T@g": {0: 3}, "U@g": {0: 2}, "U@h": {0: 5}},
        data_version=DataVersion(counter=7),
    )
    assert (offsets.topics_of("h"), offsets.groups_of("V")) == ({"U"}, set())
    assert (offsets.topics_of("g"), offsets.groups_of("U")) == ({"T", "U"}, {"g", "h"})
    offsets.save()
    again = Table(tmp_path, CONSUMER_OFFSETS)
    again.load()
    assert again.value == offsets.table


@on_loop
async def test_commits_to_a_slave_count_while_it_adopts_many_offsets(tmp_path: Path) -> None:
    offsets = OffsetTable(Table(tmp_path, CONSUMER_OFFSETS), is_copy=True)
    await offsets.adopt(ConsumerOffsets(offset_table={"Own@g": {0: 1}}))
    topics = [f"T{at}" for at in range(5000)]
    told = {f"{topic}@g": {0: 5} for topic in topics} | {"Own@g": {0: 1}}
    adopting = asyncio.create_task(offsets.adopt(ConsumerOffsets(offset_table=told)))
    while offsets.find("g", "T0", 0) is None:  # noqa: ASYNC110  one slice later is too late
        await asyncio.sleep(0)
    assert offsets.find("g", "T4999", 0) is None
    offsets.commit("g", "T4999", 0, 9)
    offsets.commit("g", "T4998", 0, 3)
    offsets.commit("g", "T0", 0, 8)
    offsets.commit("g", "Own", 0, 2)
    await adopting
    found = {topic: offsets.find("g", topic, 0) for topic in (*topics, "Own")}
    assert found == dict.fromkeys(topics, 5) | {"T0": 8, "T4999": 9, "Own": 2}
    assert {topic for _, topic, _, _ in offsets.own()} == {"T0", "T4999", "Own"}


def test_a_master_adopts_offsets_of_a_slave_that_are_ahead_and_within_its_queues(
    tables: BrokerTables,
) -> None:
    tables.offsets.commit("g", "T", 0, 5)
    tables.offsets.commit("g", "T", 1, 5)
    told = ConsumerOffsets(
        offset_table={"T@g": {0: 4, 1: 6, 2: 9}, "gone@g": {0: 3}},
        data_version=tables.offsets.data_version.bumped(int(tables.clock() * 1000)),
    )
    ends = {("T", 0): 20, ("T", 1): 20, ("T", 2): 8}

    assert tables.offsets.take_ahead(told, lambda topic, queue: ends.get((topic, queue), 0)) == 2
    assert tables.offsets.of("g", "T") == {0: 5, 1: 6, 2: 8}
    assert tables.offsets.of("g", "gone") == {}


def test_a_master_does_not_let_a_slave_undo_a_reset(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 5)
    copied = ConsumerOffsets(offset_table={"T@g": {0: 5}}, data_version=tables.offsets.data_version)
    tables.clock.advance(0.5)
    tables.offsets.reset("g", "T", {0: 2})

    assert tables.offsets.take_ahead(copied, lambda *_: 20) == 0
    assert tables.offsets.find("g", "T", 0) == 2
