"""Our commands about brokers, NameServers and controllers against servers of RocketMQ."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide import Message, Producer, PushConsumer
from bolide.cli import app
from bolide.model.message import StoredMessage
from tests.interop.bench import Bench, Server
from tests.interop.conftest import NEWEST
from tests.support.admin_cluster import CLUSTER, Cluster
from tests.support.aio import PATIENCE, on_loop
from tests.support.ports import free_port


def eventually(act: Callable[[], bool], within: float = PATIENCE) -> None:
    deadline = time.monotonic() + within
    while not act():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def begin(bench: Bench, version: str) -> Cluster:
    names = bench.namesrv(version)
    broker = bench.broker(version, names.address, timerWheelEnable=version == NEWEST)
    cluster = Cluster(names.address, broker.address)
    eventually(lambda: _is_listed(cluster))
    return cluster


def _is_listed(cluster: Cluster) -> bool:
    """Whether the broker is registered, and has figures: RocketMQ 4.9 fails for a moment."""
    return all(
        CliRunner().invoke(app, ["admin", *words, "-n", cluster.name_server]).exit_code == 0
        for words in (("topicRoute", "-t", "TBW102"), ("clusterList",))
    )


def test_brokers_and_name_servers_of_rocketmq_are_looked_after(
    java_bench: Bench, rocketmq: str, tmp_path: Path
) -> None:
    cluster, is_new = begin(java_bench, rocketmq), rocketmq == NEWEST

    file = tmp_path / "topics.json"
    topics = [{"topicName": name, "readQueueNums": 3, "writeQueueNums": 3} for name in ("A", "B")]
    file.write_text(json.dumps(topics))
    cluster.run("updateTopicList", *CLUSTER, "-f", str(file))
    eventually(lambda: "A" in cluster.run("topicList").splitlines())
    assert cluster.json("topicRoute", "-t", "A")["queueDatas"][0]["readQueueNums"] == 3
    assert cluster.run("topicClusterList", "-t", "B") == "DefaultCluster\n"

    cluster.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    settings = cluster.json("getNamesrvConfig")[cluster.name_server]
    assert settings["orderMessageEnable"] == "true"
    cluster.run("updateKvConfig", "-s", "S", "-k", "k", "-v", "v")
    cluster.run("deleteKvConfig", "-s", "S", "-k", "k")
    assert re.search(r"OK, \d+\n", cluster.run("wipeWritePerm", "-b", "broker-a"))
    assert cluster.json("topicRoute", "-t", "A")["queueDatas"][0]["perm"] == 4
    cluster.run("addWritePerm", "-b", "broker-a")
    for command in ("cleanExpiredCQ", "deleteExpiredCommitLog"):
        assert cluster.run(command, *CLUSTER) == "success\n"
    assert cluster.run("cleanUnusedTopic", *CLUSTER, "--yes") == "success\n"

    status = cluster.run("sendMsgStatus", "-b", "broker-a", "-c", "2")
    assert status.count("SendResult [sendStatus=SEND_OK") == 2
    assert cluster.json("clusterRT", "-a", "2", "--rounds", "1")[0]["successCount"] == 2
    assert cluster.json("statsAll", "-t", "broker-a")[0]["consumerGroup"] == ""
    assert cluster.json("brokerConsumeStats", "-b", cluster.broker)["totalDiff"] == 0

    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        cluster.run(command, *CLUSTER, "-f", str(tmp_path))
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert set(metadata["topicConfigTable"]) == {"A", "B"}

    code = 0 if is_new else 4
    for words in (
        ("getColdDataFlowCtrInfo", *CLUSTER),
        ("updateColdDataFlowCtrGroupConfig", *CLUSTER, "-g", "G", "-v", "1000"),
        ("removeColdDataFlowCtrGroupConfig", *CLUSTER, "-g", "G"),
        ("setCommitLogReadAheadMode", *CLUSTER, "-m", "0"),
        ("resetMasterFlushOffset", "-b", cluster.broker, "-o", "0"),
        ("switchTimerEngine", *CLUSTER, "-e", "F"),
        ("haStatus", *CLUSTER),
        ("exportPopRecord", *CLUSTER),
    ):
        printed = cluster.run(*words, code=code)
        assert is_new or "not applicable, because" in printed
    cluster.run("addBroker", "-c", cluster.broker, "-b", "/a.conf", code=4)


@pytest.mark.long
@on_loop
async def test_a_broker_of_rocketmq_is_drained(java_bench: Bench, rocketmq: str) -> None:
    cluster = await asyncio.to_thread(begin, java_bench, rocketmq)
    got: list[StoredMessage] = []
    go_on = asyncio.Event()

    async def take(message: StoredMessage) -> None:
        await go_on.wait()
        got.append(message)

    async def check(*words: str, code: int = 0) -> Any:
        printed = await asyncio.to_thread(
            cluster.run, "drain", "-b", cluster.broker, *words, "--json", code=code
        )
        documents = [line for line in printed.splitlines() if line.startswith("[")]
        assert documents, printed
        return json.loads(documents[0])[0]

    await asyncio.to_thread(cluster.run, "updateTopic", *CLUSTER, "-t", "T")
    async with (
        Producer("shop", name_server=cluster.name_server) as producer,
        PushConsumer("G", name_server=cluster.name_server, consume_from="first") as consumer,
    ):
        await producer.send(Message("T", b"now"))
        await producer.send(Message("T", b"soon", delay_level=2))
        await consumer.subscribe("T", take)
        kinds = {each["kind"]: each["count"] for each in (await check("--check", code=1))["open"]}
        assert kinds == {"groups": 1, "delayed": 1}

        quick = ("--yes", "--settle", "1", "--interval", "0.5", "--timeout", "60")
        draining = asyncio.create_task(check(*quick))
        await asyncio.sleep(1)
        assert not draining.done()
        go_on.set()
        assert (await draining)["safe"]
        assert len(got) == 2
    assert await _perm(cluster) == 4
    await asyncio.to_thread(cluster.run, "drain", "-b", cluster.broker, "--undo")
    assert await _perm(cluster) == 6


async def _perm(cluster: Cluster) -> int:
    route = await asyncio.to_thread(cluster.json, "topicRoute", "-t", "T")
    perm: int = route["queueDatas"][0]["perm"]
    return perm


@pytest.mark.long
def test_controllers_of_rocketmq_are_shown_and_steered(java_bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    controller = ("-a", f"127.0.0.1:{port}")
    names = java_bench.namesrv(
        NEWEST,
        enableControllerInNamesrv=True,
        controllerDLegerGroup="controllers",
        controllerDLegerPeers=f"n0-127.0.0.1:{port}",
        controllerDLegerSelfId="n0",
        controllerStorePath=str(tmp_path / "controller"),
    )
    brokers = [_member(java_bench, names, port, tmp_path / f"member-{n}") for n in (1, 2)]
    cluster = Cluster(names.address, brokers[0].address)

    def group() -> Any:
        words = ["admin", "getSyncStateSet", *controller, "-b", "broker-a", "--json"]
        done = CliRunner().invoke(app, [*words, "-n", names.address])
        return json.loads(done.stdout)[0] if done.exit_code == 0 else {"replicas": []}

    eventually(lambda: sum(each["alive"] for each in group()["replicas"]) == 2, within=60)
    leader = cluster.json("getControllerMetaData", *controller)
    assert leader["controllerLeaderAddress"] == controller[1]
    key = ("-k", "enableElectUncleanMaster", "-v", "true")
    assert "success" in cluster.run("updateControllerConfig", *controller, *key)
    settings = cluster.json("getControllerConfig", *controller)[controller[1]]
    assert settings["enableElectUncleanMaster"] == "true"
    assert len(cluster.json("getBrokerEpoch", "-b", "broker-a")) == 2

    other = 3 - group()["masterBrokerId"]
    elect = ("electMaster", *controller, "-bn", "broker-a", *CLUSTER, "-b", str(other), "--yes")
    assert cluster.json(*elect)["masterBrokerId"] == other
    clean = ("cleanBrokerMetadata", *controller, "-bn", "broker-a", *CLUSTER, "--yes", "-b")
    assert "still alive" in cluster.run(*clean, str(3 - other), code=1)


def _member(bench: Bench, names: Server, controller: int, directory: Path) -> Server:
    return bench.broker(
        NEWEST,
        names.address,
        enableControllerMode=True,
        controllerAddr=f"127.0.0.1:{controller}",
        storePathRootDir=str(directory),
        storePathEpochFile=str(directory / "epoch"),
        haListenPort=free_port(),
    )
