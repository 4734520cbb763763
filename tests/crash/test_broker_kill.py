"""A broker that is killed under load loses nothing that it acknowledged."""

import asyncio
import itertools
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bolide.model.message import Message
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.send import SendReply
from bolide.remoting.errors import RemotingError
from bolide.store.config import FlushMode
from tests.support.aio import until
from tests.support.broker import BrokerClient, broker_in, send_header
from tests.support.commands import Running, home, started

__all__ = ["home", "started"]

SENDERS = 8
UNIQUE = {"UNIQ_KEY": "7F00000112345678ABCDEF0000010000"}
DELAYED = "Delayed"
SIZES = {
    "commit_log_file_size": 65_536,
    "consume_queue_file_size": 2_000,
    "max_hash_slots": 100,
    "max_index_entries": 400,
}
"""Files so small that the load fills many."""


class Acknowledged(NamedTuple):
    """Where the broker said that a message is."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes


@dataclass
class Victim:
    """One directory, and the lives that brokers lead in it."""

    root: Path
    mode: FlushMode
    started: list[Running]
    chance: random.Random
    acknowledged: list[Acknowledged] = field(default_factory=list)
    delayed: list[bytes] = field(default_factory=list)
    """Bodies of messages that come out of their delay in time."""
    attempted: set[bytes] = field(default_factory=set)
    lives: int = 0

    def live(self, acks: int) -> None:
        """Start a broker, look for all that others before it acknowledged, and kill it."""
        self.lives += 1
        broker = Running(
            "bolide", "broker", f"storePathRootDir={self.root}", "listenPort=0",
            "bindAddress=127.0.0.1", f"flushDiskType={self.mode}", "messageDelayLevel=0s 1s",
            f"mappedFileSizeCommitLog={SIZES['commit_log_file_size']}",
            f"mappedFileSizeConsumeQueue={SIZES['consume_queue_file_size']}",
            f"maxHashSlotNum={SIZES['max_hash_slots']}",
            f"maxIndexNum={SIZES['max_index_entries']}", "diskMaxUsedSpaceRatio=95",
        )  # fmt: skip
        self.started.append(broker)
        address = broker.wait_for(r"The broker\[\S+, (\S+)\] boot success").group(1)
        asyncio.run(self._check(address))
        asyncio.run(self._load(broker, address, acks))
        broker.process.wait(20)
        assert broker.process.returncode == -signal.SIGKILL

    def end(self) -> None:
        """Look a last time."""

        async def look() -> None:
            given: dict[str, Any] = {"root": self.root, "flush_mode": self.mode, **SIZES}
            async with broker_in(self.root, message_delay_level="0s 1s", **given) as broker:
                assert not broker.store.recovery.clean
                await self._check(broker.address)

        asyncio.run(look())

    # ---- load

    async def _load(self, broker: Running, address: str, acks: int) -> None:
        goal = len(self.acknowledged) + len(self.delayed) + acks
        async with BrokerClient(address) as client:
            senders = [asyncio.create_task(self._send(client, n)) for n in range(SENDERS)]
            await until(
                lambda: (
                    len(self.acknowledged) + len(self.delayed) >= goal
                    or any(sender.done() for sender in senders)
                )
            )
            broker.process.kill()
            await asyncio.gather(*senders)

    async def _send(self, client: BrokerClient, sender: int) -> None:
        """Send until the broker is gone; each sender in its own way."""
        way = (self._plain, self._ordinary, self._batch, self._delay)[sender % 4]
        try:
            for number in itertools.count():
                name = f"{self.lives}/{sender}/{number}/".encode()
                await way(client, name + bytes(self.chance.randrange(1500)))
        except RemotingError:
            pass

    async def _plain(self, client: BrokerClient, body: bytes) -> None:
        self.attempted.add(body)
        self._note("T", body, await client.send("T", body, properties=UNIQUE, queue_id=0))

    async def _ordinary(self, client: BrokerClient, body: bytes) -> None:
        """Every now and then to a topic that is made for it."""
        self.attempted.add(body)
        topic = f"New-{self.chance.randrange(100)}" if self.chance.random() < 0.1 else "T"
        reply = await client.send(topic, body, queue_id=self.chance.randrange(4))
        self._note(topic, body, reply)

    async def _batch(self, client: BrokerClient, body: bytes) -> None:
        bodies = [b"%d/%s" % (number, body) for number in range(3)]
        self.attempted.update(bodies)
        header = send_header("T", batch=True, queue_id=1).to_short()
        data = encode_batch([Message("T", each) for each in bodies])
        answer = await client.call(RequestCode.SEND_BATCH_MESSAGE, header, data)
        reply = SendReply.from_fields(answer.fields)
        for number, each in enumerate(bodies):
            self.acknowledged.append(Acknowledged("T", 1, reply.queue_offset + number, each))

    async def _delay(self, client: BrokerClient, body: bytes) -> None:
        self.attempted.add(body)
        await client.send(DELAYED, body, properties={"DELAY": "1"})
        self.delayed.append(body)

    def _note(self, topic: str, body: bytes, reply: SendReply) -> None:
        self.acknowledged.append(Acknowledged(topic, reply.queue_id, reply.queue_offset, body))

    # ---- what is left

    async def _check(self, address: str) -> None:
        async with BrokerClient(address) as client:
            queues = {(each.topic, each.queue_id) for each in self.acknowledged}
            found = {queue: await self._read(client, *queue) for queue in queues}
            for each in self.acknowledged:
                bodies = found[each.topic, each.queue_id]
                assert bodies[each.queue_offset] == each.body, f"{each} is lost"
            for bodies in found.values():
                assert set(bodies) <= self.attempted
                assert max(Counter(bodies).values()) == 1, "one is there twice"
            if self.delayed:
                await self._check_delayed(client)

    async def _check_delayed(self, client: BrokerClient) -> None:
        async with asyncio.timeout(10):
            found: list[bytes] = []
            while not set(self.delayed) <= set(found):
                pulled = await client.wait_for(DELAYED, len(found))
                found += pulled.bodies
        assert set(found) <= self.attempted

    @staticmethod
    async def _read(client: BrokerClient, topic: str, queue_id: int) -> list[bytes]:
        found: list[bytes] = []
        while True:
            pulled = await client.pull(topic, len(found), queue_id=queue_id, max_msg_nums=1024)
            if not pulled.records:
                assert pulled.header.max_offset == len(found)
                return found
            found += pulled.bodies


@pytest.mark.parametrize("mode", FlushMode)
def test_a_broker_killed_under_load_loses_nothing(
    home: Path, started: list[Running], mode: FlushMode
) -> None:
    victim = Victim(home / "store", mode, started, random.Random(1))
    for acks in (150, 60):
        victim.live(acks)
    victim.end()
    assert len(victim.acknowledged) + len(victim.delayed) >= 210


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(2, 4))
def test_a_broker_killed_again_and_again_loses_nothing(
    home: Path, started: list[Running], mode: FlushMode, seed: int
) -> None:
    victim = Victim(home / "store", mode, started, random.Random(seed))
    for _ in range(20):
        victim.live(victim.chance.choice((1, 20, victim.chance.randrange(2000))))
    victim.end()
