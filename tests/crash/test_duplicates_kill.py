"""Senders that repeat what they are not sure of, and a broker that is killed."""

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from bolide import AdminClient, Message, Producer, PullConsumer
from bolide.errors import BolideError
from bolide.protocol.bodies.topics import TopicConfig
from bolide.store.config import FlushMode
from tests.interop.ours import bolide_namesrv
from tests.support.aio import on_loop, until
from tests.support.restarting import RestartingBroker

TOPIC = "Once"
SENDERS = 4


class Load:
    """Senders that go on to the next message only when the last one is acknowledged."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self.done: list[str] = []
        self.ending = False

    async def send(self, sender: int) -> None:
        group = f"sender-{sender}"
        async with Producer(group, name_server=self._name_server, send_timeout=0.5) as producer:
            for number in count():
                if self.ending:
                    return
                keys = [f"{sender}/{number}/{part}" for part in range(1 + sender % 2 * 4)]
                messages = [Message(TOPIC, key.encode(), dedup_key=key) for key in keys]
                await self._insist(producer, messages)
                self.done += keys

    async def repeat(self) -> None:
        """Send some again that were acknowledged long ago, as one does who has lost his notes."""
        async with Producer("forgetful", name_server=self._name_server) as producer:
            for key in self.done[-100:]:
                await self._insist(producer, [Message(TOPIC, key.encode(), dedup_key=key)])

    @staticmethod
    async def _insist(producer: Producer, messages: list[Message]) -> None:
        while True:
            try:
                await (producer.send(messages) if len(messages) > 1 else producer.send(messages[0]))
            except BolideError:
                await asyncio.sleep(0.02)
            else:
                return


async def found(name_server: str) -> list[str]:
    async with PullConsumer("readers", name_server=name_server) as consumer:
        bodies: list[str] = []
        for queue in await consumer.fetch_subscribe_queues(TOPIC):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, "*", offset, 1000)
                bodies += [message.body.decode() for message in result.messages]
                offset = result.next_offset
    return bodies


async def play(directory: Path, mode: FlushMode, kills: int) -> None:
    with bolide_namesrv(directory / "namesrv") as namesrv:
        made = RestartingBroker("broker-a", directory, namesrv.address, flushDiskType=mode)
        async with made as broker, AdminClient(namesrv.address) as admin:
            assert broker.server is not None
            wanted = TopicConfig(topic_name=TOPIC, attributes={"+dedup.window": "1h"})
            await admin.topics.update(broker.server.address, wanted)
            load = Load(namesrv.address)
            async with asyncio.TaskGroup() as senders:
                for sender in range(SENDERS):
                    senders.create_task(load.send(sender))
                for _ in range(kills):
                    goal = len(load.done) + 200
                    await until(lambda goal=goal: len(load.done) >= goal, within=60)  # type: ignore[misc]
                    await broker.kill()
                    await broker.start()
                    await load.repeat()
                goal = len(load.done) + 50
                await until(lambda: len(load.done) >= goal, within=60)
                load.ending = True
            bodies = await found(namesrv.address)
    twice = [body for body, times in Counter(bodies).items() if times > 1]
    assert not twice, "stored twice"
    assert sorted(bodies) == sorted(load.done)


@pytest.mark.parametrize("mode", FlushMode)
@on_loop
async def test_what_is_repeated_over_a_kill_is_stored_once(tmp_path: Path, mode: FlushMode) -> None:
    await play(tmp_path, mode, kills=1)


@on_loop
async def test_a_delayed_message_that_a_killed_broker_had_delivered_comes_no_second_time(
    tmp_path: Path,
) -> None:
    with bolide_namesrv(tmp_path / "namesrv") as namesrv:
        delays = {"messageDelayLevel": "1s", "flushDelayOffsetInterval": 600_000}
        made = RestartingBroker("broker-a", tmp_path, namesrv.address, **delays)
        async with made as broker, AdminClient(namesrv.address) as admin:
            assert broker.server is not None
            wanted = TopicConfig(topic_name=TOPIC, attributes={"+dedup.window": "1h"})
            await admin.topics.update(broker.server.address, wanted)
            keys = [f"{number}" for number in range(20)]
            async with Producer("senders", name_server=namesrv.address) as producer:
                for key in keys:
                    await producer.send(Message(TOPIC, key.encode(), dedup_key=key, delay_level=1))
                await delivered(namesrv.address, 20)
                await broker.kill()
                await broker.start()
                # One more comes out behind all that would come again.
                await producer.send(
                    Message(TOPIC, b"last", dedup_key="last", delay_level=1), timeout=10
                )
                bodies = await delivered(namesrv.address, 21)
    assert sorted(bodies) == sorted([*keys, "last"])


async def delivered(name_server: str, count: int) -> list[str]:
    async with asyncio.timeout(20):
        while True:
            bodies = await found(name_server)
            if len(bodies) >= count:
                return bodies
            await asyncio.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", FlushMode)
@on_loop
async def test_what_is_repeated_over_many_kills_is_stored_once(
    tmp_path: Path, mode: FlushMode
) -> None:
    await play(tmp_path, mode, kills=15)
