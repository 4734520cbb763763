"""A store with popped messages goes from an Apache broker to ours, and the other way round.

What was popped and not acknowledged is delivered by whoever has the store next. What was
acknowledged is not, when ours takes over; RocketMQ knows nothing of our journal, and delivers again
from the first message on that is not settled.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker
from tests.support.popping import PopClient, PoppedMessage
from tests.support.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

TOPIC = "Handed"
MANY = 40
SIZES: dict[str, str | int | bool] = {
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}

Turn = Callable[[], AbstractContextManager[str]]
"""A broker that has the store for a while; its address."""


@pytest.fixture
def turns(java_bench: Bench, tmp_path: Path) -> tuple[Turn, Turn]:
    """Java's turn and ours with one store, on one port."""
    port = free_port(BROKER_NEIGHBOURS)
    namesrv = java_bench.namesrv(NEWEST).address
    root = tmp_path / "store"

    @contextmanager
    def java() -> Iterator[str]:
        server: Server = java_bench.broker(
            NEWEST, namesrv, listenPort=port, storePathRootDir=str(root), timerWheelEnable=True,
            brokerName="broker-a", jvm=(), **SIZES,
        )  # fmt: skip
        yield server.address
        server.stop()

    @contextmanager
    def ours() -> Iterator[str]:
        settings = {"listenPort": port, "storePathRootDir": root, "brokerName": "broker-a"}
        with bolide_broker(tmp_path / "ours", namesrv, **settings, **SIZES) as server:
            yield server.address

    return java, ours


async def send(client: PopClient, first: int, count: int) -> None:
    for number in range(first, first + count):
        await client.send(TOPIC, b"%d" % number, queue_id=number % 4)


async def pop(
    client: PopClient, count: int, invisible: int, *, within: float = 60.0
) -> list[PoppedMessage]:
    """As many messages, or fewer if there are none for a while."""
    found: list[PoppedMessage] = []
    end = time.monotonic() + within
    while len(found) < count and time.monotonic() < end:
        most = min(count - len(found), 8)
        popped = await client.pop(
            TOPIC, max_msg_nums=most, invisible_time=invisible, poll_time=1000
        )
        found += popped.messages
    return found


def bodies(messages: list[PoppedMessage]) -> set[bytes]:
    return {message.body for message in messages}


def everything(count: int) -> set[bytes]:
    return {b"%d" % number for number in range(count)}


def test_ours_takes_over_what_java_gave_away(turns: tuple[Turn, Turn]) -> None:
    java, ours = turns

    async def with_java(address: str) -> tuple[list[PoppedMessage], list[PoppedMessage]]:
        async with PopClient(address) as client:
            await send(client, 0, MANY)
            held = await pop(client, MANY // 2, 25_000)
            acked, kept = held[::2], held[1::2]
            for message in acked:
                await client.ack(TOPIC, message)
            await asyncio.sleep(6)  # it writes its offsets every five seconds
            return acked, kept

    async def with_ours(address: str, kept: list[PoppedMessage]) -> list[PoppedMessage]:
        async with PopClient(address) as client:
            fresh = await pop(client, MANY // 2, 60_000)
            for message in [*fresh, *kept[:3]]:  # these three are of the other broker's pops
                await client.ack(TOPIC, message)
            again = await pop(client, MANY, 60_000, within=40)
            for message in again:
                await client.ack(TOPIC, message)
            assert not await pop(client, 1, 60_000, within=3)
            assert all(message.record.reconsume_times == 1 for message in again)
            return [*fresh, *again]

    with java() as address:
        acked, kept = asyncio.run(with_java(address))
    with ours() as address:
        got = asyncio.run(with_ours(address, kept))
    assert bodies(acked) | bodies(kept[:3]) | bodies(got) == everything(MANY)
    assert bodies(kept[3:]) <= bodies(got)
    assert not (bodies(acked) | bodies(kept[:3])) & bodies(got)
    assert len(got) == len(bodies(got))


def test_java_goes_on_where_ours_has_not_settled_and_gives_it_back(
    turns: tuple[Turn, Turn],
) -> None:
    java, ours = turns

    async def first(address: str) -> tuple[set[bytes], set[bytes]]:
        async with PopClient(address) as client:
            await send(client, 0, MANY)
            held = await pop(client, MANY // 2, 5000)
            for message in held[::2]:
                await client.ack(TOPIC, message)
            return bodies(held[::2]), bodies(held[1::2])

    async def second(address: str) -> tuple[set[bytes], set[bytes]]:
        async with PopClient(address) as client:
            got = await pop(client, MANY // 2, 60_000)
            for message in got[:-3]:
                await client.ack(TOPIC, message)
            await asyncio.sleep(6)
            return bodies(got[:-3]), bodies(got[-3:])

    async def third(address: str) -> set[bytes]:
        async with PopClient(address) as client:
            got = await pop(client, 2 * MANY, 120_000, within=75)
            for message in got:
                await client.ack(TOPIC, message)
            return bodies(got)

    with ours() as address:
        acked, kept = asyncio.run(first(address))
    with java() as address:
        acked_there, kept_there = asyncio.run(second(address))
    with ours() as address:
        got = asyncio.run(third(address))
    assert acked | acked_there | got == everything(MANY)
    assert kept <= acked_there | got
    assert kept_there <= got
    assert not acked_there & got - kept_there
