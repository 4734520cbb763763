"""The table of SQL filters registered by groups."""

from pathlib import Path

import pytest

from bolide.broker.filters.filters import NotCompiled
from bolide.broker.filters.sql import compiler
from bolide.broker.filters.subscriptions import FilterTable, bloom_positions
from bolide.model.names import retry_topic
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.record import encode_record
from bolide.protocol.refusals import FilterNotFound, FilterOutdated
from bolide.store.reading import EVERYTHING
from bolide.store.tables import CONSUMER_FILTERS, Table
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables
from tests.support.clock import FakeClock
from tests.support.store import draft


def wants(expression: str, version: int = 1, topic: str = "T", kind: str = "SQL92") -> Subscription:
    return Subscription(
        topic=topic, sub_string=expression, sub_version=version, expression_type=kind
    )


def loaded(directory: Path, clock: FakeClock) -> FilterTable:
    table = Table(directory, CONSUMER_FILTERS)
    table.load()
    return FilterTable(table, clock)


def expression(table: FilterTable, topic: str = "T", group: str = "g") -> str | None:
    found = table.find(topic, group)
    return found.expression if found else None


def test_the_bits_are_those_that_java_computes() -> None:
    assert bloom_positions("G", "T").bit_pos == [24, 26, 83]
    long = bloom_positions("a-consumer-group-with-a-long-name", "TopicTest")
    assert (long.bit_num, len(long.bit_pos)) == (112, 3)


def test_a_newer_expression_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    table = loaded(tmp_path, FakeClock())
    table.register("g", [wants("a > 1", 2), wants("tag", kind="TAG", topic="U")])
    table.register("g", [wants("a > 0", 1)])
    table.register("g", [wants("a > 9", 2)])
    assert expression(table) == "a > 1"
    assert expression(table, "U") is None
    table.register("g", [wants("a > 3", 3)])
    assert expression(table) == "a > 3"
    table.register("g", [wants("a >", 4)])  # an invalid filter removes the old one
    assert expression(table) is None


def test_a_filter_dies_with_its_group_and_comes_back_with_it(tmp_path: Path) -> None:
    clock = FakeClock(1_000_000.0)
    table = loaded(tmp_path, clock)
    table.register("g", [wants("a > 1", 5)])
    clock.advance(10)
    table.sweep(lambda _: True, 3600)
    assert not _is_dead(table)
    table.register("g", [wants("b > 1", topic="U")])  # T is no longer subscribed to
    assert _is_dead(table)
    table.register("g", [wants("a > 1", 5)])
    assert not _is_dead(table)
    table.sweep(lambda _: False, 3600)
    assert _is_dead(table)
    table.register("g", [wants("a > 2", 4)])  # from a client whose clock was set back
    assert (expression(table), _is_dead(table)) == ("a > 2", False)
    table.sweep(lambda _: False, 3600)
    clock.advance(3599)
    table.sweep(lambda _: False, 3600)
    assert expression(table) == "a > 2"
    clock.advance(1)
    table.sweep(lambda _: False, 3600)
    assert not table.table.value.filter_data_by_topic


def test_it_is_saved_and_after_a_restart_counts_as_dead(tmp_path: Path) -> None:
    clock = FakeClock(1_000_000.0)
    table = loaded(tmp_path, clock)
    table.register("g", [wants("a > 1", 5)])
    table.table.save()
    clock.advance(100)
    again = loaded(tmp_path, clock)
    assert (expression(again), _is_dead(again)) == ("a > 1", True)


@on_loop
async def test_pulls_are_told_what_is_missing_or_old(tables: BrokerTables) -> None:
    filters = tables.filters
    with pytest.raises(FilterNotFound, match=r"Your expression may be wrong! .* ends too early"):
        filters.subscription_filter("g", wants("a >"), 1)
    await filters.register("g", [wants("a > 1", 3)])
    with pytest.raises(FilterOutdated, match="not latest"):
        filters.subscription_filter("g", wants("a > 1", 4), 4)
    assert filters.subscription_filter("g", wants("a > 1", 3), 3).record is not None


@on_loop
async def test_what_a_group_wanted_before_a_restart_is_compiled_before_it_pulls(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tables.filters.register("g", [wants("a > 1", 3)])
    tables.filters.save()
    monkeypatch.setattr(compiler, "_cache", compiler._ResultCache())
    again = tables.restarted().filters
    with pytest.raises(NotCompiled, match="a > 1"):
        again.subscription_filter("g", wants("a > 1", 3), 3)
    await again.register("g", [wants("a > 1", 3)])
    assert again.subscription_filter("g", wants("a > 1", 3), 3).record is not None


@on_loop
async def test_a_retry_that_nobody_can_judge_is_delivered(tmp_path: Path) -> None:
    """For example an expression accepted by another broker and too long for this one."""
    tables = BrokerTables(tmp_path, {"filter_support_retry": True})
    record = memoryview(
        encode_record(draft(topic=retry_topic("g"), properties={"RETRY_TOPIC": "T", "a": "1"}))
    )
    wanted = tables.filters.retry_filter("g", EVERYTHING).record
    assert wanted is not None
    verdicts = []
    for text in ("a > 5", "a < 5", "a <"):
        tables.filters.table.register("g", [wants("b = 1", 1)])
        found = tables.filters.table.find("T", "g")
        assert found is not None
        found.expression = text
        verdicts.append(wanted(record))
    assert verdicts == [False, True, True]


def _is_dead(table: FilterTable) -> bool:
    found = table.find("T", "g")
    assert found is not None
    return found.is_dead()
