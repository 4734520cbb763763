"""The metrics of a broker against what really is in it, over HTTP."""

import asyncio
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.server import Broker
from bolide.client.producer.producer import Producer
from bolide.errors import ConfigError
from bolide.kernel import read_record
from bolide.metrics.settings import ExporterType
from bolide.model.message import Message
from bolide.model.names import pop_retry_topics
from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.server import NameServer
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import (
    ConsumerGroup,
    ConsumeType,
    Heartbeat,
    ProducerGroup,
    Subscription,
)
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.record import Record, RecordDraft
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, broker_in
from tests.support.controllers import controller, controller_config, free_peers
from tests.support.metrics import Scraped, get, scrape
from tests.support.popping import PopClient, PoppedMessage
from tests.support.ports import free_port

QUEUES = 4
COMMIT = 1
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def truth(
    broker: Broker,
    topic: str,
    queue_id: int,
    begin: int,
    *,
    wanted: Callable[[dict[str, str]], bool] = lambda _: True,
    acknowledged: Collection[int] = (),
) -> tuple[int, float | None]:
    """What a group has not consumed, by reading every message: how many, and since when."""
    store, found = broker.store, []
    begin = max(begin, store.min_offset(topic, queue_id))
    for offset in range(begin, store.max_offset(topic, queue_id)):
        record = read_record(bytes(store.read(topic, queue_id, offset).records[0]))
        assert isinstance(record, Record)
        if offset not in acknowledged and wanted(record.decode_properties()):
            found.append(record.store_timestamp / 1000)
    return len(found), min(found, default=None)


def of_tags(properties: dict[str, str]) -> bool:
    return properties["TAGS"] in "AC"


async def join(
    client: BrokerClient, group: str, expression: str, kind: str = "TAG", **given: object
) -> None:
    wanted = Subscription(topic="T", sub_string=expression, expression_type=kind, sub_version=1)
    beat = Heartbeat(
        client_id=f"client of {group}",
        producer_data_set=[ProducerGroup("producers")],
        consumer_data_set=[
            ConsumerGroup(
                group_name=group,
                subscription_data_set=[wanted],
                **given,  # type: ignore[arg-type]
            )
        ],
    )
    await client.call(RequestCode.HEART_BEAT, body=fastjson.encode(beat))


async def fill(client: BrokerClient) -> None:
    for number in range(60):
        properties = {"TAGS": "ABC"[number % 3], "number": str(number)}
        if number % 5 == 0:
            properties["__SHARDINGKEY"] = "k"
        await client.send("T", b"%d" % number, queue_id=number % QUEUES, properties=properties)


def check_lag(
    found: Scraped, group: str, queue_id: int, right: tuple[int, float | None], **labels: str
) -> None:
    labels = {"consumer_group": group, "queue_id": str(queue_id), **labels}
    messages, since = right
    assert found.one("bolide_queue_lag_messages", **labels) == messages, labels
    seconds = found.one("bolide_queue_lag_seconds", **labels)
    assert seconds == pytest.approx(time.time() - since if since else 0, abs=3.0)
    assert (seconds > 0) == (messages > 0)


@on_loop
async def test_lag_is_what_reading_every_message_says(tmp_path: Path) -> None:
    async with (
        broker_in(tmp_path) as broker,
        BrokerClient(broker.address) as client,
        BrokerClient(broker.address) as filtering,
        PopClient(broker.address) as popping,
    ):
        await fill(client)
        for queue_id in range(QUEUES):  # a group that nobody is in any more
            await client.pull("T", queue_id=queue_id, consumer_group="absent", sys_flag=COMMIT | 4,
                              commit_offset=3 * queue_id)  # fmt: skip
        await client.pull("T", consumer_group="new")  # without a commit
        await join(filtering, "some", "A || C")
        await filtering.pull(
            "T", consumer_group="some", sys_flag=COMMIT | 4, commit_offset=5, subscription="A || C"
        )
        await join(client, "by_sql", "number BETWEEN 20 AND 40", "SQL92")
        await client.pull("T", queue_id=2, consumer_group="by_sql", sys_flag=COMMIT | 4,
                          commit_offset=6, expression_type="SQL92",
                          subscription="number BETWEEN 20 AND 40")  # fmt: skip
        await client.pull("T", consumer_group="all", commit_offset=15, sys_flag=COMMIT | 4)
        await join(popping, "poppers", "*", consume_type=ConsumeType.CONSUME_POP)
        popped = await popping.pop("T", queue_id=1, max_msg_nums=6)
        acknowledged = [0, 2, 3]
        for offset in acknowledged:
            await popping.ack("T", popped.messages[offset])
        await client.send_back((await client.pull("T")).records[0], "some")

        found = await scrape(broker.metrics)
        for queue_id in range(QUEUES):
            check_lag(found, "absent", queue_id, truth(broker, "T", queue_id, 3 * queue_id))
        check_lag(found, "all", 0, (0, None))
        check_lag(found, "some", 0, truth(broker, "T", 0, 5, wanted=of_tags), topic="T")
        right = truth(
            broker, "T", 2, 6, wanted=lambda properties: 20 <= int(properties["number"]) <= 40
        )
        assert right[0] == 4
        check_lag(found, "by_sql", 2, right, topic="T")
        right = truth(broker, "T", 1, 0, acknowledged=acknowledged)
        check_lag(found, "poppers", 1, right, is_retry="false")
        assert found.one("rocketmq_consumer_inflight_messages", consumer_group="poppers",
                         topic="T", is_retry="false") == 3  # fmt: skip
        assert not found.all("bolide_queue_lag_messages", consumer_group="new")
        assert not found.all("bolide_queue_lag_messages", consumer_group="all", queue_id="1")
        whole = sum(truth(broker, "T", each, 3 * each)[0] for each in range(QUEUES))
        assert found.one("rocketmq_consumer_lag_messages", consumer_group="absent") == whole
        assert found.one("rocketmq_group_diff", group="absent", topic="T") == whole
        assert found.one("rocketmq_consumer_offset", group="absent", topic="T") == 18
        age = found.one("rocketmq_consumer_lag_latency_milliseconds", consumer_group="absent")
        assert 0 < age < 60_000
        by_exporter = found.one("rocketmq_group_get_latency_by_storetime", group="absent")
        assert by_exporter == pytest.approx(age, abs=100)

        # What the group wanted is known, also when its consumers are gone.
        await filtering.remoting.__aexit__(None, None, None)
        await until(lambda: broker.parts.clients.consumer_group("some") is None)
        left = await scrape(broker.metrics)
        check_lag(left, "some", 0, truth(broker, "T", 0, 5, wanted=of_tags), topic="T")

        counts(found, broker.store.read("SCHEDULE_TOPIC_XXXX", 2, 0).size)
        await moved(broker, client, popping, [popped.messages[offset] for offset in (1, 4, 5)])


@on_loop
async def test_the_age_of_a_lag_behind_an_expression_is_that_of_its_first_message(
    tmp_path: Path,
) -> None:
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        for number in (1, 1, 5):
            await client.send("T", properties={"number": str(number)})
            await asyncio.sleep(0.5 if number == 1 else 0.0)
        await join(client, "by_sql", "number = 5", "SQL92")
        await client.pull("T", consumer_group="by_sql", sys_flag=COMMIT | 4,
                          expression_type="SQL92", subscription="number = 5")  # fmt: skip
        found = await scrape(broker.metrics)
        assert found.one("bolide_queue_lag_messages", consumer_group="by_sql", queue_id="0") == 1
        stored = broker.store.unit_stored_at("T", 0, 2) / 1000
        seconds = found.one("bolide_queue_lag_seconds", consumer_group="by_sql", queue_id="0")
        assert seconds == pytest.approx(time.time() - stored, abs=0.4)


async def moved(
    broker: Broker, client: BrokerClient, popping: PopClient, in_flight: list[PoppedMessage]
) -> None:
    """A tool moves a group that has popped: back only once no pop of it is in flight."""
    offset = {"consumerGroup": "poppers", "topic": "T", "queueId": "1", "commitOffset": "1"}
    await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
    right = truth(broker, "T", 1, 0, acknowledged=[0, 2, 3])
    check_lag(await scrape(broker.metrics), "poppers", 1, right, is_retry="false")
    for each in in_flight:
        await popping.ack("T", each)
    back = await scrape(broker.metrics)
    check_lag(back, "poppers", 1, truth(broker, "T", 1, 1), is_retry="false")
    # It goes on by pull.
    await client.pull("T", queue_id=1, consumer_group="poppers", sys_flag=COMMIT | 4,
                      queue_offset=12, commit_offset=12)  # fmt: skip
    pulled = await scrape(broker.metrics)
    check_lag(pulled, "poppers", 1, truth(broker, "T", 1, 12), is_retry="false")
    labels = {"consumer_group": "poppers", "topic": "T", "is_retry": "false"}
    assert pulled.one("rocketmq_consumer_inflight_messages", **labels) == 0
    assert (await popping.pop("T", queue_id=1)).messages[0].record.queue_offset == 12


def counts(found: Scraped, sent_back: int) -> None:
    """What was sent and delivered above, by handlers and on the fast path."""
    into, out = "rocketmq_messages_in_total", "rocketmq_messages_out_total"
    assert found.one(into, topic="T", message_type="normal", is_system="false") == 48
    assert found.one(into, topic="T", message_type="fifo") == 12
    assert found.one("rocketmq_message_size_count", topic="T", message_type="normal") == 48
    small = found.one("rocketmq_message_size_bucket", topic="T", message_type="fifo", le="1024.0")
    assert small == 12
    sizes = found.all("rocketmq_throughput_in_total", topic="T")
    assert sum(sizes) == found.one("rocketmq_brokeruntime_put_message_size_total") - (
        sum(found.all("rocketmq_throughput_in_total")) - sum(sizes) + sent_back
    )
    assert found.one(out, consumer_group="poppers", is_retry="false") == 6
    requests = "rocketmq_rpc_latency_milliseconds_count"
    assert found.one(requests, request_code="send_message_v2", response_code="success") == 60
    assert found.one(requests, request_code="heart_beat") == 3
    assert found.one("rocketmq_consumer_connections", consumer_group="some") == 1
    assert found.one("rocketmq_group_count", group="some") == 1
    assert found.one("rocketmq_group_count", group="absent") == 0


@on_loop
async def test_two_retry_topics_of_a_group_are_one_lag(tmp_path: Path) -> None:
    async with (
        broker_in(tmp_path) as broker,
        BrokerClient(broker.address) as client,
        PopClient(broker.address) as popping,
    ):
        await client.send("T")
        await join(popping, "poppers", "*", consume_type=ConsumeType.CONSUME_POP)
        for number, name in enumerate(pop_retry_topics("poppers", "T"), 1):
            retries = TopicConfig(topic_name=name, read_queue_nums=number, write_queue_nums=number)
            await broker.parts.topics.update(retries)
            for queue_id in range(number):
                broker.store.append(RecordDraft(name.encode(), b"x", b"", queue_id, 0, HOST, HOST))
                broker.parts.offsets.commit("poppers", name, queue_id, 0)
        found = await scrape(broker.metrics)
        labels = {"consumer_group": "poppers", "topic": "T", "is_retry": "true"}
        assert found.one("rocketmq_consumer_lag_messages", **labels) == 3
        assert found.one("bolide_queue_lag_messages", queue_id="0", **labels) == 2
        assert found.one("bolide_queue_lag_messages", queue_id="1", **labels) == 1
        assert 0 < found.one("bolide_queue_lag_seconds", queue_id="0", **labels) < 60
        assert sorted(found.all("rocketmq_group_retrydiff", group="poppers")) == [1, 2]


@on_loop
async def test_a_long_filtered_backlog_is_estimated(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_consume_queue_scan": 20}
    async with broker_in(tmp_path, **settings) as broker, BrokerClient(broker.address) as client:
        for number in range(100):
            await client.send("T", properties={"TAGS": "AB"[number % 2]})
        await join(client, "some", "A")
        await client.pull("T", consumer_group="some", sys_flag=COMMIT | 4, subscription="A")
        found = await scrape(broker.metrics)
        lag = found.one("bolide_queue_lag_messages", consumer_group="some", queue_id="0")
        assert lag == pytest.approx(50, abs=2)


@on_loop
async def test_readiness_names_what_is_missing(tmp_path: Path) -> None:
    async with NameServer(NameServerConfig(listen_port=0)) as names:
        address = names.address
    settings: dict[str, Any] = {"name_servers": (address,), "register_broker_timeout": 0.2}
    async with broker_in(tmp_path, **settings) as broker:
        alive = await get(broker.metrics, "/healthz")
        assert alive.status == 200
        lonely = await get(broker.metrics, "/readyz")
        assert lonely.status == 503
        assert address in lonely.text
        assert '"registration"' in lonely.text
        broker.store.health.refuse("the commit log", "the disk is gone")
        broken = await get(broker.metrics, "/readyz")
        assert "the disk is gone" in broken.text
        broker.store.health.allow("the commit log")
        broker.config.apply({"namesrvAddr": ""})
        assert (await get(broker.metrics, "/readyz")).status == 200


@on_loop
async def test_ports_that_are_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one: dict[str, Any] = {"metrics_prom_exporter_port": port, "metrics_port_given": True}
        with pytest.raises(ConfigError, match=f"metricsPromExporterPort={port}: .*in use"):
            async with broker_in(tmp_path / "one", **one):
                pass
        other: dict[str, Any] = {
            "metrics_prom_exporter_port": port,
            "listen_port": free_port((-2, 1)),
        }
        async with broker_in(tmp_path / "two", **other) as broker:
            assert broker.metrics.address != f"127.0.0.1:{port}"
            assert f"{port} is taken" in caplog.text
    off: dict[str, Any] = {"metrics_exporter_type": ExporterType.DISABLE}
    async with broker_in(tmp_path / "three", **off) as broker:
        assert broker.metrics.address is None


@on_loop
async def test_requests_of_the_fast_path_are_counted(tmp_path: Path) -> None:
    requests, served = "rocketmq_rpc_latency_milliseconds_count", "bolide_fast_path_served_total"
    async with (
        NameServer(NameServerConfig(listen_port=0)) as names,
        broker_in(tmp_path, name_servers=(names.address,)) as broker,
        BrokerClient(broker.address) as client,
        Producer("producers", name_server=names.address) as producer,
    ):
        await producer.create_topic("T", 1)
        for number in range(20):
            order = {"__SHARDINGKEY": "k"} if number % 4 == 0 else {}
            await producer.send(Message("T", b"x" * 1000 * number + b"y", properties=order))
        for _ in range(7):
            await client.pull("T", 12)
        await client.pull("T", 20)  # there is nothing
        waiting = asyncio.create_task(client.wait_for("T", 20))
        await until(lambda: broker.parts.long_polling.waiting)
        await producer.send(Message("T", b"last"))
        await waiting
        found = await scrape(broker.metrics)
        assert found.one(requests, request_code="send_message_v2", response_code="success") == 21
        pulls = {"request_code": "pull_message", "is_long_polling": "false"}
        assert found.one(requests, response_code="success", **pulls) == 7
        assert found.one(requests, response_code="pull_not_found", **pulls) == 1
        waited = {"request_code": "pull_message", "is_long_polling": "true"}
        assert found.one(requests, response_code="success", **waited) == 1
        assert found.one("rocketmq_messages_out_total", consumer_group="readers") == 7 * 8 + 1
        assert found.one("rocketmq_messages_in_total", topic="T", message_type="fifo") == 5
        sizes = [
            found.one("rocketmq_message_size_bucket", topic="T", message_type="normal", le=le)
            for le in ("1024.0", "4096.0", "524288.0", "+Inf")
        ]
        stored = [unit.size for unit in broker.store.queues.require(b"T", 0).read(0, 21)]
        normal = [size for number, size in enumerate(stored) if number % 4 or number == 20]
        bounds = (1024, 4096, 524288, 2**40)
        assert sizes == [sum(size <= bound for size in normal) for bound in bounds]
        whole = found.one("rocketmq_throughput_in_total", topic="T", message_type="normal")
        assert whole == found.one("rocketmq_message_size_sum", message_type="normal") == sum(normal)
        if broker.parts.fast_path is not None:  # there is compiled code
            assert found.one(served, kind="pulls") >= 7
            assert found.one(served, kind="sends") >= 20


@on_loop
async def test_name_servers_and_controllers_have_metrics_too(tmp_path: Path) -> None:
    peers = free_peers(2)  # one of two controllers has no majority
    async with controller(tmp_path / "lonely", peers) as lonely:
        assert lonely.metrics.address is not None
        ready = await get(lonely.metrics, "/readyz")
        assert (ready.status, "no controller leads" in ready.text) == (503, True)
        assert (await scrape(lonely.metrics)).one("role") == 0
    peers = free_peers(1)
    async with (
        NameServer(
            NameServerConfig(listen_port=0),
            controller=controller_config(tmp_path / "controller", peers),
        ) as names,
        broker_in(tmp_path / "broker", name_servers=(names.address,)) as broker,
    ):
        assert names.controller is not None
        assert names.controller.metrics.address is None  # the NameServer serves them
        assert (await get(names.metrics, "/readyz")).status == 200
        assert (await get(broker.metrics, "/readyz")).status == 200
        await until(lambda: names.controller is not None and names.controller.is_acting)
        found = await scrape(names.metrics)
        assert found.one("bolide_namesrv_brokers") == 1
        assert found.one("bolide_namesrv_topics") > 3
        registered = {"request_code": "register_broker", "response_code": "success"}
        assert found.one("rocketmq_rpc_latency_milliseconds_count", **registered) >= 1
        assert found.one("role", peer_id="n0") == 3
        assert found.one("dledger_disk_usage_bytes") > 0
