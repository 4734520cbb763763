"""Apache's gRPC client through Apache's proxy, in front of our broker and of Apache's."""

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest

from bolide.admin import AdminClient
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from tests.interop.bench import Bench
from tests.interop.matrix import brokers
from tests.interop.matrix.brokers import Cluster

BROKERS = [brokers.OURS, pytest.param("5.x", marks=pytest.mark.long)]
TYPES = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Transaction": "TRANSACTION"}


@pytest.mark.parametrize("broker", BROKERS)
def test_grpc_clients_send_and_consume_messages_of_every_kind(
    broker: str, java_bench: Bench, tmp_path: Path
) -> None:
    with brokers.cluster(broker, tmp_path, java_bench) as cluster:
        asyncio.run(prepare(cluster))
        proxy = java_bench.proxy(cluster.namesrv_address)
        printed = java_bench.client("grpc client", "GrpcClients", proxy.address).wait(100)

    assert printed[-1] == "done"
    deliveries = defaultdict[str, list[tuple[str, int]]](list)
    for line in printed[:-1]:
        consumer, body, attempt = line.split("\t")
        deliveries[consumer].append((body, int(attempt)))
    # The first one is received again because its lease was shortened and not acknowledged.
    first = deliveries["simple"][0][0]
    expected = [(f"normal {number}", 1) for number in range(4)]
    assert sorted(deliveries["simple"]) == sorted([*expected, (first, 2)])
    assert deliveries["pushFifo"] == [(f"fifo {number}", 1) for number in range(4)]
    assert deliveries["pushDelay"] == [("delayed", 1)]
    assert sorted(deliveries["pushTransaction"]) == [("checked", 1), ("committed", 1)]


async def prepare(cluster: Cluster) -> None:
    """Create the topics and the group of the ordered consumer."""
    address = cluster.broker_address
    async with AdminClient(cluster.namesrv_address) as admin:
        for topic, kind in TYPES.items():
            config = TopicConfig(topic_name=topic, attributes={"+message.type": kind})
            await admin.topics.update(address, config)
        group = GroupConfig(group_name="pushFifo", consume_message_orderly=True)
        await admin.groups.update(address, group)
