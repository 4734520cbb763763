"""Brokers and consumers that pop are killed: every message is acknowledged in the end, and what a
broker said is acknowledged is not delivered again."""

import asyncio
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bolide.remoting.errors import RemotingError
from tests.support.commands import Running, home, started
from tests.support.popping import PopClient

__all__ = ["home", "started"]

TOPIC = "T"
INVISIBLE = 1500
POPPERS = 4


@dataclass
class Play:
    """One directory with the brokers that live in it, and consumers that come and go."""

    root: Path
    started: list[Running]
    chance: random.Random
    sent: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)
    said: set[bytes] = field(default_factory=set)
    """Acknowledged, whether the broker lived to answer or not."""
    in_time: set[bytes] = field(default_factory=set)
    """Acknowledged long before anybody else might get it."""
    again: list[bytes] = field(default_factory=list)
    """What was delivered after it was acknowledged."""
    deliveries: int = 0

    def live(self, messages: int, deliveries: int) -> None:
        """A broker gets more messages, gives some away, and is killed."""
        broker = self._start()
        address = broker.wait_for(r"The broker\[\S+, (\S+)\] boot success").group(1)
        asyncio.run(self._load(broker, address, messages, deliveries))
        broker.process.wait(20)
        assert broker.process.returncode == -signal.SIGKILL

    def end(self) -> None:
        """The last broker is not killed, nor are its consumers: all that is left is consumed."""
        broker = self._start()
        address = broker.wait_for(r"The broker\[\S+, (\S+)\] boot success").group(1)
        asyncio.run(self._finish(address))
        broker.process.kill()

    def _start(self) -> Running:
        broker = Running(
            "bolide", "broker", f"storePathRootDir={self.root}", "listenPort=0",
            "bindAddress=127.0.0.1", "mappedFileSizeCommitLog=1048576", "brokerName=broker-a",
            "diskMaxUsedSpaceRatio=95",
        )  # fmt: skip
        self.started.append(broker)
        return broker

    async def _load(self, broker: Running, address: str, messages: int, deliveries: int) -> None:
        async with PopClient(address) as client:
            for _ in range(messages):
                body = b"%d" % len(self.sent)
                self.sent.add(body)
                await client.send(TOPIC, body, queue_id=self.chance.randrange(4))
        goal = self.deliveries + deliveries
        poppers = [asyncio.create_task(self._pop(address)) for _ in range(POPPERS)]
        async with asyncio.timeout(30):
            while self.deliveries < goal:  # noqa: ASYNC110  they count, nobody tells
                await asyncio.sleep(0.01)
        broker.process.kill()
        await asyncio.gather(*poppers)

    async def _pop(self, address: str) -> None:
        """Consumers, one after the other, that forget a third of what they get."""
        with suppress(RemotingError):
            while True:
                async with PopClient(address) as client:
                    for _ in range(self.chance.randrange(1, 5)):
                        await self._take(client, 0.6)

    async def _take(self, client: PopClient, diligence: float) -> int:
        soon = time.monotonic() + INVISIBLE / 2000
        popped = await client.pop(TOPIC, max_msg_nums=8, invisible_time=INVISIBLE, poll_time=300)
        for message in popped.messages:
            self.deliveries += 1
            if message.body in self.in_time:
                self.again.append(message.body)
            if self.chance.random() < diligence:
                self.said.add(message.body)
                await client.ack(TOPIC, message)
                self.acknowledged.add(message.body)
                if time.monotonic() < soon:
                    self.in_time.add(message.body)
        return len(popped.messages)

    async def _finish(self, address: str) -> None:
        async with PopClient(address) as client, asyncio.timeout(60):
            while self.sent - self.said:
                await self._take(client, 1.0)


def play(tmp_path: Path, started: list[Running], lives: int, messages: int, seed: int) -> None:
    scene = Play(tmp_path / "store", started, random.Random(seed))
    for _ in range(lives):
        scene.live(messages, messages)
    scene.end()
    assert scene.said == scene.sent
    assert len(scene.said - scene.acknowledged) <= lives * POPPERS
    assert not scene.again
    assert scene.deliveries > len(scene.sent)
    assert scene.in_time


def test_kills_lose_no_popped_message_and_undo_no_acknowledgement(
    tmp_path: Path, started: list[Running], home: Path
) -> None:
    play(tmp_path, started, lives=2, messages=150, seed=1)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_lose_no_popped_message(
    tmp_path: Path, started: list[Running], home: Path, seed: int
) -> None:
    play(tmp_path, started, lives=12, messages=800, seed=seed)
