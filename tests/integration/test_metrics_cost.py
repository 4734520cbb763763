"""What a scrape of many queues costs the event loop of a broker."""

import asyncio
import gc
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.server import NameServer
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.record import RecordDraft
from tests.support.aio import on_loop
from tests.support.broker import BrokerClient, broker_in
from tests.support.metrics import Stalls, fetch, stalls

QUEUES = 10_000
PER_TOPIC = 1000
GROUPS = 3
LIMIT = 0.020
TRIES = 3
AT_ONCE = 500
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


async def pull_all(client: BrokerClient) -> None:
    """Pull from each queue, whose counts then wait for a scrape."""
    queues = [divmod(number, PER_TOPIC) for number in range(QUEUES)]
    for first in range(0, QUEUES, AT_ONCE):
        await asyncio.gather(
            *(
                client.pull(f"Topic{topic}", queue_id=queue_id, consumer_group="group0")
                for topic, queue_id in queues[first : first + AT_ONCE]
            )
        )


@on_loop
async def test_a_scrape_of_10000_queues_never_stalls_the_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {
        "metrics_cardinality_limit": 200_000,
        "commit_log_file_size": 16 * 1024 * 1024,
    }
    async with (
        broker_in(tmp_path, **settings) as broker,
        BrokerClient(broker.address) as client,
    ):
        parts = broker.parts
        for number in range(QUEUES // PER_TOPIC):
            name = f"Topic{number}"
            await parts.topics.update(
                TopicConfig(topic_name=name, read_queue_nums=PER_TOPIC, write_queue_nums=PER_TOPIC)
            )
            for queue_id in range(PER_TOPIC):
                draft = RecordDraft(name.encode(), b"x", b"", queue_id, 0, HOST, HOST)
                broker.store.append(draft)
        for number in range(GROUPS):
            await parts.groups.update(GroupConfig(group_name=f"group{number}"))
            for topic in range(QUEUES // PER_TOPIC):
                for queue_id in range(PER_TOPIC):
                    parts.offsets.commit(f"group{number}", f"Topic{topic}", queue_id, number % 2)
        longest: list[Stalls] = []
        took: list[float] = []
        await fetch(broker.metrics)  # the first one imports
        await pull_all(client)  # from now on the fast path serves and counts them
        while len(longest) < TRIES:
            await pull_all(client)
            gc.collect()
            gc.freeze()  # what the test has made is no work of the broker
            started = time.perf_counter()
            async with stalls() as found:
                reply = await fetch(broker.metrics)
            longest.append(found)
            took.append(time.perf_counter() - started)
        gc.unfreeze()
        if parts.fast_path is not None:  # there is compiled code
            assert parts.fast_path.fall_throughs.served_pulls > 0.99 * TRIES * QUEUES
        out = re.findall(r"^rocketmq_messages_out_total{.*} (\d+)$", reply.text, re.MULTILINE)
        assert sum(map(int, out)) == (TRIES + 1) * QUEUES
        lags = re.findall(r"^bolide_queue_lag_messages{.*} (\d+)$", reply.text, re.MULTILINE)
        assert len(lags) == GROUPS * QUEUES
        assert sum(map(int, lags)) == 2 * QUEUES
        assert "bolide_metrics_series_dropped{" not in reply.text
    clock = ", ".join(f"{each.longest * 1000:.1f}" for each in longest)
    own = ", ".join(f"{each.longest_own * 1000:.1f}" for each in longest)
    seconds = ", ".join(f"{each:.2f}" for each in took)
    with capsys.disabled():
        sys.stdout.write(
            f"\nscrapes of {QUEUES} queues and {GROUPS} groups: {seconds} s;"
            f" longest stalls {clock} ms, of the processor {own} ms\n"
        )
    assert min(each.longest_own for each in longest) < LIMIT


@on_loop
async def test_what_was_sent_to_many_queues_is_counted_in_slices(tmp_path: Path) -> None:
    queues, group = PER_TOPIC, 250
    async with (
        NameServer(NameServerConfig(listen_port=0)) as names,
        broker_in(tmp_path, name_servers=(names.address,)) as broker,
        Producer("producers", name_server=names.address) as producer,
    ):
        statistics, fast_path = broker.parts.statistics, broker.parts.fast_path
        if fast_path is None:
            pytest.skip("there is no compiled code")
        await producer.create_topic("T", queues)
        await producer.send(Message("T", b"first"))  # the fast path serves the others
        slices: list[int] = []
        while len(slices) < TRIES and max(slices, default=0) < 3:  # maintenance may come first
            for _ in range(queues // group):
                await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(group)))
            slices.append(sum(1 for _ in statistics.collect_in_slices()))
        assert max(slices) >= 3
        assert fast_path.fall_throughs.served_sends > 0.9 * queues
        assert statistics.totals.sent == len(slices) * queues + 1
        assert not list(statistics.collect_in_slices())
