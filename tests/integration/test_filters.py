"""Filters of consumers, from the subscription to the handler, on a broker of ours."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.admin import AdminClient
from bolide.broker.filters.sql import Compiled, compiler
from bolide.cli import app
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.pull.lite_pull_consumer import LitePullConsumer
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.client.consumer.pull.pull_request import PullStatus
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.consumer.subscription import FilterFunction, Sql
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.query import ConsumeQueueHeader
from bolide.protocol.refusals import (
    InvalidParameter,
    NoPermission,
    QueryNotFound,
    ServerError,
    SubscriptionMalformed,
)
from tests.interop.processes import is_alive
from tests.support.access import EverybodyIsAdmin
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.cluster_process import cluster_process
from tests.support.own_cluster import QUICK_DELAYS, OwnCluster, create_topic, own_cluster

QUEUE = MessageQueue("T", "broker-a", 0)
BIG = """
def accept(message):
    return len(message.body) > 3 and message.properties["kind"] == "order"
"""


class Scene:
    def __init__(self, cluster: OwnCluster, producer: Producer) -> None:
        self.cluster = cluster
        self.producer = producer
        self.got: list[str] = []

    @property
    def broker(self) -> str:
        return self.cluster.broker.address

    async def send(self, body: str, **properties: str) -> None:
        await self.producer.send(Message("T", body.encode(), properties=properties))

    async def take(self, message: StoredMessage) -> None:
        self.got.append(message.body.decode())

    def consumer(self, group: str = "readers", **settings: Any) -> PushConsumer:
        chosen = {"consume_from": "first", "name_server": self.cluster.address}
        return PushConsumer(group, **chosen | settings)

    async def until_got(self, *bodies: str) -> None:
        await until(lambda: len(self.got) >= len(bodies))
        assert sorted(self.got) == sorted(bodies)


@asynccontextmanager
async def scene(directory: Path, **settings: Any) -> AsyncIterator[Scene]:
    async with (
        own_cluster(directory, **settings) as cluster,
        Producer("writers", name_server=cluster.address) as producer,
    ):
        await create_topic(producer, "T", 1)
        yield Scene(cluster, producer)


def admin(a: Scene) -> AdminClient:
    return AdminClient(a.cluster.address)


# ---- SQL92


@on_loop
async def test_messages_are_pushed_that_a_sql_expression_matches(tmp_path: Path) -> None:
    async with scene(tmp_path) as a, a.consumer() as consumer:
        await a.send("low", a="1")
        await consumer.subscribe("T", a.take, sql="a between 0 and 3 and b not contains 'x'")
        for number in range(5):
            await a.send(str(number), a=str(number), b="xy" if number == 2 else "z")
        await a.send("no number", a="abc", b="z")
        await a.send("last", a="3", b="z")
        await a.until_got("0", "1", "3", "last")
        with pytest.raises(SubscriptionMalformed, match=r"at character 5 of 'a = \|\| 5'"):
            await consumer.subscribe("T", a.take, sql="a = || 5")
        with pytest.raises(TypeError, match="only one of these may be given"):
            await consumer.subscribe("T", "tag", a.take, sql="a = 5")
        with pytest.raises(TypeError, match="no handler"):
            await consumer.subscribe("T", sql="a = 5")
        with pytest.raises(TypeError, match="two handlers"):
            await consumer.subscribe("T", a.take, a.take)


@on_loop
async def test_polls_and_pulls_take_sql_too_and_move_past_what_it_does_not_match(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as a:
        for number in range(900):
            await a.producer.send_oneway(Message("T", b"no", properties={"a": str(number)}))
        await a.send("yes", a="5000")
        async with PullConsumer("pullers", name_server=a.cluster.address) as puller:
            first = await puller.pull(QUEUE, Sql("a > 4000"), 0)
            assert (first.status, first.next_offset) == (PullStatus.NO_MATCHED_MSG, 800)
            second = await puller.pull(QUEUE, Sql("a > 4000"), first.next_offset)
            assert [message.body for message in second.messages] == [b"yes"]
            waiting = asyncio.create_task(
                puller.pull_block_if_not_found(QUEUE, Sql("a > 6000"), second.next_offset)
            )
            await until(lambda: len(a.cluster.broker.parts.long_polling) == 1)
            await a.send("still not", a="1")
            await a.send("at last", a="6001")
            assert [message.body for message in (await waiting).messages] == [b"at last"]
        async with LitePullConsumer(
            "pollers", consume_from="first", name_server=a.cluster.address
        ) as poller:
            await poller.subscribe("T", sql="a > 5000")
            assert [message.body for message in await poller.poll(10)] == [b"at last"]


@on_loop
async def test_the_filter_of_a_group_outlives_a_restart_and_is_shown(tmp_path: Path) -> None:
    async with scene(tmp_path) as a:
        async with a.consumer() as consumer:
            await consumer.subscribe("T", a.take, sql="a > 5")
            await a.send("yes", a="6")
            await a.until_got("yes")
            shown = await a.producer._running().call(
                a.broker,
                RequestCode.QUERY_CONSUME_QUEUE,
                ConsumeQueueHeader(
                    topic="T", queue_id=0, index=0, count=1, consumer_group="readers"
                ),
            )
            told = json.loads(json.loads(shown.body)["filterData"])
            assert (told["expression"], told["dead"]) == ("a > 5", False)
        await a.cluster.stop_broker()
        kept = json.loads((tmp_path / "store" / "config" / "consumerFilter.json").read_text())
        found = kept["filterDataByTopic"]["T"]["groupFilterData"]["readers"]
        assert (found["expression"], found["expressionType"]) == ("a > 5", "SQL92")
        assert len(found["bloomFilterData"]["bitPos"]) == 3
        await a.cluster.start_broker()
        again = a.cluster.broker.parts.filters.table.find("T", "readers")
        assert again is not None
        assert again.is_dead()


@on_loop
async def test_expressions_are_compiled_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one takes a tenth of a second, and so may a long one; nobody else waits for it."""
    compiled_by: list[str] = []

    def compile_watched(text: str) -> Compiled | str:
        compiled_by.append(threading.current_thread().name)
        return compile_really(text)

    compile_really = compiler._compile
    monkeypatch.setattr(compiler, "_compile", compile_watched)
    monkeypatch.setattr(compiler, "_cache", compiler._ResultCache())
    async with scene(tmp_path) as a:
        await a.send("yes", a="6")
        async with PullConsumer("pullers", name_server=a.cluster.address) as puller:
            found = await puller.pull(QUEUE, Sql("a > 5"), 0)
            assert [message.body for message in found.messages] == [b"yes"]
            waiting = asyncio.create_task(
                puller.pull_block_if_not_found(QUEUE, Sql("a > 6"), found.next_offset)
            )
            await until(lambda: len(a.cluster.broker.parts.long_polling) == 1)
            await a.send("seven", a="7")
            assert [message.body for message in (await waiting).messages] == [b"seven"]
            with pytest.raises(SubscriptionMalformed, match="ends too early"):
                await puller.pull(QUEUE, Sql("a >"), 0)
        async with a.consumer() as consumer:
            await consumer.subscribe("T", a.take, sql="a > 5 and a < 8")
            await a.until_got("yes", "seven")
    assert len(compiled_by) == 4
    assert threading.main_thread().name not in compiled_by


@on_loop
async def test_without_enable_property_filter_sql_is_refused_in_rocketmqs_words(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, enable_property_filter=False) as a:
        refused = r"does not support consumer to .* by SQL92"
        async with a.consumer() as consumer:
            with pytest.raises(ServerError, match=refused):
                await consumer.subscribe("T", a.take, sql="a > 5")
        async with PullConsumer("pullers", name_server=a.cluster.address) as puller:
            with pytest.raises(ServerError, match=refused):
                await puller.pull(QUEUE, Sql("a > 5"), 0)


@on_loop
@pytest.mark.parametrize("filtered", [False, True])
async def test_retries_are_filtered_if_the_broker_is_told_so(
    tmp_path: Path, filtered: bool
) -> None:
    """By what the group wants by then, which may not be what it wanted when the message failed."""
    settings = {"filter_support_retry": filtered, "message_delay_level": QUICK_DELAYS}
    async with scene(tmp_path, **settings) as a:
        tries: list[str] = []

        async def fail(message: StoredMessage) -> None:
            tries.append(message.body.decode())
            if message.reconsume_times == 0:
                raise Retry

        async with a.consumer() as consumer:
            await consumer.subscribe("T", fail, sql="a > 5")
            await a.send("ten", a="10")
            await until(lambda: tries == ["ten"])
            await consumer.subscribe("T", fail, sql="a > 50")
            await a.send("hundred", a="100")
            expected = 3 if filtered else 4
            await until(lambda: len(tries) >= expected)
            assert tries.count("ten") == (1 if filtered else 2)


# ---- functions


@on_loop
async def test_a_function_of_an_administrator_chooses_messages(tmp_path: Path) -> None:
    async with (
        scene(tmp_path, filter_server_nums=2, access=EverybodyIsAdmin()) as a,
        admin(a) as chief,
    ):
        await chief.filters.update(a.broker, "big-orders", BIG)
        async with a.consumer() as consumer:
            await consumer.subscribe("T", a.take, filter="big-orders")
            await a.send("no property")
            await a.send("few", kind="order")
            await a.send("plenty", kind="order")
            await a.send("x" * 5000, kind="order")  # compressed by the producer
            await a.until_got("plenty", "x" * 5000)
        async with PullConsumer("pullers", name_server=a.cluster.address) as puller:
            found = await puller.pull(QUEUE, FilterFunction("big-orders"), 0)
            assert [message.queue_offset for message in found.messages] == [2, 3]
            end = await puller.pull(QUEUE, FilterFunction("big-orders"), 4)
            assert (end.status, end.next_offset) == (PullStatus.NO_NEW_MSG, 4)
        [state] = (await chief.filters.states([a.broker]))[a.broker]
        assert (state.name, state.failed > 0) == ("big-orders", True)
        assert "KeyError in line 3" in state.error
        await a.cluster.stop_broker()
        await a.cluster.start_broker()
        assert await chief.filters.source(a.broker, "big-orders") == BIG


@on_loop
async def test_what_a_function_does_not_accept_is_passed_over(tmp_path: Path) -> None:
    async with (
        scene(tmp_path, filter_server_nums=1, access=EverybodyIsAdmin()) as a,
        admin(a) as chief,
        PullConsumer("pullers", name_server=a.cluster.address, suspend=0.5) as puller,
    ):
        await chief.filters.update(a.broker, "none", "def accept(message): return False")
        batch = [Message("T", b"no") for _ in range(450)]
        for _ in range(2):
            await a.producer.send(batch)
        first = await puller.pull(QUEUE, FilterFunction("none"), 0)
        assert first.status is PullStatus.NO_MATCHED_MSG
        assert 800 <= first.next_offset < 900
        waiting = asyncio.create_task(
            puller.pull_block_if_not_found(QUEUE, FilterFunction("none"), first.next_offset)
        )
        await until(lambda: len(a.cluster.broker.parts.long_polling) == 1)
        await a.send("neither")
        last = await waiting
        assert (last.status, last.next_offset) == (PullStatus.NO_MATCHED_MSG, 901)
        assert len(a.cluster.broker.parts.long_polling) == 0


@on_loop
async def test_a_pull_gets_nothing_if_permissions_change_while_its_function_runs(
    tmp_path: Path,
) -> None:
    begun, may_end = tmp_path / "begun", tmp_path / "may-end"
    slow = f"""
import os, time
def accept(message):
    open({str(begun)!r}, "w").close()
    while not os.path.exists({str(may_end)!r}):
        time.sleep(0.01)
    return True
"""
    access = EverybodyIsAdmin()
    async with (
        scene(tmp_path, filter_server_nums=1, access=access, filter_function_timeout=10) as a,
        admin(a) as chief,
        PullConsumer("pullers", name_server=a.cluster.address) as puller,
    ):
        await a.send("one")
        await chief.filters.update(a.broker, "slow", slow)
        pull = asyncio.create_task(puller.pull(QUEUE, FilterFunction("slow"), 0))
        await until(begun.exists)
        access.on_changed()
        may_end.touch()
        found = await pull
        assert (list(found.messages), found.next_offset) == ([], 0)
        again = await puller.pull(QUEUE, FilterFunction("slow"), 0)
        assert [message.body for message in again.messages] == [b"one"]


@on_loop
async def test_a_function_that_hangs_or_dies_loses_no_message(tmp_path: Path) -> None:
    hangs = "def accept(message):\n    while True: pass"
    dies = "import os\ndef accept(message):\n    os._exit(3)"
    hungry = "def accept(message):\n    return bytes(1 << 40)"
    settings = {"filter_server_nums": 1, "filter_function_timeout": 0.3}
    access = EverybodyIsAdmin()
    async with (
        scene(tmp_path, access=access, **settings) as a,
        admin(a) as chief,
        PullConsumer("pullers", name_server=a.cluster.address) as puller,
    ):
        await a.send("one")
        for source, reason in ((hangs, "took more than 0.3 s"), (dies, "ended"), (hungry, "ended")):
            await chief.filters.update(a.broker, "f", source)
            with pytest.raises(ServerError, match=reason):
                await puller.pull(QUEUE, FilterFunction("f"), 0)
        await chief.filters.update(a.broker, "f", "def accept(message): return True")
        found = await puller.pull(QUEUE, FilterFunction("f"), 0)
        assert [message.body for message in found.messages] == [b"one"]
        await chief.filters.delete(a.broker, "f")
        with pytest.raises(SubscriptionMalformed, match="there is no filter function 'f'"):
            await puller.pull(QUEUE, FilterFunction("f"), 0)


@on_loop
async def test_a_broker_ends_at_once_though_a_pull_waits_for_a_function(tmp_path: Path) -> None:
    async with (
        scene(tmp_path, filter_server_nums=1, access=EverybodyIsAdmin()) as a,
        admin(a) as chief,
        PullConsumer("pullers", name_server=a.cluster.address, suspend=25) as puller,
    ):
        await a.send("one")
        await chief.filters.update(a.broker, "f", "def accept(message): return True")
        waiting = asyncio.create_task(puller.pull_block_if_not_found(QUEUE, FilterFunction("f"), 1))
        await until(lambda: len(a.cluster.broker.parts.long_polling) == 1)
        begun = time.monotonic()
        await a.cluster.stop_broker()
        assert time.monotonic() - begun < PATIENCE
        assert (await waiting).status is PullStatus.NO_NEW_MSG
        await a.cluster.start_broker()


@on_loop
async def test_a_queue_whose_messages_kill_processes_is_tried_more_and_more_seldom(
    tmp_path: Path,
) -> None:
    dies = "import os\ndef accept(message):\n    return os._exit(3) if message.queue_id else True"
    async with (
        scene(tmp_path, filter_server_nums=1, access=EverybodyIsAdmin()) as a,
        admin(a) as chief,
        PullConsumer("pullers", name_server=a.cluster.address) as puller,
    ):
        await a.producer.create_topic("T", 2)
        other = MessageQueue("T", "broker-a", 1)
        for queue in (QUEUE, other):
            await a.producer.send(Message("T", b"one"), queue=queue)
        await chief.filters.update(a.broker, "f", dies)
        with pytest.raises(ServerError, match="ended its process"):
            await puller.pull(other, FilterFunction("f"), 0)
        with pytest.raises(ServerError, match=r"ended its process.* tried again every 1 s"):
            await puller.pull(other, FilterFunction("f"), 0)
        found = await puller.pull(QUEUE, FilterFunction("f"), 0)  # others are not kept waiting
        assert [message.body for message in found.messages] == [b"one"]
        await chief.filters.update(a.broker, "f", "def accept(message): return True")
        mended = await puller.pull(other, FilterFunction("f"), 0)
        assert [message.body for message in mended.messages] == [b"one"]


@on_loop
async def test_commands_register_and_delete_functions(tmp_path: Path) -> None:
    source = tmp_path / "all.py"
    source.write_text("def accept(message): return True")
    async with scene(tmp_path, filter_server_nums=1, access=EverybodyIsAdmin()) as a:
        place = ("-b", a.broker, "-n", a.cluster.address)

        async def ask(*words: str, code: int = 0) -> str:
            done = await asyncio.to_thread(CliRunner().invoke, app, ["admin", *words, *place])
            assert done.exit_code == code, done.output
            return done.output

        update = ("updateFilter", "-f", "all", "-s", str(source))
        assert "update filter [all] of broker" in await ask(*update)
        assert "all" in await ask("listFilters")
        assert '"name":"all"' in await ask("listFilters", "--json")
        source.write_text("def accept(message) return True")
        assert "is not registered: SyntaxError" in await ask(*update, code=1)
        assert "delete filter [all]" in await ask("deleteFilter", "-f", "all")
        assert "there is no filter function 'all'" in await ask("deleteFilter", "-f", "all", code=1)


@on_loop
async def test_nobody_registers_functions_without_access_control(tmp_path: Path) -> None:
    async with scene(tmp_path, filter_server_nums=1) as a, admin(a) as chief:
        with pytest.raises(NoPermission, match=r"not registered.*need access control"):
            await chief.filters.update(a.broker, "f", BIG)
        with pytest.raises(NoPermission, match=r"not deleted.*need access control"):
            await chief.filters.delete(a.broker, "f")


def test_the_processes_of_functions_end_with_the_broker(tmp_path: Path) -> None:
    table = tmp_path / "cluster" / "broker-a" / "store" / "config" / "filterFunctions.json"
    table.parent.mkdir(parents=True)
    function = {"name": "all", "source": "def accept(message): return True", "version": 1}
    table.write_text(json.dumps({"functions": {"all": function}}))
    with cluster_process(tmp_path / "cluster", filterServerNums=1) as cluster:
        cluster.create_topic("T", 1)
        cluster.send([Message("T", b"one")])
        broker = cluster.brokers["broker-a"]
        assert asyncio.run(_pull_all(cluster.address)) == [b"one"]
        [worker] = _children(broker.process.pid)
        cluster.kill_broker()
        deadline = time.monotonic() + PATIENCE
        while is_alive(worker):
            assert time.monotonic() < deadline, "it goes on without its broker"
            time.sleep(0.02)


async def _pull_all(address: str) -> list[bytes]:
    async with PullConsumer("pullers", name_server=address) as puller:
        found = await puller.pull(QUEUE, FilterFunction("all"), 0)
        return [message.body for message in found.messages]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@on_loop
async def test_bad_functions_are_refused_and_all_of_them_if_they_are_off(tmp_path: Path) -> None:
    async with (
        scene(tmp_path, filter_server_nums=1, access=EverybodyIsAdmin()) as a,
        admin(a) as chief,
    ):
        bad = {
            "def accept(message) return True": "SyntaxError",
            "print('hello')": "defines no function accept",
            "async def accept(message): return True": "defines no function accept",
            "def accept(message): yield True": "defines no function accept",
            "def accept(): return True": "defines no function accept",
            "accept = 5": "defines no function accept",
            "exit()": "ended its process",
            "import nothing_of_that_name": "ModuleNotFoundError",
        }
        for source, reason in bad.items():
            with pytest.raises(InvalidParameter, match=reason):
                await chief.filters.update(a.broker, "f", source)
        with pytest.raises(InvalidParameter, match="a name has"):
            await chief.filters.update(a.broker, "../f", BIG)
        with pytest.raises(QueryNotFound, match="no filter function 'f'"):
            await chief.filters.delete(a.broker, "f")
        async with a.consumer() as consumer:
            with pytest.raises(SubscriptionMalformed, match="no filter function 'f'"):
                await consumer.subscribe("T", a.take, filter="f")
    (tmp_path / "off").mkdir()
    async with scene(tmp_path / "off", access=EverybodyIsAdmin()) as a, admin(a) as chief:
        with pytest.raises(NoPermission, match="filterServerNums"):
            await chief.filters.update(a.broker, "f", BIG)
        async with a.consumer() as consumer:
            with pytest.raises(ServerError, match="filterServerNums"):
                await consumer.subscribe("T", a.take, filter="f")
