"""Dead letters of Apache's brokers are listed and sent again by our mqadmin."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from tests.interop.bench import Bench
from tests.interop.conftest import obtain_or_skip
from tests.support.aio import on_loop, until

GROUP, TOPIC = "despairing", "Orders"
OLD = pytest.param("4.9", marks=pytest.mark.long)


@pytest.mark.parametrize("version", ["5.x", OLD])
@on_loop
async def test_dead_letters_are_sent_again_once(version: str, java_module_bench: Bench) -> None:
    obtain_or_skip(version)
    servers = java_module_bench.namesrv(version)
    broker = java_module_bench.broker(version, servers.address)
    got: list[StoredMessage] = []
    fails = True

    async def take(message: StoredMessage) -> None:
        if fails:
            raise ValueError("bad")
        got.append(message)

    async def mqadmin(*words: str, code: int = 0) -> str:
        args = ["admin", *words, "-n", servers.address]
        done = await asyncio.to_thread(CliRunner().invoke, app, args)
        assert done.exit_code == code, (words, done.output)
        return done.output

    await mqadmin("updateTopic", "-b", broker.address, "-t", TOPIC, "-r", "1", "-w", "1")
    await mqadmin("updateSubGroup", "-b", broker.address, "-g", GROUP)
    async with (
        Producer("shop", name_server=servers.address) as producer,
        PushConsumer(
            GROUP, name_server=servers.address, consume_from="first", max_reconsume_times=0
        ) as consumer,
    ):
        await consumer.subscribe(TOPIC, take)
        for number in range(3):
            await producer.send(Message(TOPIC, b"%d" % number, keys=f"k{number}", tags="t"))
        async with asyncio.timeout(40):  # until the NameServer has heard of the topic
            while (await dead(mqadmin)) < 3:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.2)
        fails = False
        redrive = ("redriveDeadLetters", "-g", GROUP, "--yes")
        one = await mqadmin(*redrive, "-k", "k1")
        await until(lambda: len(got) == 1)
        async with asyncio.timeout(20):  # until the copy is in the index
            plan = ("redriveDeadLetters", "-g", GROUP, "-k", "k1", "--dry-run")
            while "SENT_BEFORE" not in await mqadmin(*plan):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.1)
        rest = await mqadmin(*redrive)
        await until(lambda: len(got) == 3)
        only = await mqadmin(*redrive, "--to-group", "-k", "k0")
        await until(lambda: len(got) == 4)

    assert one.splitlines()[-1] == "1 dead letters: 1 sent"
    assert rest.splitlines()[-1] == "3 dead letters: 2 sent, 1 sent before"
    assert "%RETRY%despairing" in only
    assert [each.body for each in got] in ([b"1", b"0", b"2", b"0"], [b"1", b"2", b"0", b"0"])
    assert {(each.topic, each.reconsume_times, each.tags) for each in got} == {(TOPIC, 0, "t")}


async def dead(mqadmin: Callable[..., Awaitable[str]]) -> int:
    listed = json.loads(await mqadmin("listDeadLetters", "--json"))
    return sum(each["messages"] for each in listed)
