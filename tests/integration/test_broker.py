"""A whole broker over real sockets and files: what producers and consumers meet."""

import asyncio
import errno
import statistics
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.gate import Hooks
from bolide.broker.server import Broker
from bolide.errors import ConfigError
from bolide.model.message import Message
from bolide.protocol import fastjson
from bolide.protocol.batch import encode_batch
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, Subscription
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import HeaderEncoding
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.record import Record
from bolide.protocol.refusals import (
    InvalidParameter,
    NoPermission,
    ServerError,
    ServiceNotAvailable,
    SubscriptionNotFound,
    TopicNotFound,
)
from bolide.remoting.client import RemotingClient
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Reply
from bolide.remoting.errors import RemotingError
from bolide.store.config import FlushMode
from tests.support.aio import on_loop, until
from tests.support.broker import (
    COMMIT,
    SUBSCRIBED,
    SUSPEND,
    BrokerClient,
    broker_in,
    pull_header,
    send_header,
)
from tests.support.faults import FaultyDisk
from tests.support.name_servers import name_server
from tests.support.store import draft
from tests.support.wire import RawPeer, request_bytes

NOTHING, AGAIN, MOVED = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
NAMED = {"UNIQ_KEY": "7F00000112345678ABCDEF0000010000"}
AT_ONCE = "0s 0s 0s 0s 0s 0s"
SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
RETRY, DEAD = "%RETRY%readers", "%DLQ%readers"


@asynccontextmanager
async def serving(directory: Path, **given: Any) -> AsyncIterator[tuple[Broker, BrokerClient]]:
    async with broker_in(directory, **given) as broker, BrokerClient(broker.address) as client:
        yield broker, client


async def all_of(client: BrokerClient, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """The bodies of a whole queue."""
    found: list[bytes] = []
    while True:
        pulled = await client.pull(topic, len(found), queue_id=queue_id)
        if not pulled.records:
            return found
        found += pulled.bodies


# ---- sending


@on_loop
async def test_messages_sent_in_every_way_are_there_in_their_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.send("T", b"V2, plain", properties=NAMED)
        await client.send("T", b"V2")
        await client.call(RequestCode.SEND_MESSAGE, send_header("T"), b"V1")
        header = send_header("T", batch=True)
        batch = encode_batch([Message("T", b"batch 1"), Message("T", b"batch 2")])
        await client.call(RequestCode.SEND_BATCH_MESSAGE, header.to_short(), batch)
        for given in ({}, {"properties": NAMED}):
            code, short = RequestCode.SEND_MESSAGE_V2, send_header("T", **given).to_short()
            await client.remoting.notify(client.address, code, short, body=b"one way")
        reply = await client.send("T", b"last")
        assert reply.queue_offset == 7
        assert await all_of(client) == [
            b"V2, plain", b"V2", b"V1", b"batch 1", b"batch 2", b"one way", b"one way", b"last",
        ]  # fmt: skip


@on_loop
async def test_a_client_of_binary_headers_is_served_too(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as (broker, client),
        await RawPeer.connect(broker.address) as peer,
    ):
        short = send_header("T", properties=NAMED).to_short()
        await peer.send(
            request_bytes(310, short, body=b"binary", opaque=9, encoding=HeaderEncoding.ROCKETMQ)
        )
        answer = await peer.frame()
        assert (answer.opaque, answer.code, answer.encoding) == (9, 0, HeaderEncoding.ROCKETMQ)
        assert await all_of(client) == [b"binary"]


@on_loop
async def test_many_sends_at_once_on_many_connections_get_an_offset_each(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, client), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(BrokerClient(broker.address)) for _ in range(8)]
        given: list[dict[str, Any]] = [{"properties": NAMED}, {}]
        await client.send()
        replies = await asyncio.gather(
            *(each.send("T", bytes([n]), **given[n % 2]) for each in clients for n in range(100))
        )
        offsets = sorted(reply.queue_offset for reply in replies)
        assert offsets == list(range(1, 801))
        assert len({reply.msg_id for reply in replies}) == 800


@on_loop
async def test_a_new_topic_is_there_for_the_next_who_asks(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, client):
        await asyncio.gather(*(client.send("New", b"x", queue_id=-1) for _ in range(20)))
        topic = broker.parts.topics.require("New")
        assert (topic.write_queue_nums, topic.read_queue_nums, topic.perm) == (4, 4, 6)
        bodies = [await all_of(client, "New", queue_id) for queue_id in range(4)]
        assert sum(map(len, bodies)) == 20
        with pytest.raises(InvalidParameter, match="has 4 queues"):
            await client.send("New", queue_id=4)


@on_loop
async def test_without_auto_creation_only_known_topics_are_served(tmp_path: Path) -> None:
    async with serving(tmp_path, auto_create_topic_enable=False) as (broker, client):
        with pytest.raises(TopicNotFound, match="autoCreateTopicEnable"):
            await client.send("New")
        await broker.parts.topics.update(TopicConfig(topic_name="New", perm=2))
        await client.send("New", properties=NAMED)
        with pytest.raises(NoPermission):
            await client.pull("New")
        await broker.parts.topics.update(TopicConfig(topic_name="New", perm=4))
        for properties in (NAMED, {}):
            with pytest.raises(NoPermission):
                await client.send("New", properties=properties)
        assert await all_of(client, "New") == [b"hello"]


class Watcher:
    """A hook of both kinds."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_send(self, peer: str, header: SendHeader, body: bytes) -> None:
        if body == b"bad":
            raise NoPermission("the hook says no")

    def after_send(self, peer: str, header: SendHeader, reply: Reply) -> None:
        self.seen.append(f"sent {header.topic}: {reply.code}")

    def after_pull(self, peer: str, header: PullHeader, count: int, size: int) -> None:
        self.seen.append(f"pulled {header.topic}: {count}")


@on_loop
async def test_hooks_see_all_that_comes_and_goes(tmp_path: Path) -> None:
    hook = Watcher()
    async with serving(tmp_path, hooks=Hooks(send=(hook,), consume=(hook,))) as (_, client):
        await client.send("T", b"good", properties=NAMED)
        with pytest.raises(NoPermission, match="the hook says no"):
            await client.send("T", b"bad", properties=NAMED)
        assert (await client.pull("T")).bodies == [b"good"]
    assert hook.seen == ["sent T: 0", "sent T: 16", "pulled T: 1"]


# ---- pulling


@on_loop
async def test_every_status_of_a_pull(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for number in range(3):
            await client.send("T", bytes([number]), properties=NAMED | {"TAGS": "A"})
        found = await client.pull("T", 1)
        assert (found.code, found.remark, found.bodies) == (0, "FOUND", [b"\1", b"\2"])
        statuses = {}
        for offset, tags, queue_id in (
            (3, "*", 0),
            (4, "*", 0),
            (0, "B", 0),
            (0, "*", 1),
            (7, "*", 1),
        ):
            pulled = await client.pull("T", offset, subscription=tags, queue_id=queue_id)
            header = pulled.header
            statuses[pulled.remark, pulled.code] = (
                header.next_begin_offset, header.min_offset, header.max_offset,
            )  # fmt: skip
        assert statuses == {
            ("OFFSET_OVERFLOW_ONE", NOTHING): (3, 0, 3),
            ("OFFSET_OVERFLOW_BADLY", MOVED): (3, 0, 3),
            ("NO_MATCHED_MESSAGE", AGAIN): (3, 0, 3),
            ("NO_MATCHED_LOGIC_QUEUE", NOTHING): (0, 0, 0),
            ("NO_MATCHED_LOGIC_QUEUE", MOVED): (0, 0, 0),
        }


@on_loop
async def test_an_idle_consumer_gets_a_new_message_at_once(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with serving(tmp_path) as (broker, client), BrokerClient(broker.address) as consumer:
        await client.send("T", b"first")
        waits = []
        for offset in range(1, 31):
            waiting = asyncio.create_task(consumer.wait_for("T", offset))
            await until(lambda: len(broker.parts.long_polling))
            begun = loop.time()
            await client.send("T", b"next", properties=NAMED)
            assert (await waiting).bodies == [b"next"]
            waits.append(loop.time() - begun)
        assert statistics.median(waits) < 0.01, waits


@on_loop
async def test_a_long_poll_ends_when_its_time_is_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.send("T")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        pulled = await client.wait_for("T", 1, suspend_timeout_millis=150)
        assert (pulled.code, pulled.header.next_begin_offset) == (NOTHING, 1)
        assert 0.15 <= loop.time() - begun < 2.0


@on_loop
async def test_a_thousand_pulls_wait_and_are_all_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, client):
        await client.send("T", b"first")
        waiting = [asyncio.create_task(client.wait_for("T", 1)) for _ in range(1000)]
        await until(lambda: len(broker.parts.long_polling) == 1000)
        await client.send("T", b"for all")
        for pulled in await asyncio.gather(*waiting):
            assert pulled.bodies == [b"for all"]


@on_loop
async def test_one_buffer_of_costly_requests_leaves_others_their_turn(tmp_path: Path) -> None:
    hook = Watcher()
    async with serving(tmp_path, hooks=Hooks(consume=(hook,))) as (broker, client):
        await client.send("T", b"x", properties={"TAGS": "A"})
        for _ in range(900):
            broker.parts.intake.append(draft("T", b"x", properties={"TAGS": "A"}))
        costly = [
            request_bytes(PULL, pull_header("T", subscription="B").to_fields(), opaque=number)
            for number in range(200)
        ]
        async with await RawPeer.connect(broker.address) as peer:
            await peer.send(b"".join(costly))
            await until(lambda: hook.seen)
            await client.send("T", b"y")
            assert len(hook.seen) < 150, "the send was not served behind them"
            assert [(await peer.frame()).opaque for _ in costly] == list(range(200))


LONG_WAIT = pull_header(
    "T", 1, sys_flag=SUBSCRIBED | SUSPEND, suspend_timeout_millis=60_000
).to_fields()


@asynccontextmanager
async def deaf_peer(broker: Broker, pulls: int) -> AsyncIterator[RawPeer]:
    """A consumer of `T` with pulls that wait, which takes a few kilobytes and reads no more."""
    beat = Heartbeat(client_id="deaf", consumer_data_set=[ConsumerGroup(group_name="deaf")])
    async with await RawPeer.connect(broker.address, receive_buffer=4096) as peer:
        await peer.send(request_bytes(RequestCode.HEART_BEAT, body=fastjson.encode(beat)))
        notice = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert {(await peer.frame()).code for _ in range(2)} == {ResponseCode.SUCCESS, notice}
        for number in range(pulls):
            await peer.send(request_bytes(PULL, LONG_WAIT, opaque=number + 10))
        await until(lambda: len(broker.parts.long_polling) == pulls)
        yield peer


def connection_of(broker: Broker, client_id: str, group: str) -> Connection:
    found = broker.parts.clients.find_consumer(group, client_id)
    assert found is not None
    return found


SMALL_BUFFERS: dict[str, Any] = {
    "server_socket_snd_buf_size": 16 * 1024,
    "write_buffer_high_water_mark": 64 * 1024,
}


@on_loop
async def test_pulls_of_a_client_that_does_not_read_wait_until_it_does(tmp_path: Path) -> None:
    async with serving(tmp_path, **SMALL_BUFFERS) as (broker, client):
        await client.send("T", b"first")
        async with deaf_peer(broker, pulls=40) as peer:
            await client.send("T", bytes(300_000))
            connection = connection_of(broker, "deaf", "deaf")
            await until(lambda: connection.is_blocked)
            await client.send("T", b"another")
            assert len(broker.parts.long_polling) > 30
            assert 64 * 1024 < connection.unsent < 1_000_000
            assert connection.held > connection.unsent, "what waits is under way"
            numbers = []
            for _ in range(40):
                answer = await peer.frame()
                numbers.append(answer.opaque)
                assert len(answer.body) > 300_000
            assert sorted(numbers) == list(range(10, 50))
            await until(lambda: connection.held == 0)


@on_loop
async def test_a_member_that_does_not_read_keeps_no_notices_from_others(tmp_path: Path) -> None:
    settings = SMALL_BUFFERS | {"server_oneway_semaphore_value": 1}
    async with serving(tmp_path, **settings) as (broker, client):
        await client.send("T", b"first")
        async with deaf_peer(broker, pulls=2), await RawPeer.connect(broker.address) as member:
            await client.send("T", bytes(300_000))
            await until(lambda: connection_of(broker, "deaf", "deaf").is_blocked)
            groups = [ConsumerGroup(group_name=name) for name in ("deaf", "sound")]
            for number in range(3):
                beat = Heartbeat(client_id=f"c-{number}", consumer_data_set=groups)
                request = request_bytes(RequestCode.HEART_BEAT, body=fastjson.encode(beat))
                if number == 0:
                    await member.send(request)
                    await until(lambda: broker.parts.clients.consumer_ids("sound"))
                else:
                    async with await RawPeer.connect(broker.address) as other:
                        await other.send(request)
                        await other.frame()
            told: set[str] = set()
            while len(told) < 2:
                frame = await member.frame()
                if frame.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                    told.add((frame.fields or {})["consumerGroup"])
            assert told == {"deaf", "sound"}


@on_loop
async def test_tags_are_filtered_and_the_position_moves_past_what_is_not_wanted(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (_, client):
        for number in range(2000):
            tags = "B" if number in {0, 1999} else "A"
            await client.send("T", b"%d" % number, properties=NAMED | {"TAGS": tags})
        got, offset = [], 0
        for _ in range(6):
            pulled = await client.pull("T", offset, subscription="B || C", max_msg_nums=1)
            got += pulled.bodies
            assert pulled.header.next_begin_offset > offset
            offset = pulled.header.next_begin_offset
            if offset == 2000:
                break
        assert got == [b"0", b"1999"]


@on_loop
async def test_a_consumer_pulls_by_the_subscription_of_its_heartbeat(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await client.send("T", b"a", properties={"TAGS": "A"})
        await client.send("T", b"b", properties={"TAGS": "B"})
        given: dict[str, Any] = {"sys_flag": 0, "subscription": None, "sub_version": 1}
        with pytest.raises(SubscriptionNotFound):
            await client.pull("T", **given)
        subscription = Subscription(topic="T", sub_string="B", sub_version=1)
        group = ConsumerGroup(group_name="readers", subscription_data_set=[subscription])
        beat = Heartbeat(client_id="client-1", consumer_data_set=[group])
        await client.call(RequestCode.HEART_BEAT, None, fastjson.encode(beat))
        assert (await client.pull("T", **given)).bodies == [b"b"]


@on_loop
async def test_what_a_group_has_consumed_rides_on_its_pulls(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, client):
        await client.send("T")
        await client.pull("T", 1, sys_flag=SUBSCRIBED | COMMIT, commit_offset=1)
        assert broker.parts.offsets.find("readers", "T", 0) == 1
        waiting = asyncio.create_task(
            client.wait_for("T", 1, sys_flag=SUBSCRIBED | SUSPEND | COMMIT, commit_offset=1)
        )
        await until(lambda: len(broker.parts.long_polling))
        broker.parts.offsets.commit("readers", "T", 0, 5)
        await client.send("T")
        await waiting
        assert broker.parts.offsets.find("readers", "T", 0) == 5, "only on its arrival"


# ---- retries and delays


async def delivered(client: BrokerClient, topic: str, queue_offset: int) -> Record:
    (record,) = (await client.wait_for(topic, queue_offset, max_msg_nums=1)).records
    return record


@on_loop
async def test_a_message_is_tried_again_and_at_last_put_to_the_dead_letters(tmp_path: Path) -> None:
    async with serving(tmp_path, message_delay_level=AT_ONCE) as (broker, client):
        await broker.parts.groups.update(GroupConfig(group_name="readers", retry_max_times=2))
        sent = await client.send("T", b"hard", properties=NAMED | {"TAGS": "A"})
        record = await delivered(client, "T", 0)
        for times in (1, 2):
            await client.send_back(record)
            record = await delivered(client, RETRY, times - 1)
            assert (record.reconsume_times, bytes(record.body)) == (times, b"hard")
        await client.send_back(record)
        dead = await delivered(client, DEAD, 0)
        properties = dead.decode_properties()
        assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("T", sent.msg_id)
        assert properties["UNIQ_KEY"] == NAMED["UNIQ_KEY"]
        assert dead.reconsume_times == 3


@on_loop
async def test_a_delayed_message_is_not_early_and_not_much_too_late(tmp_path: Path) -> None:
    async with serving(tmp_path, message_delay_level="1s 2s") as (_, client):
        await client.send("T", b"later", properties=NAMED | {"DELAY": "1"})
        await client.send("T", b"now", properties=NAMED)
        first = await delivered(client, "T", 0)
        assert bytes(first.body) == b"now"
        second = await delivered(client, "T", 1)
        assert bytes(second.body) == b"later"
        (waited,) = (await client.pull("SCHEDULE_TOPIC_XXXX")).records
        late = second.store_timestamp - waited.store_timestamp - 1000
        assert 0 <= late < 3000


# ---- restarts


@on_loop
async def test_a_restart_keeps_messages_topics_groups_offsets_and_delays(tmp_path: Path) -> None:
    given: dict[str, Any] = {"message_delay_level": "1s 2s"}
    async with serving(tmp_path, **given) as (_, client):
        for number in range(5):
            await client.send("Kept", b"%d" % number, properties=NAMED, default_topic_queue_nums=2)
        await client.pull("Kept", 3, sys_flag=SUBSCRIBED | COMMIT, commit_offset=3)
        await client.send("Kept", b"delayed", properties={"DELAY": "1"})
    async with serving(tmp_path, **given) as (broker, client):
        assert broker.store.recovery.clean
        assert await all_of(client, "Kept") == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.parts.topics.require("Kept").write_queue_nums == 2
        assert "readers" in broker.parts.groups
        assert broker.parts.offsets.find("readers", "Kept", 0) == 3
        assert bytes((await delivered(client, "Kept", 5)).body) == b"delayed"
    async with serving(tmp_path, **given) as (_, client):
        await asyncio.sleep(0.05)
        assert len(await all_of(client, "Kept")) == 6, "it is not delivered twice"


@on_loop
async def test_offsets_are_saved_as_often_as_the_setting_says(tmp_path: Path) -> None:
    async with serving(tmp_path, consumer_offsets_interval=0.5) as (_, client):
        path = tmp_path / "store" / "config" / "consumerOffset.json"
        await client.send("T")
        for offset in (1, 2):
            await client.pull("T", 1, sys_flag=SUBSCRIBED | COMMIT, commit_offset=offset)
            await until(lambda: path.exists() and f"0:{offset}" in path.read_text(), within=4.0)  # noqa: B023


@on_loop
async def test_pulls_that_wait_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with BrokerClient("") as client:
        async with broker_in(tmp_path, shutdown_wait_time_seconds=10) as broker:
            client.address = broker.address
            await client.send("T")
            waiting = [asyncio.create_task(client.wait_for("T", 1)) for _ in range(10)]
            await until(lambda: len(broker.parts.long_polling) == 10)
            begun = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begun < 3.0
        for pulled in await asyncio.gather(*waiting):
            assert pulled.code == NOTHING


@on_loop
async def test_consumers_that_ask_again_do_not_hold_up_a_broker_that_stops(tmp_path: Path) -> None:
    async def consume(client: BrokerClient) -> None:
        try:
            while True:
                await client.wait_for("T", 1)
        except RemotingError:
            return

    async with BrokerClient("") as client:
        async with broker_in(tmp_path, shutdown_wait_time_seconds=10) as broker:
            client.address = broker.address
            await client.send("T")
            consuming = [asyncio.create_task(consume(client)) for _ in range(10)]
            await until(lambda: len(broker.parts.long_polling) == 10)
            begun = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begun < 3.0
        await asyncio.gather(*consuming)


@on_loop
async def test_while_one_port_drains_the_other_has_no_pull_come_again_and_again(
    tmp_path: Path,
) -> None:
    async def consume(client: BrokerClient) -> None:
        with suppress(RemotingError):
            while True:
                await client.wait_for("T", 1)

    hook = Watcher()
    hooks = Hooks(consume=(hook,))
    async with BrokerClient("") as client, AsyncExitStack() as outlasting:
        async with broker_in(tmp_path, hooks=hooks, shutdown_wait_time_seconds=10) as broker:
            client.address = broker.address
            await client.send("T")
            host, _, port = broker.address.rpartition(":")
            vip = await RawPeer.connect(f"{host}:{int(port) - 2}")
            outlasting.callback(vip.close)  # it does not hang up, so its port takes a while
            consuming = asyncio.create_task(consume(client))
            await until(lambda: len(broker.parts.long_polling))
        await consuming
    assert len(hook.seen) < 20


# ---- the disk


@on_loop
async def test_with_sync_flush_what_is_acknowledged_is_on_the_disk(tmp_path: Path) -> None:
    async with serving(tmp_path, flush_mode=FlushMode.SYNC) as (broker, client):
        await client.send("T")

        async def send(number: int) -> None:
            properties = NAMED if number % 2 else {}
            reply = await client.send("T", b"x" * 100, properties=properties)
            assert int(reply.msg_id[-16:], 16) < broker.store.flushed

        await asyncio.gather(*(send(number) for number in range(200)))
        assert len(await all_of(client)) == 201


@on_loop
async def test_with_sync_flush_a_consumer_gets_what_is_on_the_disk(tmp_path: Path) -> None:
    async with serving(tmp_path, flush_mode=FlushMode.SYNC) as (broker, client):
        await client.send("T", b"first")
        waiting = asyncio.create_task(client.wait_for("T", 1))
        await until(lambda: len(broker.parts.long_polling))
        await client.send("T", b"next", properties=NAMED)
        pulled = await waiting
        assert pulled.bodies == [b"next"]
        assert pulled.records[0].physical_offset < broker.store.flushed


@pytest.mark.parametrize("properties", [NAMED, {}], ids=["plain", "ordinary"])
@on_loop
async def test_a_disk_that_fails_under_sync_flush_is_refused_and_recovered_from(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    disk = FaultyDisk()
    given: dict[str, Any] = {"flush_mode": FlushMode.SYNC, "queue_flush_interval": 0.05}
    async with serving(tmp_path, disk=disk, **given) as (broker, client):
        await client.send("T", b"before")
        with disk.failing("sync", errno.EIO, "commitlog"):
            for _ in range(2):
                with pytest.raises(ServiceNotAvailable, match="Input/output error"):
                    await client.send("T", b"refused", properties=properties)
            assert await all_of(client) == [b"before"]
        await until(lambda: broker.store.health.writable)
        await client.send("T", b"after", properties=properties)
        assert await all_of(client) == [b"before", b"after"]
    async with serving(tmp_path) as (_, client):
        assert await all_of(client) == [b"before", b"after"]


@pytest.mark.parametrize("properties", [NAMED, {}], ids=["plain", "ordinary"])
@on_loop
async def test_a_full_disk_is_refused_and_recovered_from(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    disk = FaultyDisk()
    given: dict[str, Any] = {"commit_log_file_size": 16 * 1024, "queue_flush_interval": 0.05}
    async with serving(tmp_path, disk=disk, **given) as (broker, client):
        sent = 0
        with disk.failing("allocate", errno.ENOSPC, "commitlog"):
            with pytest.raises(ServiceNotAvailable, match="No space left"):
                for _ in range(1000):
                    await client.send("T", bytes(1000), properties=properties)
                    sent += 1
            assert len(await all_of(client)) == sent, "what is there can be read"
        await until(lambda: broker.store.health.writable)
        await client.send("T", b"after", properties=properties)
        assert len(await all_of(client)) == sent + 1


@on_loop
async def test_a_topic_that_the_disk_does_not_take_is_not_made(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with serving(tmp_path, disk=disk) as (broker, client):
        with (
            disk.failing("replace", errno.ENOSPC, "topics.json"),
            pytest.raises(ServerError, match="No space left"),
        ):
            await client.send("New")
        assert "New" not in broker.parts.topics
        await client.send("New")


# ---- NameServers and ports


async def route_of(client: RemotingClient, server: str, topic: str) -> TopicRoute | None:
    try:
        answer = await client.call(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic))
    except TopicNotFound:
        return None
    return fastjson.decode(answer.body, TopicRoute)


@on_loop
async def test_a_broker_is_known_from_its_start_to_its_end_with_all_its_topics(
    tmp_path: Path,
) -> None:
    async with (
        name_server(tmp_path) as first,
        name_server(tmp_path / "2") as second,
        RemotingClient() as asking,
    ):
        servers = (first.address, second.address)
        async with serving(tmp_path, name_servers=servers) as (broker, client):
            for server in servers:
                route = await route_of(asking, server, "TBW102")
                assert route is not None
                assert route.broker_datas[0].broker_addrs == {0: broker.address}
                assert await route_of(asking, server, "New") is None
            await client.send("New")
            for server in servers:
                route = await route_of(asking, server, "New")
                assert route is not None, "who sends to a new topic finds it at once"
                assert route.queue_datas[0].write_queue_nums == 4
        for server in servers:
            assert await route_of(asking, server, "TBW102") is None


@on_loop
async def test_a_broker_starts_and_serves_without_its_name_server(tmp_path: Path) -> None:
    async with serving(tmp_path, name_servers=("127.0.0.1:1",)) as (_, client):
        await client.send("T")
        assert await all_of(client) == [b"hello"]


@on_loop
async def test_the_port_two_below_is_served_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, client):
        host, _, port = broker.address.rpartition(":")
        async with BrokerClient(f"{host}:{int(port) - 2}") as vip:
            await vip.send("T", b"plain", properties=NAMED)
            await vip.send("T", b"ordinary")
        assert await all_of(client) == [b"plain", b"ordinary"]


@on_loop
async def test_a_broker_whose_port_is_taken_says_so_and_leaves_its_store_alone(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (broker, _):
        port = broker.config.value.listen_port
        for taken in (port, port + 2):
            with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
                async with broker_in(tmp_path / "other", listen_port=taken):
                    pass
    async with broker_in(tmp_path / "other"):
        pass


# ---- bad input


def frame_of(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def sending(**given: Any) -> dict[str, str]:
    return send_header("T", **given).to_short()


LONG_POLL = pull_header(
    "T", 2**40, sys_flag=SUBSCRIBED | SUSPEND, suspend_timeout_millis=2**62
).to_fields()
MANY_TAGS = "||".join(f"tag-{number}" for number in range(9000))
HOSTILE = [
    pytest.param(request_bytes(SEND, {}), id="a send of nothing"),
    pytest.param(request_bytes(SEND, None, body=b"x"), id="a send without fields"),
    pytest.param(request_bytes(SEND, sending() | {"e": "x"}, body=b"x"), id="a queue of letters"),
    pytest.param(request_bytes(SEND, sending() | {"g": "9" * 50}, body=b"x"), id="a huge number"),
    pytest.param(request_bytes(SEND, sending(queue_id=2**31 - 1), body=b"x"), id="the last queue"),
    pytest.param(request_bytes(SEND, sending(properties="\1\2" * 9000), body=b"x"), id="no pairs"),
    pytest.param(
        request_bytes(SEND, sending(properties=f"{'k' * 33000}\1v\2"), body=b"x"), id="a long key"
    ),
    pytest.param(request_bytes(SEND, sending(sys_flag=-1), body=b"x"), id="all flags"),
    pytest.param(request_bytes(SEND, sending(sys_flag=0x80), body=b"x"), id="an inner batch"),
    pytest.param(request_bytes(SEND, sending(), body=bytes(5 * 1024 * 1024)), id="5 MiB"),
    pytest.param(
        request_bytes(SEND, sending() | {"b": "../../etc/passwd"}, body=b"x"), id="a path"
    ),
    pytest.param(request_bytes(SEND, sending() | {"b": "\0"}, body=b"x"), id="a zero byte"),
    pytest.param(request_bytes(320, sending(batch=True), body=b"\xff" * 64), id="a batch of noise"),
    pytest.param(
        request_bytes(320, sending(batch=True), body=struct.pack(">I8xiIh", 22, 0, 0, 0) * 500),
        id="a batch of nothings",
    ),
    pytest.param(
        request_bytes(320, sending(batch=True), body=struct.pack(">I8xiI", 2**32 - 1, 0, 2**31)),
        id="a batch that says it is huge",
    ),
    pytest.param(frame_of(b'{"code":310,"extFields":' + b"[" * 50_000, b"x"), id="deep JSON"),
    pytest.param(frame_of(b'{"code":310,"extFields":{"b":"T"', b"x"), id="half a header"),
    pytest.param(frame_of(b"\xff\xfe{}", b"x"), id="no text"),
    pytest.param(request_bytes(SEND, sending(properties=NAMED), body=b"x")[:-1], id="cut short"),
    pytest.param(request_bytes(PULL, {}), id="a pull of nothing"),
    pytest.param(request_bytes(PULL, LONG_POLL), id="a pull for ever"),
    pytest.param(
        request_bytes(PULL, pull_header(max_msg_nums=2**31 - 1).to_fields()), id="a pull of all"
    ),
    pytest.param(
        request_bytes(PULL, pull_header(queue_offset=-(2**63)).to_fields()), id="far below zero"
    ),
    pytest.param(
        request_bytes(PULL, pull_header(subscription=MANY_TAGS).to_fields()),
        id="nine thousand tags",
    ),
    pytest.param(
        request_bytes(PULL, pull_header(consumer_group="\0/../x").to_fields()), id="a bad group"
    ),
    pytest.param(
        request_bytes(36, {"offset": str(2**62), "group": "readers", "delayLevel": "-99"}),
        id="a send-back of nothing",
    ),
    pytest.param(
        request_bytes(36, {"offset": "5", "group": "readers", "delayLevel": "2147483647"}),
        id="a send-back of half a message",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all of them: what one leaves behind must not trouble the next."""
    return tmp_path_factory.mktemp("attacked")


@pytest.mark.parametrize("data", HOSTILE)
@on_loop
async def test_a_hostile_frame_troubles_nobody_else(
    attacked: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(attacked) as (broker, client):
        before = (await client.send("T", b"before", properties=NAMED)).queue_offset
        async with await RawPeer.connect(broker.address) as peer:
            for _ in range(3):
                await peer.send(data)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            sent: list[SendReply] = [
                await client.send("T", b"after", properties=properties)
                for properties in (NAMED, {}) * 3
            ]
            assert loop.time() - begun < 2.0
            assert sent[-1].queue_offset > before
            assert (await client.pull("T", before)).records
        await client.send("T", b"after it is gone")
    assert not [record for record in caplog.records if record.exc_info], "nothing was a surprise"
