"""The console's operations on messages at brokers of Apache RocketMQ."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from bolide import Message, Producer, PushConsumer
from bolide.operations.messages.views import GroupState, MessageList, Order
from tests.interop.bench import Bench
from tests.interop.matrix.brokers import cluster
from tests.support.aio import PATIENCE, until
from tests.support.operations_desk import Desk, desk_at, send
from tests.support.own_cluster import create_topic

TOPIC, GROUP, COUNT = "Shown", "readers", 300


@pytest.mark.parametrize("broker", ["5.x", pytest.param("4.9", marks=pytest.mark.long)])
def test_messages_are_found_and_tracked_at_an_apache_broker(
    broker: str, java_bench: Bench, tmp_path: Path
) -> None:
    with cluster(broker, tmp_path, java_bench) as served:
        asyncio.run(look_at(served.namesrv_address))


async def look_at(address: str) -> None:
    async with Producer("setup", name_server=address) as producer:
        await create_topic(producer, TOPIC, 3)
    messages = [
        Message(TOPIC, b"%d" % n, keys=["all", f"k{n}"], tags=f"t{n % 3}", properties={"n": str(n)})
        for n in range(COUNT)
    ]
    await send(address, TOPIC, messages[: COUNT // 2])
    await asyncio.sleep(0.05)
    middle = int(time.time() * 1000)
    await asyncio.sleep(0.05)
    ids = await send(address, TOPIC, messages[COUNT // 2 :])
    async with desk_at(address) as desk:
        await check_browsing(desk, middle)
        await check_look_up(desk, ids)
        await check_state(desk, address, ids[0])


async def check_browsing(desk: Desk, middle: int) -> None:
    for order in Order:
        got, cursor, pages = list[int](), "", 0
        while not pages or cursor:
            part = await desk.search(TOPIC, order=order, cursor=cursor, size=100)
            got, cursor, pages = got + numbers(part), part.next or "", pages + 1
            times = [each.stored_ms for each in part.items]
            assert times == sorted(times, reverse=order is Order.NEWEST)
        assert (sorted(got), pages) == ([*range(COUNT)], 3)
    late = await desk.search(TOPIC, begin_ms=middle, size=200)
    assert sorted(numbers(late)) == [*range(COUNT // 2, COUNT)]
    early = await desk.search(TOPIC, end_ms=middle, size=200)
    assert sorted(numbers(early)) == [*range(COUNT // 2)]
    tagged = await desk.search(TOPIC, tags="t1", size=200)
    assert sorted(numbers(tagged)) == [*range(1, COUNT, 3)]
    for sql in ("n BETWEEN 7 AND 9", "TAGS = 't1' AND n < 10 AND n > 3"):
        found = await desk.search(TOPIC, sql=sql, order=Order.OLDEST)
        assert sorted(numbers(found)) == ([7, 8, 9] if "BETWEEN" in sql else [4, 7])
        assert found.remaining == 0
    (broker,) = {each.broker for each in tagged.items}
    queue: dict[str, Any] = {"topic": TOPIC, "broker": broker, "queue_id": 2}
    browsed = await desk.search(**queue, offset=90, order=Order.OLDEST)
    assert [each.queue_offset for each in browsed.items] == [*range(90, 100)]
    one = await desk("messages.view_message_at", **queue, offset=90)
    assert one.row == browsed.items[0]


async def check_look_up(desk: Desk, ids: list[str]) -> None:
    await desk.soon("messages.find_by_id", topic=TOPIC, message_id=ids[-1])
    got, cursor, pages = list[int](), "", 0
    while not pages or cursor:
        part = await desk("messages.find_by_key", topic=TOPIC, key="all", cursor=cursor)
        got, cursor, pages = got + numbers(part), part.next or "", pages + 1
    assert sorted(got) == [*range(COUNT)]
    (row,) = (await desk("messages.find_by_key", topic=TOPIC, key="k155")).items
    assert (row.preview, row.tags) == ("155", "t2")
    by_offset_id = await desk(
        "messages.view_message", topic=TOPIC, message_id=row.offset_message_id
    )
    assert by_offset_id.row == row
    assert by_offset_id.properties == {"n": "155"}


async def check_state(desk: Desk, address: str, message_id: str) -> None:
    at: dict[str, Any] = {"topic": TOPIC, "message_id": message_id}
    got: list[bytes] = []
    async with PushConsumer(GROUP, name_server=address, consume_from="first") as consumer:
        await consumer.subscribe(TOPIC, lambda message: got.append(message.body))
        await until(lambda: len(got) == COUNT, within=3 * PATIENCE)
        await consumer.commit()
        async with asyncio.timeout(PATIENCE):
            while True:
                (state,) = (await desk("messages.message_groups", **at)).items
                if state.state is GroupState.CONSUMED:
                    break
                await asyncio.sleep(0.1)
        assert (state.group, state.online) == (GROUP, True)
        done = await desk("messages.consume_message", **at, group=GROUP)
        assert done.succeeded
        assert got[COUNT:] == [b"150"]
        copy = await desk("messages.send_copy", **at)
        await until(lambda: got[COUNT + 1 :] == [b"150"])
        seen = await desk.soon("messages.view_message", topic=TOPIC, message_id=copy.message_id)
        assert seen.properties["n"] == "150"


def numbers(found: MessageList) -> list[int]:
    return [int(each.preview) for each in found.items]
