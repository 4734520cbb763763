"""Our broker counts what Apache's counts: the same operations, and the answers to each name."""

import asyncio
from collections.abc import Iterator

import pytest

from bolide.protocol.bodies.stats import BrokerConsumeStats, StatsWindow
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST, obtain_or_skip
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.counted import (
    AGAIN,
    CLUSTER,
    COUNTS,
    OPS,
    SIZES,
    TIMES,
    UNKNOWN,
    Counted,
    G,
    P,
    T,
    all_keys,
    ask,
    create_topic,
    end_of,
    operate,
    send,
)  # fmt: skip
from tests.support.popping import PopClient

SAMPLED = 11.0
"""Seconds until RocketMQ has taken a sample of everything."""


@pytest.fixture(scope="module")
def counted(
    java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Counted, Counted]]:
    """What Apache's newest broker and ours say after the same operations."""
    obtain_or_skip(NEWEST)
    name_server = java_module_bench.namesrv(NEWEST)
    java = java_module_bench.broker(NEWEST, name_server.address, timerWheelEnable=True)
    with (
        bolide_namesrv(tmp_path_factory.mktemp("namesrv")) as ours_namesrv,
        bolide_broker(
            tmp_path_factory.mktemp("broker"), ours_namesrv.address, auditEnable=False
        ) as ours,
    ):
        yield asyncio.run(count_both(java.address, ours.address))


async def count_both(java: str, ours: str) -> tuple[Counted, Counted]:
    await asyncio.gather(operate(java), operate(ours))
    await asyncio.sleep(SAMPLED)
    return await asyncio.gather(ask(java, all_keys()), ask(ours, all_keys()))


def test_ours_counts_what_apaches_counts(counted: tuple[Counted, Counted]) -> None:
    java, ours = counted
    both = {
        (name, key): (java.minute(name, key), ours.minute(name, key))
        for names in (COUNTS, SIZES)
        for name, keys in names.items()
        for key in keys
    }
    different = {
        each: (theirs, mine)
        for each, (theirs, mine) in both.items()
        if _counts(theirs) != _counts(mine)
    }
    assert not different
    assert sum(window is not None for window, _ in both.values()) >= 20


def test_what_the_broker_itself_stores_is_counted(counted: tuple[Counted, Counted]) -> None:
    for broker in counted:
        assert broker.sum("TOPIC_PUT_SIZE", T) == broker.stored
    java, ours = counted  # Java counts a record of the ends of transactions, when it writes one
    assert ours.sum("BROKER_PUT_NUMS", CLUSTER) == java.sum("BROKER_PUT_NUMS", CLUSTER) - java.sum(
        "TOPIC_PUT_NUMS", OPS
    )


def test_times_are_kept_under_the_same_keys(counted: tuple[Counted, Counted]) -> None:
    keys = {(name, key) for name, keys in TIMES.items() for key in keys}
    for broker in counted:
        assert keys <= broker.found.keys()
        assert all(0 <= broker.sum(*each) < 10_000 for each in keys)


def test_the_same_names_and_keys_are_unknown(counted: tuple[Counted, Counted]) -> None:
    for broker in counted:
        assert not UNKNOWN.items() & broker.found.keys()


def test_the_day_shows_what_the_first_minute_has(counted: tuple[Counted, Counted]) -> None:
    """Java's shows it within an hour."""
    _, ours = counted
    for name, keys in COUNTS.items():
        for stats in filter(None, (ours.found.get((name, key)) for key in keys)):
            assert stats.stats_minute and stats.stats_hour and stats.stats_day
            assert stats.stats_minute.sum == stats.stats_hour.sum == stats.stats_day.sum > 0


def test_runtime_figures_are_the_same(counted: tuple[Counted, Counted]) -> None:
    java, ours = (broker.runtime for broker in counted)
    same = ("msgPutTotalTodayNow", "msgGetTotalTodayNow", "putMessageFailedTimes",
            "timerReadBehind", "timerOffsetBehind", "dispatchBehindBytes",
            "sendThreadPoolQueueSize", "remainTransientStoreBufferNumbs")  # fmt: skip
    assert {name: ours[name] for name in same} == {name: java[name] for name in same}
    assert int(ours["putMessageTimesTotal"]) >= int(ours["msgPutTotalTodayNow"])


def test_the_consumption_of_all_groups_is_the_same(counted: tuple[Counted, Counted]) -> None:
    """But that of a pop: Java's moves on when messages are leased, ours when they are done."""
    java, ours = (_queues(broker.consumption) for broker in counted)
    assert ours.pop((G, P, 0)) == (5, 1)
    assert java.pop((G, P, 0)) == (5, 4)
    assert ours == java
    assert java[G, T, 0] == (9, 2)


def _queues(found: BrokerConsumeStats) -> dict[tuple[str, str, int], tuple[int, int]]:
    return {
        (group, queue.topic, queue.queue_id): (progress.broker_offset, progress.consumer_offset)
        for each in found.consume_stats_list
        for group, listed in each.items()
        if group in {G, "others"}
        for stats in listed
        for queue, progress in stats.offset_table.items()
    }


@pytest.mark.long
def test_what_is_popped_again_is_counted_the_same(counted: tuple[Counted, Counted]) -> None:
    async def both() -> list[dict[tuple[str, str], tuple[int, float] | None]]:
        return await asyncio.gather(*(pop_again(broker.address) for broker in counted))

    java, ours = asyncio.run(both())
    assert ours == java
    assert java["TOPIC_PUT_NUMS", f"%RETRY%{G}_{AGAIN}"] == (2, 1.0)


async def pop_again(address: str) -> dict[tuple[str, str], tuple[int, float] | None]:
    """Let two popped messages come again and acknowledge them then; returns what was counted."""
    retry = f"%RETRY%{G}_{AGAIN}"
    async with PopClient(address, G) as client:
        await create_topic(client, AGAIN, 1)
        for number in range(200, 202):
            await send(client, AGAIN, number)
        assert len((await client.pop(AGAIN, max_msg_nums=2, invisible_time=2000)).messages) == 2
        async with asyncio.timeout(60):
            while await end_of(client, retry) < 2:  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0.2)
        await asyncio.sleep(1)
        for message in (await client.pop(AGAIN, max_msg_nums=2)).messages:
            await client.ack(AGAIN, message)
    await asyncio.sleep(SAMPLED)
    keys = {
        "TOPIC_PUT_NUMS": retry,
        "GROUP_GET_NUMS": f"{retry}@{G}",
        "GROUP_CK_NUMS": f"{AGAIN}@{G}",
        "GROUP_ACK_NUMS": f"{retry}@{G}",
    }
    found = await ask(address, keys.items())
    return {each: _counts(found.minute(*each)) for each in keys.items()}


def _counts(window: StatsWindow | None) -> tuple[int, float] | None:
    return None if window is None else (window.sum, round(window.avgpt, 6))
