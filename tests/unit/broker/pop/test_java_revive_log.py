"""Taking over the revive log of a RocketMQ 5.x broker."""

from pathlib import Path
from typing import Any

import msgspec

from bolide.model.names import REVIVE_GROUP
from bolide.protocol import fastjson
from bolide.protocol.bodies.pop import BatchAck, BatchAcks
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.pop import AckHeader, ChangeInvisibleTimeHeader, PopHeader
from bolide.protocol.pop_info import Receipt
from tests.support.aio import on_loop
from tests.support.pop_core import PopCore
from tests.support.popping import read_pop

REVIVE_LOG = "rmq_sys_REVIVE_LOG_DefaultCluster"
POPPED = 1_699_999_990_000
"""Ten seconds before the broker started."""


def record(core: PopCore, tag: str, body: dict[str, Any], queue_id: int = 0) -> None:
    core.send(REVIVE_LOG, queue_id, msgspec.json.encode(body), f"TAGS\x01{tag}\x02".encode())


def checkpoint(start: int, distances: list[int], **given: Any) -> dict[str, Any]:
    """A "ck" body in the format of RocketMQ (captured from it)."""
    return {
        "bm": 0, "bn": "broker-a", "c": "G", "d": distances, "it": 60_000, "n": len(distances),
        "pt": POPPED, "q": 0, "ro": 0, "so": start, "t": "T",
    } | given  # fmt: skip


def ack(start: int, offset: int, **given: Any) -> dict[str, Any]:
    return {
        "ao": offset, "bn": "broker-a", "c": "G", "pt": POPPED, "q": 0, "so": start, "t": "T",
    } | given  # fmt: skip


async def taken_over(directory: Path, messages: int) -> PopCore:
    """Return a broker whose store holds messages popped by another broker."""
    core = PopCore(directory)
    await core.create("T", 1)
    core.tables.groups.require("G")
    for number in range(messages):
        core.send("T", 0, b"%d" % number)
    core.tables.offsets.commit("G", "T", 0, messages)
    return core


@on_loop
async def test_acknowledgements_of_messages_that_never_were_are_not_kept(tmp_path: Path) -> None:
    core = await taken_over(tmp_path, 3)
    record(core, "ck", checkpoint(0, [0], t="Gone"))
    before = sum(core.store.max_offset(REVIVE_LOG, queue_id) for queue_id in range(8))
    made_up = [
        BatchAck(
            consumer_group="G", topic=topic, start_offset=start, queue_id=queue_id,
            revive_queue_id=0, pop_time=POPPED, invisible_time=60_000, bit_set=b"\xff" * 200,
        )
        for topic, queue_id, start in (("T", 0, 1), ("T", 0, 2**62), ("T", 9, 0), ("None", 0, -5))
    ]  # fmt: skip
    body = fastjson.encode(BatchAcks(broker_name="broker-a", acks=made_up))
    answer = await core.call(RequestCode.BATCH_ACK_MESSAGE, NoHeader(), body)
    assert answer.code == ResponseCode.SUCCESS
    after = sum(core.store.max_offset(REVIVE_LOG, queue_id) for queue_id in range(8))
    assert after - before == 2
    await core.stop()


async def popped(core: PopCore) -> list[bytes]:
    header = PopHeader(
        consumer_group="G", topic="T", queue_id=-1, max_msg_nums=32, invisible_time=60_000,
        poll_time=0, born_time=0, init_mode=0,
    )  # fmt: skip
    return read_pop("T", await core.call(RequestCode.POP_MESSAGE, header)).bodies


@on_loop
async def test_what_is_not_acknowledged_there_is_delivered_here(tmp_path: Path) -> None:
    core = await taken_over(tmp_path, 10)
    record(core, "ck", checkpoint(0, [0, 1, 3, 4], bm=1))
    record(core, "ack", ack(0, 1))
    record(core, "bAck", ack(0, -1, aol=[3, 99]))
    record(core, "ck", {**checkpoint(5, []), "d": None, "n": 2}, queue_id=1)
    record(core, "ck", checkpoint(0, [0], t="Gone"))
    record(core, "ck", {"t": "T"})
    record(core, "ck", checkpoint(7, [0], q=55))
    await core.work()
    assert await popped(core) == []
    await core.work()
    assert core.tables.offsets.find("G", "T", 0) == 4
    assert core.tables.offsets.find(REVIVE_GROUP, REVIVE_LOG, 0) == 5
    core.clock.now += 55
    await core.work()
    assert await popped(core) == [b"4", b"5", b"6"]
    await core.stop()


@on_loop
async def test_a_crash_before_it_is_all_taken_over_loses_none(tmp_path: Path) -> None:
    core = await taken_over(tmp_path, 4)
    core.save()
    record(core, "ck", checkpoint(0, [0, 1]))
    await core.work()
    core = await core.crashed()  # its journal holds the pops, its committed offsets do not
    await core.work()
    await core.work()
    core.save()
    core = await core.crashed()
    core.clock.now += 55
    await core.work()
    assert await popped(core) == [b"0", b"1"]
    await core.stop()


@on_loop
async def test_what_is_acknowledged_before_its_record_comes_is_settled(tmp_path: Path) -> None:
    core = await taken_over(tmp_path, 3)
    record(core, "ck", checkpoint(0, [0], t="Gone"))
    receipt = Receipt(0, POPPED, 60_000, 2, "0", "broker-a", 0, 1)
    header = AckHeader("G", "T", 0, receipt.encode(), 1)
    assert (await core.call(RequestCode.ACK_MESSAGE, header)).code == ResponseCode.SUCCESS
    kept = receipt._replace(offset=2)
    change = ChangeInvisibleTimeHeader("G", "T", 0, kept.encode(), 2, 500_000)
    answer = await core.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change)
    assert answer.code == ResponseCode.SUCCESS
    await core.work()
    core.save()
    core = await core.crashed()
    await core.work()
    # Without a record in the revive log, no takeover is assumed.
    record(core, "ck", checkpoint(0, [0, 1, 2]), queue_id=2)
    await core.work()
    core.clock.now += 55
    await core.work()
    assert await popped(core) == [b"0"]
    core.clock.now += 500
    await core.work()
    assert sorted(await popped(core)) == [b"0", b"2"]
    await core.stop()
