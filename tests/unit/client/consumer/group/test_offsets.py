"""Offsets in a file, as Java's broadcasting clients keep them, and at brokers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.client.consumer.group.offsets import LocalOffsets
from bolide.client.consumer.pull.lite_pull_consumer import LitePullConsumer
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import Heartbeat
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.offsets import CommitOffsetHeader
from bolide.protocol.refusals import ServerError
from bolide.remoting.dispatch import Reply, Request, handles
from tests.support.aio import on_loop
from tests.support.cluster import FakeBroker, FakeNameServer, route_of, serving

FIRST, SECOND = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)

# As LocalFileOffsetStore of RocketMQ 5.3 writes it.
JAVA_FILE = """{
\t"offsetTable":{{
\t\t"brokerName":"broker-a",
\t\t"queueId":1,
\t\t"topic":"T"
\t}:42,{
\t\t"brokerName":"broker-a",
\t\t"queueId":0,
\t\t"topic":"T"
\t}:7
\t}
}"""


def store_in(directory: Path) -> LocalOffsets:
    return LocalOffsets(directory, "10.0.0.1@DEFAULT", "G")


@on_loop
async def test_offsets_are_there_again_after_a_restart(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert await store.read(FIRST) is None
    await store.write({FIRST: 5}, wait=False)
    await store.write({SECOND: 6}, wait=True)
    again = store_in(tmp_path)
    assert (await again.read(FIRST), await again.read(SECOND)) == (5, 6)


@on_loop
async def test_the_file_lies_where_java_has_it_and_java_can_read_it(tmp_path: Path) -> None:
    await store_in(tmp_path).write({FIRST: 5}, wait=True)
    file = tmp_path / "10.0.0.1@DEFAULT" / "G" / "offsets.json"
    assert (
        file.read_text() == '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}'
    )


@on_loop
async def test_a_file_of_java_is_read(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.path.parent.mkdir(parents=True)
    store.path.write_text(JAVA_FILE)
    assert (await store.read(FIRST), await store.read(SECOND)) == (7, 42)


@on_loop
async def test_a_broken_file_falls_back_to_its_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await store_in(tmp_path).write({FIRST: 5}, wait=True)
    store = store_in(tmp_path)
    await store.write({FIRST: 6}, wait=True)
    store.path.write_text("{")
    assert await store_in(tmp_path).read(FIRST) == 5
    assert "cannot be read" in caplog.text


@on_loop
async def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.write({FIRST: 5}, wait=True)
    store.path.unlink()
    await store.write({FIRST: 5}, wait=True)
    assert not store.path.exists()


@on_loop
async def test_a_write_that_is_overtaken_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    overtaken = asyncio.Event()

    async def first_comes_last(work: Callable[..., None], *args: object) -> None:
        begun.append(work)
        if len(begun) == 1:
            await overtaken.wait()
        work(*args)
        overtaken.set()

    store = store_in(tmp_path)
    await store.read(FIRST)
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "to_thread", first_comes_last)
        await asyncio.gather(*(store.write({queue: 9}, wait=True) for queue in (FIRST, SECOND)))
    again = store_in(tmp_path)
    assert (await again.read(FIRST), await again.read(SECOND)) == (9, 9)


@on_loop
async def test_what_could_not_be_written_is_written_next_time(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.read(FIRST)
    in_the_way = store.path.parent.parent
    in_the_way.write_text("no directory")
    with pytest.raises(OSError, match="irectory"):
        await store.write({FIRST: 5}, wait=True)
    in_the_way.unlink()
    await store.write({FIRST: 5}, wait=True)
    assert await store_in(tmp_path).read(FIRST) == 5


# At brokers


class Broker(FakeBroker):
    """Takes offsets only of groups that a heartbeat made known."""

    def __init__(self) -> None:
        super().__init__("broker-a")
        self.groups: set[str] = set()
        self.committed: list[int] = []
        self.table: dict[int, int] | None = None

    @handles(NoHeader, RequestCode.HEART_BEAT)
    async def heartbeat(self, request: Request[NoHeader]) -> Reply:
        await asyncio.sleep(0.02)  # a commit that does not wait for this is first
        told = fastjson.decode(request.body, Heartbeat)
        self.groups.update(group.group_name for group in told.consumer_data_set)
        return Reply()

    @handles(CommitOffsetHeader, RequestCode.UPDATE_CONSUMER_OFFSET)
    async def commit(self, request: Request[CommitOffsetHeader]) -> Reply:
        if request.header.consumer_group not in self.groups:
            raise ServerError("not a group that is known")
        if request.header.commit_offset > 100:
            raise ServerError("beyond the end")
        self.committed.append(request.header.commit_offset)
        await self._note(request.header)
        return Reply()

    async def _note(self, header: CommitOffsetHeader) -> None:
        """As RocketMQ does it: between the look and the making of a table others come in."""
        table = self.table
        if table is None:
            await asyncio.sleep(0.02)
            self.table = table = {}
        table[header.queue_id] = header.commit_offset


@asynccontextmanager
async def consuming() -> AsyncIterator[tuple[Broker, LitePullConsumer]]:
    servers, broker = FakeNameServer(), Broker()
    async with serving(servers), serving(broker):
        servers.routes["T"] = route_of(broker, queues=2)
        async with LitePullConsumer("G", name_server=servers.address) as consumer:
            yield broker, consumer


@on_loop
async def test_the_first_commit_of_a_group_does_not_overtake_its_heartbeat() -> None:
    async with consuming() as (broker, consumer):
        await consumer.commit({FIRST: 5})
        assert broker.committed == [5]


@on_loop
async def test_a_commit_that_is_refused_says_so_and_the_others_are_kept() -> None:
    async with consuming() as (broker, consumer):
        with pytest.raises(ServerError, match="beyond the end"):
            await consumer.commit({FIRST: 500, SECOND: 5})
        assert broker.committed == [5]


@on_loop
async def test_the_first_commits_of_a_topic_come_one_after_the_other() -> None:
    async with consuming() as (broker, consumer):
        await consumer.commit({FIRST: 5, SECOND: 6})
        assert broker.table == {FIRST.queue_id: 5, SECOND.queue_id: 6}
