"""Producers and a broker are killed amid transactions: what was decided is what is delivered."""

import asyncio
import logging
import os
import random
import sys
from collections import Counter
from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec
import pytest

from bolide import AdminClient
from bolide.protocol.bodies.topics import TopicConfig
from bolide.store.config import FlushMode
from tests.crash.transactor import TOPIC, Database, Orders
from tests.interop.ours import bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.support.aio import on_loop, until
from tests.support.restarting import RestartingBroker
from tests.support.transactions import delivered

log = logging.getLogger(__name__)

PRODUCERS = 2
ASKED_OFTEN = {
    "transactionTimeOut": 1000, "transactionCheckInterval": 300, "transactionCheckMax": 100_000,
}  # fmt: skip
REPOSITORY = Path(__file__).resolve().parents[2]


class Play:
    """A broker and its producers; one of them is killed at a time."""

    def __init__(self, name_server: str, path: Path, broker: RestartingBroker, seed: int) -> None:
        self._name_server = name_server
        self._path = path
        self._broker = broker
        self._chance = random.Random(seed)
        self._lives = count()
        self.database = Database(path)
        self.producers: list[ChildProcess] = []

    def start_producer(self, *, most: int = 10**9) -> None:
        orders = Orders(
            name_server=self._name_server,
            database=str(self._path),
            name=f"life-{next(self._lives)}",
            most=most,
        )
        command = [sys.executable, "-m", "tests.crash.transactor"]
        given = msgspec.json.encode(orders).decode()
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        self.producers.append(ChildProcess(orders.name, [*command, given], environment))

    async def kill_somebody(self) -> None:
        victim = self._chance.randrange(PRODUCERS + 1)
        if victim < PRODUCERS:
            self.producers.pop(victim).kill()
            self.start_producer()
        else:
            await self._broker.kill()
            await self._broker.start()

    async def grow(self, rows: int) -> None:
        """Wait until so many more transactions are decided."""
        goal = self.database.count() + rows
        await until(lambda: self.database.count() >= goal, within=120)

    async def finish(self, admin: AdminClient, broker: str) -> int:
        """Kill all who send, and have somebody answer for what they left; how many that was."""
        for producer in self.producers:
            producer.kill()
        left = (await admin.transactions.page(broker)).total
        self.start_producer(most=0)
        async with asyncio.timeout(120):
            while (await admin.transactions.page(broker)).total:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.1)
        self.producers[-1].kill()
        return left


async def play(directory: Path, *, mode: FlushMode, rows: int, kills: int, seed: int) -> None:
    with bolide_namesrv(directory / "namesrv") as namesrv:
        settings = {**ASKED_OFTEN, "flushDiskType": mode}
        made = RestartingBroker("broker-a", directory, namesrv.address, **settings)
        async with made as broker, AdminClient(namesrv.address) as admin:
            assert broker.server is not None
            address = broker.server.address
            await admin.topics.update(address, TopicConfig(topic_name=TOPIC))
            it = Play(namesrv.address, directory / "decided.db", broker, seed)
            with closing(it.database):
                for _ in range(PRODUCERS):
                    it.start_producer()
                for _ in range(kills):
                    await it.grow(rows // (kills + 1))
                    await it.kill_somebody()
                await it.grow(rows // (kills + 1))
                left = await it.finish(admin, address)
                wanted, decided = it.database.committed(), it.database.count()
            found = Counter(await delivered(namesrv.address, TOPIC))
    log.info(
        "%s transactions, %s committed, %s were left open at the end; %s repeats",
        decided, len(wanted), left, sum(found.values()) - len(found),
    )  # fmt: skip
    assert decided >= rows // (kills + 1) * (kills + 1)
    assert set(found) == wanted


@on_loop
async def test_what_was_decided_is_delivered_though_producers_and_broker_are_killed(
    tmp_path: Path,
) -> None:
    await play(tmp_path, mode=FlushMode.ASYNC, rows=300, kills=2, seed=3)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", FlushMode)
@on_loop
async def test_ten_thousand_transactions_over_many_kills(tmp_path: Path, mode: FlushMode) -> None:
    await play(tmp_path, mode=mode, rows=10_000, kills=24, seed=7)
