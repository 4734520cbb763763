"""One epoch's view of a park queue: a write takes effect when it is read back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from bolide.client.consumer.parking.park import Park, Superseded
from bolide.client.consumer.parking.park_log import ParkLog, ParkLogRead
from bolide.client.consumer.parking.records import Kind, ParkRecord
from bolide.errors import BolideError
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock
from tests.support.park_log import SOURCE, MemoryParkLog
from tests.unit.client.stored import stored

HOUR = 3600.0


@asynccontextmanager
async def opened(log: MemoryParkLog, now: FakeClock | None = None) -> AsyncIterator[Park]:
    park = Park(cast(Any, log), SOURCE, lambda: None, now or FakeClock(0.0))
    await park.open()
    reading = asyncio.create_task(park.run())
    try:
        yield park
    finally:
        reading.cancel()
        await asyncio.wait([reading])


@on_loop
async def test_a_tenure_begins_with_what_those_before_left() -> None:
    log = MemoryParkLog()
    async with opened(log) as first:
        await first.put("a", stored(5, b"five"), "why", 7)
        await first.put("a", stored(6), "why", 7)
        await first.done("a", 5)
    async with opened(log) as second:
        found = second.keys.find("a")
        assert found is not None
        assert (list(found.entries), found.error, found.since_ms) == ([6], "why", 7)
        message = await second.find(found.first, "T")
        assert message is not None
        assert (message.topic, message.queue_offset) == ("T", 6)


@on_loop
async def test_records_of_other_queues_are_passed_over() -> None:
    log = MemoryParkLog()
    log.put(ParkRecord(kind=Kind.PARK, topic="other", queue_id=0, key="a", offset=1))
    log.put(ParkRecord(kind=Kind.PARK, topic="T", queue_id=16, key="a", offset=1))
    async with opened(log) as park:
        assert len(park.keys) == 0


@on_loop
async def test_whoever_lost_the_queue_writes_nothing_that_counts() -> None:
    log = MemoryParkLog()
    async with opened(log) as first, opened(log) as second:
        with pytest.raises(Superseded, match="T/broker-a/0 belongs to another member now"):
            await first.put("a", stored(5), "why", 7)
        assert first.is_superseded
        with pytest.raises(Superseded):
            await first.done("a", 5)
        await second.put("b", stored(6), "why", 7)
        assert [each.key for each in second.keys] == ["b"]
    assert [each.key for each in log.fold()] == ["b"]


@on_loop
async def test_what_an_administrator_writes_is_heard() -> None:
    log = MemoryParkLog()
    async with opened(log) as park:
        await park.put("a", stored(5), "why", 7)
        log.put(ParkRecord(kind=Kind.RESUME, topic="T", queue_id=0, key="a"))
        await until(lambda: park.keys.resuming == {"a"})
        await park.block("a", "again")
        assert park.keys.resuming == set()


@on_loop
async def test_what_grows_old_is_written_again_before_the_broker_deletes_it() -> None:
    log, clock = MemoryParkLog(), FakeClock(0.0)
    async with opened(log, clock) as park:
        await park.put("a", stored(5, b"five"), "why", 7)
        assert park.aged() == []
        clock.advance(HOUR / 3 + 1)
        assert park.aged() == ["a"]
        assert park.aged() == [], "once a minute is enough"
        parked = park.keys.find("a")
        assert parked is not None
        await park.rewrite(parked.first)
        await until(lambda: [r.kind for r, _ in log.records[-2:]] == [Kind.PARK, Kind.OPEN])
        log.first = len(log.records) - 2
    async with opened(log) as heir:
        found = heir.keys.find("a")
        assert found is not None
        message = await heir.find(found.first, "T")
        assert message is not None
        assert message.body == b"five"


@on_loop
async def test_what_is_gone_or_no_message_is_not_found() -> None:
    log = MemoryParkLog()
    async with opened(log) as park:
        await park.put("a", stored(5), "why", 7)
        parked = park.keys.find("a")
        assert parked is not None
        assert await park.find(parked.first._replace(park_offset=0), "T") is None
        assert await park.find(parked.first._replace(park_offset=9), "T") is None


@on_loop
async def test_a_topic_that_was_made_anew_is_read_anew() -> None:
    log = MemoryParkLog()
    async with opened(log) as park:
        await park.put("a", stored(5), "why", 7)
        log.records.clear()
        with pytest.raises(Superseded):
            await park.put("a", stored(6), "why", 7)
        assert park.is_superseded
    async with opened(log) as again:
        await again.put("a", stored(6), "why", 7)
    found = log.fold().find("a")
    assert found is not None
    assert list(found.entries) == [6]


@on_loop
async def test_a_record_is_gone_only_if_the_queue_begins_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ParkLog(cast(Any, None), "group", SOURCE)
    monkeypatch.setattr(log, "read", AsyncMock(return_value=ParkLogRead([], 7)))
    monkeypatch.setattr(log, "first_park_offset", AsyncMock(return_value=5))
    assert await log.find(4) is None
    with pytest.raises(BolideError, match="does not return its record at 5 now"):
        await log.find(5)


@on_loop
async def test_a_broker_that_keeps_nothing_is_not_written_to_without_end() -> None:
    log, clock = MemoryParkLog(), FakeClock(0.0)
    log.kept = 0.0
    async with opened(log, clock) as park:
        await park.put("a", stored(5), "why", 7)
        clock.advance(30.0)
        assert park.aged() == []
