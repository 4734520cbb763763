"""Java clients against a topic of ours with a window, and our window against Java's brokers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.admin import AdminClient
from bolide.admin.errors import AttributeUnknown
from bolide.protocol.bodies.topics import TopicConfig
from tests.interop.bench import Server
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.support.aio import on_loop


def test_java_sets_a_window_and_sends_a_key_twice(
    rocketmq: str,
    java_client: Callable[..., ChildProcess],
    java_mqadmin: Callable[..., str],
    tmp_path: Path,
) -> None:
    with (
        bolide_namesrv(tmp_path / "namesrv") as namesrv,
        bolide_broker(tmp_path / "broker", namesrv.address) as broker,
    ):
        if rocketmq == "4.9":  # its mqadmin has no attributes
            asyncio.run(set_window(namesrv.address, broker.address))
        else:
            where = ("updateTopic", "-n", namesrv.address, "-b", broker.address, "-t", "Once")
            java_mqadmin(rocketmq, *where, "-a", "+dedup.window=10m")
        job = (namesrv.address, "Once", "broker-a", "a", "b", "a")
        lines = java_client(rocketmq, "SendKeyed", *job).wait()
    first, second, repeat, batch = (line.split() for line in lines)
    assert [first[0], first[2], second[2]] == ["SEND_OK", "0", "1"]
    assert repeat == first
    assert batch == ["SEND_OK", ",".join([first[1], second[1], first[1]]), "0"]


@on_loop
async def test_a_broker_of_apaches_has_no_window_and_the_administrator_hears_of_it(
    rocketmq: str, java_namesrv: Callable[..., Server], java_broker: Callable[..., Server]
) -> None:
    namesrv = java_namesrv(rocketmq)
    broker = java_broker(rocketmq, namesrv.address)
    with pytest.raises(AttributeUnknown, match=r"only Bolide's brokers have dedup\.window"):
        await set_window(namesrv.address, broker.address)


async def set_window(namesrv: str, broker: str) -> None:
    wanted = TopicConfig(topic_name="Once", attributes={"+dedup.window": "10m"})
    async with AdminClient(namesrv) as admin:
        await admin.topics.update(broker, wanted)
