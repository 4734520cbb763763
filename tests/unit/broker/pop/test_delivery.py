"""Delivery of pops under filters, resets and slow flushes."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.pop.delivery import AdmittedPop, PopDelivery, PopSteps, QueueRead
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.pop import PopHeader
from bolide.store.memory_store import MemoryStore
from bolide.store.reading import EVERYTHING
from tests.support.aio import on_loop
from tests.support.pop_core import PopCore
from tests.support.popping import read_pop

TAGGED = 801
"""More than the scan limit of a pop."""


def header(**given: Any) -> PopHeader:
    values: dict[str, Any] = {
        "consumer_group": "G", "topic": "T", "queue_id": -1, "max_msg_nums": 32,
        "invisible_time": 60_000, "poll_time": 0, "born_time": 0, "init_mode": 0,
    }  # fmt: skip
    return PopHeader(**values | given)


async def pop(core: PopCore, **given: Any) -> list[bytes]:
    return read_pop("T", await core.call(RequestCode.POP_MESSAGE, header(**given))).bodies


def run_to_end(delivery: PopDelivery, steps: PopSteps, reading: QueueRead) -> Any:
    try:
        while True:
            reading = steps.send(delivery.read(reading, may_block=True))
    except StopIteration as done:
        return done.value


@on_loop
async def test_in_order_what_nobody_wants_any_more_is_passed_over(tmp_path: Path) -> None:
    core = PopCore(tmp_path)
    await core.create("T", 1)
    for number in range(TAGGED):
        core.send("T", 0, b"%d" % number, b"TAGS\x01A\x02")
    core.send("T", 0, b"wanted", b"TAGS\x01B\x02")
    assert await pop(core, order=True, max_msg_nums=2) == [b"0", b"1"]
    core.clock.now += 61
    assert await pop(core, order=True, exp="B") == []
    assert await pop(core, order=True, exp="B") == [b"wanted"]
    await core.work()
    await core.work()
    assert core.tables.offsets.find("G", "T", 0) == TAGGED
    core = await core.crashed()
    assert await pop(core, order=True, exp="B") == []  # leased to a consumer
    await core.stop()


@on_loop
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_pop_that_waits_goes_on_behind_much_that_it_does_not_want(
    tmp_path: Path, ordered: bool
) -> None:
    core = PopCore(tmp_path)
    await core.create("T", 1)
    for _ in range(4 * TAGGED):
        core.send("T", 0, b"", b"TAGS\x01A\x02")
    core.send("T", 0, b"wanted", b"TAGS\x01B\x02")
    async with asyncio.timeout(5):
        assert await pop(core, exp="B", poll_time=60_000, order=ordered) == [b"wanted"]
    await core.stop()


@on_loop
async def test_a_pop_does_not_undo_a_reset_that_comes_while_it_reads_another_queue(
    tmp_path: Path,
) -> None:
    core = PopCore(tmp_path)
    await core.create("T", 2)
    for number in range(4):
        core.send("T", number % 2, b"%d" % number)
    asked = header()
    core.tables.groups.require("G")
    config = core.pop.admission.admit(asked, "10.0.0.9:1", "pop message")
    delivery = core.pop.delivery
    steps = delivery.steps(AdmittedPop(asked, config, EVERYTHING, "10.0.0.9:1", core.clock()))
    first = next(steps)
    second = steps.send(delivery.read(first, may_block=True))
    assert first.queue_id != second.queue_id
    core.tables.offsets.reset("G", "T", {first.queue_id: 0})
    result = run_to_end(delivery, steps, second)
    assert [batch.queue_id for batch in result.batches] == [second.queue_id]
    assert len(await pop(core)) == 2
    await core.stop()


@on_loop
async def test_many_pops_do_not_hurry_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = PopCore(tmp_path)
    await core.create("T", 1)
    hurried: list[float] = []

    def flush() -> bool:
        hurried.append(time.monotonic())
        return True

    monkeypatch.setattr(core.store, "flush", flush)
    monkeypatch.setattr(MemoryStore, "flushed", 0)
    begun = time.monotonic()
    task = asyncio.create_task(core.pop.run())
    for number in range(40):
        core.send("T", 0, b"%d" % number)
        assert await pop(core) == [b"%d" % number]
        await asyncio.sleep(0.005)
    task.cancel()
    assert len(hurried) <= 2 * (time.monotonic() - begun)
    monkeypatch.undo()
    await core.stop()
