"""Java clients with the workers of one host, which are brokers like others to them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bolide.admin.client import AdminClient
from tests.interop.bench import BROKER_NEIGHBOURS
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.support.ports import free_port
from tests.support.topic_contents import all_messages


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    """One that knows two workers."""
    port = free_port((*BROKER_NEIGHBOURS, 8, 10, 11))
    with (
        bolide_namesrv(tmp_path / "names") as names,
        bolide_broker(
            tmp_path / "broker", names.address, "--workers", "2",
            listenPort=port, mappedFileSizeCommitLog=1048576,
        ) as workers,
    ):  # fmt: skip
        workers.process.wait_for_line("2 workers serve")
        yield names.address


def test_java_clients_send_to_and_consume_from_all_workers(
    rocketmq: str, name_server: str, java_client: Callable[..., ChildProcess]
) -> None:
    asyncio.run(_create(name_server, "Spread"))
    job = (name_server, "Spread", 200)
    assert java_client(rocketmq, "SendMessages", *job).wait() == ["sent 200"]
    stored = Counter(each.broker_name for each in all_messages(name_server, "Spread"))
    assert stored == {"broker-a-0": 100, "broker-a-1": 100}
    assert java_client(rocketmq, "ReceiveMessages", *job).wait() == ["ready", "received 200"]


async def _create(name_server: str, topic: str) -> None:
    async with AdminClient(name_server) as admin:
        await admin.topics.create(topic, "DefaultCluster", queues=4)
