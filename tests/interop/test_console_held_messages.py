"""The console's operations on held messages at brokers of Apache RocketMQ."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from bolide import Message, Producer, PushConsumer, TransactionProducer
from bolide.admin import AdminClient
from bolide.client.producer.results import TransactionState
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.operations.cluster import Cluster
from bolide.operations.dead_letters.listing import (
    list_dead_letter_groups,
    list_dead_letters,
    show_dead_letter,
)
from bolide.operations.dead_letters.redrives import (
    plan_redrive,
    purge_dead_letters,
    redrive_dead_letters,
)
from bolide.operations.dead_letters.views import LetterState
from bolide.operations.errors import NotSupported
from bolide.operations.held.timers import count_timers, list_timers
from bolide.operations.held.transactions import count_transactions, list_transactions
from bolide.operations.jobs import JobState, list_jobs
from tests.interop.bench import Bench
from tests.support.aio import PATIENCE, on_loop
from tests.support.own_cluster import create_topic

# The core pages are tried against RocketMQ by the default suite.
pytestmark = pytest.mark.long

T = TypeVar("T")
GROUP = "despairing"


async def eventually(read: Callable[[], Awaitable[T]], good: Callable[[T], object]) -> T:
    async with asyncio.timeout(6 * PATIENCE):
        while True:
            try:
                if good(found := await read()):
                    return found
            except BolideError:
                pass
            await asyncio.sleep(0.2)


async def fail(_: StoredMessage) -> None:
    raise ValueError("bad")


@on_loop
async def test_dead_letters_of_rocketmq_are_found_and_sent_again(
    java_bench: Bench, rocketmq: str
) -> None:
    names = java_bench.namesrv(rocketmq)
    is_new = rocketmq == "5.x"
    java_bench.broker(rocketmq, names.address, timerWheelEnable=is_new)
    async with AdminClient(names.address) as admin:
        shown = Cluster(admin=admin, name_servers=names.address)
        await eventually(lambda: admin.topics.route("TBW102"), bool)
        async with (
            Producer("shop", name_server=names.address) as producer,
            PushConsumer(
                GROUP, name_server=names.address, consume_from="first", max_reconsume_times=0
            ) as consumer,
        ):
            await create_topic(producer, "Orders", 1)
            await consumer.subscribe("Orders", fail)
            for number in range(3):
                message = Message("Orders", b"x", keys=f"k{number}", properties={"ERROR": "no"})
                await producer.send(message)

            async def count() -> int | None:
                shown.forget()
                found = await list_dead_letter_groups.function(shown)
                return found.items[0].messages if found.items else 0

            await eventually(count, lambda found: found == 3)
        await check_letters(shown)
        await check_held(shown, names.address, is_new=is_new)


async def check_letters(shown: Cluster) -> None:
    found = await list_dead_letters.function(shown, group=GROUP, state=True)
    assert {(each.reason, each.origin_topic) for each in found.items} == {("no", "Orders")}
    assert {each.state for each in found.items} == {LetterState.NEW}
    position = found.items[0].position
    detail = await show_dead_letter.function(shown, group=GROUP, position=position)
    assert [each.topic for each in detail.history] == ["Orders"]
    assert (await plan_redrive(shown, group=GROUP)).outcomes == {"PLANNED": 3}
    for outcomes in ({"SENT": 3}, {"SENT_BEFORE": 3}):
        await redrive_dead_letters.function(shown, group=GROUP)
        jobs = await eventually(
            lambda: list_jobs.function(shown),
            lambda found: found.items[0].state is not JobState.RUNNING,
        )
        assert (jobs.items[0].error, jobs.items[0].outcomes) == ("", outcomes)
    await eventually(
        lambda: list_dead_letters.function(shown, group=GROUP, state=True),
        lambda found: {each.state for each in found.items} == {LetterState.RESENT},
    )


async def check_held(shown: Cluster, address: str, *, is_new: bool) -> None:
    """Numbers only, and the reason why there is no list."""
    async with (
        Producer("later", name_server=address) as producer,
        TransactionProducer(
            "payers", check=lambda _: TransactionState.UNKNOWN, name_server=address
        ) as payers,
    ):
        await payers.begin(Message("Orders", b"half"))
        await producer.send(Message("Orders", b"delayed", delay_level=18))
        if is_new:
            await producer.send(Message("Orders", b"timer", delay=3600))

        async def timers() -> int | None:
            shown.forget()
            (broker,) = (await count_timers.function(shown)).brokers
            assert broker.lists is False
            waiting = [(each.level, each.delay, each.waiting) for each in broker.levels or ()]
            assert waiting == [(18, "2h", 1)]
            return broker.timers

        assert await eventually(timers, lambda found: found == 1 or not is_new) == (
            1 if is_new else None
        )

        async def transactions() -> int | None:
            shown.forget()
            (broker,) = (await count_transactions.function(shown)).brokers
            assert broker.lists is False
            return broker.open

        await eventually(transactions, lambda found: found is not None and found >= 1)
    for listing in (list_timers, list_transactions):
        with pytest.raises(NotSupported, match="only Bolide's"):
            await listing.function(shown)
    if is_new:
        assert await purge_dead_letters.function(shown, group=GROUP) == ["DefaultCluster"]
