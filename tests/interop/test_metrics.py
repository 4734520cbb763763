"""Our metrics beside those of a Java broker 5.5.0 after the same traffic: names, types, labels."""

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bolide.client.consumer.pop.pop_consumer import PopConsumer
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import TransactionState
from bolide.client.producer.transactions import TransactionProducer
from bolide.model.message import Message
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST, obtain_or_skip
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.aio import until
from tests.support.metrics import Scraped
from tests.support.ports import free_port

ABSENT = {
    "rocketmq_processor_watermark": "one event loop: there are no queues of thread pools",
    "rocketmq_pop_buffer_scan_time_consume_milliseconds": "no buffer of pops is scanned",
    "rocketmq_pop_revive_in_message": "acknowledgements are no messages of a revive topic",
    "rocketmq_pop_revive_out_message": "acknowledgements are no messages of a revive topic",
    "target_info": "it has no label and says nothing",
}
"""Of Java's, without the suffix of counters, and why we have none."""

ONLY_WITH_TRAFFIC = {
    "rocketmq_timer_enqueue",  # Java's timer has messages of its own
    "rocketmq_timing_messages",
    "rocketmq_delay_message_latency_seconds",
}

EXPORTER = [
    "client_consume_fail_msg_count", "client_consume_fail_msg_tps", "client_consume_ok_msg_tps",
    "client_consume_rt", "client_consumer_pull_rt", "client_consumer_pull_tps",
    "group_diff", "group_retrydiff", "group_count", "producer_count", "producer_offset",
    "topic_retry_offset", "broker_tps", "broker_qps", "consumer_tps", "consumer_offset",
    "consumer_message_size", "group_get_latency", "group_get_latency_by_storetime",
    "message_accumulation", "producer_tps", "producer_message_size", "brokeruntime_pmdt_0ms",
    "brokeruntime_pmdt_10stomore", "brokeruntime_msg_put_total_today_now",
    "brokeruntime_msg_gettotal_today_now", "brokeruntime_dispatch_behind_bytes",
    "brokeruntime_put_message_size_total", "brokeruntime_put_message_average_size",
    "brokeruntime_query_threadpool_queue_capacity",
    "brokeruntime_remain_transientstore_buffer_numbs",
    "brokeruntime_earliest_message_timestamp", "brokeruntime_putmessage_entire_time_max",
    "brokeruntime_start_accept_sendrequest_time", "brokeruntime_send_threadpool_queue_size",
    "brokeruntime_putmessage_times_total", "brokeruntime_getmessage_entire_time_max",
    "brokeruntime_pagecache_lock_time_mills", "brokeruntime_commitlog_disk_ratio",
    "brokeruntime_consumequeue_disk_ratio", "brokeruntime_getfound_tps600",
    "brokeruntime_getfound_tps60", "brokeruntime_getfound_tps10",
    "brokeruntime_gettotal_tps600", "brokeruntime_gettransfered_tps600",
    "brokeruntime_getmiss_tps10", "brokeruntime_put_tps600", "brokeruntime_dispatch_maxbuffer",
    "brokeruntime_pull_threadpoolqueue_capacity", "brokeruntime_send_threadpoolqueue_capacity",
    "brokeruntime_pull_threadpoolqueue_size", "brokeruntime_query_threadpoolqueue_size",
    "brokeruntime_pull_threadpoolqueue_headwait_timemills",
    "brokeruntime_query_threadpoolqueue_headwait_timemills",
    "brokeruntime_send_threadpoolqueue_headwait_timemills",
    "brokeruntime_msg_gettotal_yesterdaymorning", "brokeruntime_msg_puttotal_yesterdaymorning",
    "brokeruntime_msg_gettotal_todaymorning", "brokeruntime_msg_puttotal_todaymorning",
    "brokeruntime_commitlogdir_capacity_free", "brokeruntime_commitlogdir_capacity_total",
    "brokeruntime_commitlog_maxoffset", "brokeruntime_commitlog_minoffset",
    "brokeruntime_remain_howmanydata_toflush", "brokeruntime_put_latency_99",
    "brokeruntime_put_latency_999",
]  # fmt: skip
"""Names of rocketmq-exporter that have series after this traffic."""

EQUAL: tuple[tuple[str, dict[str, str]], ...] = (
    ("rocketmq_messages_in_total", {"topic": "Orders", "message_type": "normal"}),
    ("rocketmq_messages_in_total", {"message_type": "delay"}),
    ("rocketmq_messages_in_total", {"message_type": "fifo"}),
    ("rocketmq_messages_in_total", {"message_type": "transaction"}),
    ("rocketmq_throughput_in_total", {"topic": "Orders", "message_type": "normal"}),
    ("rocketmq_message_size_sum", {"topic": "Orders", "message_type": "normal"}),
    ("rocketmq_message_size_bucket", {"message_type": "normal", "le": "1024.0"}),
    ("rocketmq_messages_out_total", {"topic": "Orders", "consumer_group": "readers"}),
    ("rocketmq_messages_out_total", {"topic": "Orders", "consumer_group": "poppers"}),
    ("rocketmq_throughput_out_total", {"topic": "Orders", "consumer_group": "readers"}),
    ("rocketmq_consumer_ready_messages", {"consumer_group": "poppers", "topic": "Orders",
                                          "is_retry": "false"}),
    ("rocketmq_consumer_lag_messages", {"consumer_group": "readers", "topic": "Orders"}),
    ("rocketmq_consumer_connections", {"consumer_group": "readers", "consume_mode": "push"}),
    ("rocketmq_commit_messages_total", {"topic": "Orders"}),
    ("rocketmq_rollback_messages_total", {"topic": "Orders"}),
    ("rocketmq_half_messages", {"topic": "Orders"}),
    ("rocketmq_finish_message_latency_milliseconds_count", {"topic": "Orders"}),
    ("rocketmq_broker_permission", {}),
    ("rocketmq_rpc_latency_milliseconds_count", {"request_code": "end_transaction"}),
    ("rocketmq_rpc_latency_milliseconds_count", {"request_code": "send_message_v2"}),
)  # fmt: skip
"""Series with the same value at both."""


class Pair(NamedTuple):
    java: Scraped
    ours: Scraped


def read(port: int) -> Scraped:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as reply:
        return Scraped(reply.read().decode())


async def traffic(namesrv: str, port: int) -> Scraped:
    """Sends, transactions and consumption of every kind; what is shown before the clients leave."""

    async def check(*_: object) -> TransactionState:
        return TransactionState.COMMIT

    async with Producer("writers", name_server=namesrv) as producer:
        await producer.create_topic("Orders", 4)
        for number in range(40):
            body = b"x" * (number * 50 + 1)
            await producer.send(Message("Orders", body, tags="AB"[number % 2]))
        await producer.send(Message("Orders", b"sharded", properties={"__SHARDINGKEY": "k"}))
        await producer.send(Message("Orders", b"later", delay_level=3))
        async with TransactionProducer("both", check=check, name_server=namesrv) as sender:
            await (await sender.begin(Message("Orders", b"one"))).commit()
            await (await sender.begin(Message("Orders", b"two"))).rollback()
            await sender.begin(Message("Orders", b"three"))
        got: list[object] = []

        async def handle(message: object) -> None:
            got.append(message)

        async with (
            PushConsumer("readers", name_server=namesrv) as consumer,
            PopConsumer("poppers", name_server=namesrv) as popper,
        ):
            await consumer.subscribe("Orders", "A", handle)
            await popper.subscribe("Orders")
            await popper.ack(*(await popper.receive(8))[:2])
            await until(lambda: len(got) >= 20)
            await consumer.commit()
            await asyncio.to_thread(read, port)  # ours asks the clients now
            await asyncio.sleep(1.0)  # Java counts what it has written a moment later
            return await asyncio.to_thread(read, port)


@pytest.fixture(scope="module")
def pair(java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    obtain_or_skip(NEWEST)
    directory: Path = tmp_path_factory.mktemp("metrics")
    namesrv, port = java_module_bench.namesrv(NEWEST), free_port()
    java_module_bench.broker(
        NEWEST,
        namesrv.address,
        timerWheelEnable=True,
        metricsExporterType="PROM",
        metricsPromExporterPort=port,
        metricsLabel="zone:a",
    )
    java = asyncio.run(traffic(namesrv.address, port))
    port = free_port()
    with (
        bolide_namesrv(directory / "namesrv") as names,
        bolide_broker(
            directory / "broker", names.address, metricsPromExporterPort=port, metricsLabel="zone:a"
        ),
    ):
        yield Pair(java, asyncio.run(traffic(names.address, port)))


def test_every_metric_of_java_is_there_or_has_a_reason(pair: Pair) -> None:
    missing = pair.java.kinds.keys() - pair.ours.kinds.keys() - ONLY_WITH_TRAFFIC
    assert missing <= ABSENT.keys()
    assert not ABSENT.keys() & pair.ours.kinds.keys()


def test_types_and_labels_are_the_same(pair: Pair) -> None:
    both = pair.java.kinds.keys() & pair.ours.kinds.keys()
    assert len(both) > 30
    for name in both:
        assert pair.java.kinds[name] == pair.ours.kinds[name], name
        assert pair.java.labels[name] == pair.ours.labels[name], name


@pytest.mark.parametrize(("name", "labels"), EQUAL)
def test_values_are_the_same(pair: Pair, name: str, labels: dict[str, str]) -> None:
    assert pair.ours.all(name, **labels) == pair.java.all(name, **labels) != []


def test_the_names_of_the_exporter_are_there_too(pair: Pair) -> None:
    assert {f"rocketmq_{name}" for name in EXPORTER} <= pair.ours.kinds.keys()
    assert pair.ours.labels["rocketmq_group_diff"] == {
        "group", "topic", "countOfOnlineConsumers", "msgModel"
    }  # fmt: skip
    assert pair.ours.labels["rocketmq_producer_offset"] == {"cluster", "broker", "topic"}
    page = Path(__file__).parents[2] / "docs" / "how-to" / "monitor.md"
    shown = set(page.read_text(encoding="utf-8").split())
    for name, kind in pair.ours.kinds.items():
        if name.startswith(("rocketmq_", "bolide_")) and "_brokeruntime_" not in name:
            assert f"{name}_total" in shown if kind == "counter" else name in shown, name
    # The exporter subtracts the offsets of a group from the ends of the queues.
    stored = pair.ours.one("rocketmq_producer_offset", topic="Orders")
    consumed = pair.ours.one("rocketmq_consumer_offset", group="readers", topic="Orders")
    assert 42 <= stored <= 44  # one is due later, one was checked
    assert 20 <= consumed <= stored
    behind = pair.ours.one("rocketmq_group_diff", group="readers", topic="Orders")
    assert behind == stored - consumed
