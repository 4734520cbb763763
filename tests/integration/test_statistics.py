"""What a broker counts of traffic of all kinds; tests/interop compares it with RocketMQ's."""

import asyncio
from pathlib import Path

import pytest

from tests.support.broker import broker_in
from tests.support.counted import (
    CLUSTER,
    DELAYED,
    HALF,
    RETRY,
    TIMERS,
    TIMES,
    UNKNOWN,
    Counted,
    G,
    P,
    T,
    all_keys,
    ask,
    operate,
)  # fmt: skip


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    async def count(directory: Path) -> Counted:
        async with broker_in(directory) as broker:
            await operate(broker.address)
            return await ask(broker.address, all_keys())

    return asyncio.run(count(tmp_path_factory.mktemp("counted")))


def test_each_message_is_counted_where_rocketmq_counts_it(counted: Counted) -> None:
    expected = {
        ("TOPIC_PUT_NUMS", T): 13,  # 6, a batch of 4, a delayed, a timer and a committed one
        ("TOPIC_PUT_NUMS", DELAYED): 2,  # the delayed one and a retry
        ("TOPIC_PUT_NUMS", TIMERS): 1,
        ("TOPIC_PUT_NUMS", HALF): 2,
        ("TOPIC_PUT_NUMS", RETRY): 1,  # the dead letter is in no topic
        ("TOPIC_PUT_NUMS", P): 5,
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER): 13 + 1 + 5,
        ("BROKER_PUT_NUMS", CLUSTER): 13 + 1 + 5 + 1 + 1 + 2,  # not the retry while it is delayed
        ("GROUP_GET_NUMS", f"{T}@{G}"): 4,
        ("GROUP_GET_NUMS", f"{P}@{G}"): 4,
        ("GROUP_GET_NUMS", f"{DELAYED}@SCHEDULE_CONSUMER"): 2,
        ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER): 8,
        ("GROUP_CK_NUMS", f"{P}@{G}"): 3,  # two pops and a changed invisible time
        ("GROUP_ACK_NUMS", f"{P}@{G}"): 3,
        ("SNDBCK_PUT_NUMS", f"{T}@{G}"): 2,
        ("SNDBCK2DLQ_TIMES", f"null@{T}@{G}@SEND_BACK_TO_DLQ"): 1,
        ("TOPIC_PUT_SIZE", T): counted.stored,
    }
    assert {each: counted.sum(*each) for each in expected} == expected


def test_times_have_keys_and_nothing_is_made_up(counted: Counted) -> None:
    assert {(name, key) for name, keys in TIMES.items() for key in keys} <= counted.found.keys()
    assert not UNKNOWN.items() & counted.found.keys()


def test_runtime_figures_tell_users_messages_from_all(counted: Counted) -> None:
    figures = counted.runtime
    assert figures["msgPutTotalTodayNow"] == "19"
    assert figures["msgGetTotalTodayNow"] == "8"
    assert figures["putMessageTimesTotal"] == "25"  # also two that were sent back
