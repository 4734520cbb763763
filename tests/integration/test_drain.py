"""A broker of ours is drained: what is open is named, and when it is safe to stop is told."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from bolide import (
    AdminClient,
    Message,
    PopConsumer,
    Producer,
    TransactionProducer,
    TransactionState,
)
from bolide.cli import app
from bolide.client.errors import RouteNotFound
from tests.support.admin_cluster import CLUSTER, NOBODY, Cluster
from tests.support.aio import PATIENCE, on_loop
from tests.support.commands import Running
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

TOPIC = "Orders"
QUICK = ("--yes", "--settle", "0.3", "--interval", "0.1", "--timeout", "20")


class Stage:
    """A broker with a topic, a producer, and the commands that are run there."""

    def __init__(self, servers: OwnCluster, producer: Producer) -> None:
        self.servers, self.producer = servers, producer
        self.admin = AdminClient(servers.address)
        self._commands = Cluster(servers.address, servers.broker.address)

    async def run(self, *words: str, code: int = 0) -> str:
        return await asyncio.to_thread(self._commands.run, *words, code=code)

    async def drain(self, *words: str, code: int = 0) -> str:
        return await self.run("drain", "-b", self.servers.broker.address, *words, code=code)

    async def open(self) -> dict[str, int]:
        """What is open by kind, as --check shows it."""
        words = ["drain", "-b", self.servers.broker.address, "--check", "--json"]
        printed = await asyncio.to_thread(self._invoke, words)
        (found,) = json.loads(printed.splitlines()[0])
        assert found["safe"] == (not found["open"])
        counts: dict[str, int] = {}
        for each in found["open"]:
            counts[each["kind"]] = counts.get(each["kind"], 0) + each["count"]
        return counts

    def _invoke(self, words: list[str]) -> str:
        return CliRunner().invoke(app, ["admin", *words, "-n", self.servers.address]).stdout

    async def perm(self, topic: str = TOPIC) -> int:
        return (await self.admin.topics.route(topic)).queue_datas[0].perm


@asynccontextmanager
async def stage(directory: Path, **settings: Any) -> AsyncIterator[Stage]:
    async with (
        own_cluster(directory, **settings) as servers,
        Producer("shop", name_server=servers.address, route_interval=0.05) as producer,
    ):
        await create_topic(producer, TOPIC, 2)
        found = Stage(servers, producer)
        async with found.admin:
            yield found


@on_loop
async def test_an_idle_broker_is_safe_and_its_producers_come_back(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        address, name = scene.servers.broker.address, scene.servers.broker.config.value.broker_name
        await scene.run("updateTopic", "-b", address, "-t", "ReadOnly", "-p", "4")

        plan = await scene.drain("--dry-run")
        refused = await scene.drain(code=1)
        assert await scene.perm() == 6
        drained = await scene.drain(*QUICK)

        assert plan == refused.partition("Have producers")[0]
        assert f"{name} ({address}): producers leave, consumers go on reading" in plan
        assert re.search(
            rf"no other broker has \d+ of them, so that their producers fail: .*{TOPIC}", plan
        )
        assert "connected producer groups: shop" in plan
        assert f"{name} ({address}) is safe to stop\n" in drained
        assert f"not known of {name}: it has no replica" in drained
        assert await scene.perm() == 4
        undone = await scene.drain("--undo")
        assert f"producers return to {name}\n" in undone
        assert "not to these topics, which it does not take: ReadOnly" in undone
        async with asyncio.timeout(PATIENCE):
            while await scene.perm("ReadOnly") != 4:  # noqa: ASYNC110  the broker registers it soon
                await asyncio.sleep(0.01)
        assert await scene.perm() == 6


@on_loop
async def test_what_is_not_consumed_or_delivered_keeps_a_broker(tmp_path: Path) -> None:
    settings = {"message_delay_level": "1s 2s", "transaction_check_interval": 3600.0}
    async with stage(tmp_path, **settings) as scene:
        address = scene.servers.broker.address
        for number in range(3):
            await scene.producer.send(Message(TOPIC, b"%d" % number))
        await scene.run("updateSubGroup", "-b", address, "-g", "late")
        for queue in "01":
            place = ("-b", address, "-q", queue, "-o", "0", "--yes")
            await scene.run("resetOffsetByTime", "-g", "late", "-t", TOPIC, "-s", "now", *place)
        assert await scene.open() == {"groups": 3}

        await scene.producer.send(Message(TOPIC, b"in an hour", keys="k", delay=3600.0))
        await scene.producer.send(Message(TOPIC, b"soon", delay_level=2))
        buyers = TransactionProducer(
            "buyers", check=lambda _: TransactionState.UNKNOWN, name_server=scene.servers.address
        )
        popper = PopConsumer("popped", name_server=scene.servers.address, consume_from="first")
        async with buyers, popper:
            half = await buyers.begin(Message(TOPIC, b"half"))
            await popper.subscribe(TOPIC)
            got = await popper.receive(wait=5.0, invisible=60.0)
            counts = {"timers": 1, "transactions": 1, "delayed": 1}
            await eventually_open(scene, counts | {"groups": 6})

            printed = await scene.drain(*QUICK[:-1], "0.5", code=1)
            assert re.search(r"group late has to consume topic Orders +3 +nobody of it", printed)
            assert re.search(r"transactions are open +1 +producers end them", printed)
            assert re.search(r"timers of topic Orders are not due yet +1", printed)
            assert "not safe to stop at the timeout; `drain --undo` has them return" in printed
            await half.commit()
            await popper.ack(*got)
            await scene.run("recallMessage", "-b", address, "-t", TOPIC, "-k", "k", "--yes")
            while len(got) < 5:
                more = await popper.receive(wait=5.0)
                await popper.ack(*more)
                got += more
            await eventually_open(scene, {"groups": 5})
        ignored = await scene.drain(*QUICK, "--ignore-group", "late")
        assert "is safe to stop" in ignored


async def eventually_open(scene: Stage, counts: dict[str, int]) -> None:
    async with asyncio.timeout(PATIENCE):
        while await scene.open() != counts:  # noqa: ASYNC110  the broker tells nobody
            await asyncio.sleep(0.1)


@on_loop
async def test_a_broker_that_is_written_is_not_safe(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:

        async def write() -> None:
            """Write by a route of before the drain."""
            async with Producer("stale", name_server=scene.servers.address) as stale:
                while True:
                    await stale.send(Message(TOPIC, b"x"))
                    await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(write())
            await asyncio.sleep(0.1)
            printed = await scene.drain(*QUICK[:-1], "1", code=1)
            assert re.search(rf"topic {TOPIC} is written +\d+", printed)
            draining = asyncio.create_task(scene.drain(*QUICK, "--json"))
            await asyncio.sleep(0.5)
            assert not draining.done()
            writing.cancel()
            (found,) = json.loads((await draining).splitlines()[-1])
        assert (found["safe"], found["open"]) == (True, [])


@on_loop
async def test_a_name_server_that_is_away_sends_producers_on(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        words = ["drain", "-b", scene.servers.broker.address, "-n"]
        both = [*words, f"{NOBODY};{scene.servers.address}"]

        def invoke(*more: str) -> Any:
            return CliRunner().invoke(app, ["admin", *both, *more])

        drained = await asyncio.to_thread(invoke, *QUICK[:-1], "0.5")
        assert drained.exit_code == 1
        assert f"NameServer {NOBODY} still sends producers to the broker" in drained.output
        assert await scene.perm() == 4
        undone = await asyncio.to_thread(invoke, "--undo")
        assert undone.exit_code == 3
        assert f"cannot connect to {NOBODY}" in undone.stderr
        assert await scene.perm() == 6


@on_loop
async def test_messages_in_queues_that_are_only_read_keep_a_broker(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        address = scene.servers.broker.address
        queues = ("updateTopic", "-b", address, "-t", "TRW", "-r", "4", "-w")
        await scene.run(*queues, "4")
        async with asyncio.timeout(PATIENCE):
            sent: set[int] = set()
            while sent != {0, 1, 2, 3}:
                try:
                    sent.add((await scene.producer.send(Message("TRW", b"x"))).queue.queue_id)
                except RouteNotFound:
                    await asyncio.sleep(0.01)
        await scene.run("updateSubGroup", "-b", address, "-g", "late")
        place = ("resetOffsetByTime", "-g", "late", "-t", "TRW", "--yes", "-s")
        await scene.run(*place, "0")
        await scene.run(*place, "now", "-b", address, "-q", "0", "-o", "1")
        before = (await scene.open())["groups"]
        await scene.run(*queues, "1")

        assert before >= 3
        assert await scene.open() == {"groups": before}


@on_loop
async def test_a_broker_that_is_away_is_waited_for_and_undo_is_named(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        address = scene.servers.broker.address

        async def drain() -> Running:
            where = ("drain", "-n", scene.servers.address, "-b", address, "--yes")
            return await asyncio.to_thread(Running, "mqadmin", *where, "--settle", "300")

        draining = await drain()
        try:
            await asyncio.to_thread(draining.wait_for, "more without a write")
            code = await asyncio.to_thread(draining.stop)
        finally:
            draining.process.communicate()
        assert code == 1
        assert "interrupted: producers stay away from the broker; `drain --undo`" in draining.output

        draining = await drain()
        try:
            await asyncio.to_thread(draining.wait_for, "more without a write")
            await scene.servers.stop_broker()
            await asyncio.to_thread(draining.wait_for, "the broker does not answer: .*" + address)
            await scene.servers.start_broker()
            await asyncio.to_thread(draining.wait_for, r"(?s)does not answer.*more without a write")
        finally:
            draining.process.kill()
            draining.process.communicate()
        assert "is safe to stop" in await scene.drain(*QUICK)


def test_what_cannot_be_drained_is_named(cluster: Cluster) -> None:
    for words, reason, code in (
        (("-b", "127.0.0.1:1"), "no broker '127.0.0.1:1'", 1),
        (("-c", "Nowhere"), "no cluster 'Nowhere'", 1),
        ((), "either -b, one broker, or -c, a cluster", 2),
        ((*CLUSTER, "--timeout", "-1"), "-1", 2),
    ):
        assert reason in cluster.run("drain", *words, code=code)
