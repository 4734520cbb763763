"""Admin commands about brokers and NameServers, against a cluster of ours."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.model.message import StoredMessage
from bolide.protocol.record import encode_message
from tests.support.admin_cluster import CLUSTER, NOBODY, Cluster, columns
from tests.support.aio import on_loop

# ---- NameServers


def test_the_settings_of_name_servers_are_shown_and_changed(cluster: Cluster) -> None:
    change = cluster.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    shown = cluster.run("getNamesrvConfig")

    assert change.splitlines() == [
        f"update name server config success![{cluster.name_server}]",
        "orderMessageEnable : true",
    ]
    assert shown.startswith(f"============{cluster.name_server}============\n")
    assert re.search(r"^orderMessageEnable {32}=  true$", shown, re.MULTILINE)
    settings = cluster.json("getNamesrvConfig")[cluster.name_server]
    assert settings["orderMessageEnable"] == "true"
    refused = cluster.run("updateNamesrvConfig", "-k", "listenPort", "-v", "1", code=1)
    assert "listenPort" in refused


def test_a_name_server_that_is_away_does_not_hide_the_other(cluster: Cluster) -> None:
    words = ["admin", "getNamesrvConfig", "-n", f"{NOBODY};{cluster.name_server}"]

    done = CliRunner().invoke(app, words)

    assert done.exit_code == 3
    assert f"============{cluster.name_server}============" in done.stdout
    assert f"cannot connect to {NOBODY}" in done.stderr


def test_values_of_the_key_value_configuration_come_and_go(cluster: Cluster) -> None:
    entry = ("-s", "SHOP", "-k", "currency")

    put = cluster.run("updateKvConfig", *entry, "-v", "EUR")
    deleted = cluster.run("deleteKvConfig", *entry)

    assert put == "create or update kv config to namespace success.\n"
    assert deleted == "delete kv config from namespace success.\n"
    assert cluster.run("deleteKvConfig", *entry) == deleted


def test_producers_leave_a_broker_and_return_while_consumers_read_on(cluster: Cluster) -> None:
    topic = cluster.topic()

    def perm() -> int:
        found: int = cluster.json("topicRoute", "-t", topic)["queueDatas"][0]["perm"]
        return found

    wiped = cluster.run("wipeWritePerm", "-b", "broker-a")
    assert re.fullmatch(
        rf"wipe write perm of broker\[broker-a\] in name server\[{cluster.name_server}\] OK, \d+\n",
        wiped,
    )
    assert perm() == 4
    document = cluster.json("addWritePerm", "-b", "broker-a")
    assert document["changed"][0]["nameServer"] == cluster.name_server
    assert perm() == 6
    unknown = cluster.run("wipeWritePerm", "-b", "broker-z", code=1)
    assert "no broker 'broker-z'; it knows broker-a" in unknown


# ---- topics


def test_topics_of_a_file_are_created(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_text(
        json.dumps(
            [
                {"topicName": "Listed-1", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6},
                {"topicName": "Listed-2", "attributes": {"+message.type": "FIFO"}},
            ]
        )
    )

    printed = cluster.run("updateTopicList", *CLUSTER, "-f", str(file))

    done = f"submit batch of topic config to {cluster.broker} success"
    assert printed == f"{done}, please check the result later.\n"
    route = cluster.json("topicRoute", "-t", "Listed-1")
    assert route["queueDatas"][0]["readQueueNums"] == 3
    assert cluster.run("topicClusterList", "-t", "Listed-2") == "DefaultCluster\n"
    for text, reason in (("{}", "no JSON list"), ("[]", "names no topic"), ("[{}]", "topicName")):
        file.write_text(text)
        assert reason in cluster.run("updateTopicList", *CLUSTER, "-f", str(file), code=2)
    assert "Missing" in cluster.run("topicClusterList", "-t", "Missing", code=1)


# ---- upkeep


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "deleteExpiredCommitLog"])
def test_files_that_are_expired_are_deleted_at_brokers(cluster: Cluster, command: str) -> None:
    assert cluster.run(command) == "success\n"
    assert cluster.run(command, *CLUSTER) == "success\n"
    documents = cluster.json(command, "-b", cluster.broker)
    assert documents == [{"broker": cluster.broker, "success": True}]
    assert NOBODY in cluster.run(command, "-b", NOBODY, code=3)


def test_queues_of_unused_topics_are_deleted_once_confirmed(cluster: Cluster) -> None:
    asked = cluster.run("cleanUnusedTopic", "-b", cluster.broker, code=1)
    shown = cluster.run("cleanUnusedTopic", *CLUSTER, "--dry-run")

    assert f"Delete the queues of all topics but these at {cluster.broker}?" in asked
    assert "nothing was changed" in asked
    assert re.search(rf"{cluster.broker} +\d+ +queues of all other topics", shown)
    assert cluster.run("cleanUnusedTopic", "--yes") == "success\n"


def test_what_groups_read_from_the_disk_is_limited(cluster: Cluster) -> None:
    broker = ("-b", cluster.broker)
    limit = ("updateColdDataFlowCtrGroupConfig", *CLUSTER, "-g", "scanners", "-v")

    printed = cluster.run(*limit, "8388608")
    shown = cluster.run("getColdDataFlowCtrInfo", *CLUSTER)
    removed = cluster.run("removeColdDataFlowCtrGroupConfig", *broker, "-g", "scanners")

    assert printed == f"updateColdDataFlowCtrGroupConfig success, {cluster.broker}\n"
    title, *lines = shown.splitlines()
    assert title == f" ============Master: {cluster.broker}============"
    assert json.loads("".join(lines))["configTable"] == {"scanners": 8388608}
    assert removed == f"remove broker cold read threshold success, {cluster.broker}\n"
    info = cluster.json("getColdDataFlowCtrInfo", *broker)[cluster.broker]
    assert info["configTable"] == {}
    assert "-1" in cluster.run(*limit, "-1", code=2)


def test_reading_ahead_is_set_by_mode(cluster: Cluster) -> None:
    words = ("setCommitLogReadAheadMode", "-b", cluster.broker, "-m")

    printed = cluster.run(*words, "1")

    assert f"============{cluster.broker}============" in printed
    assert "success, mode: 1" in printed
    assert cluster.json(*words, "0") == [{"broker": cluster.broker, "mode": "0"}]
    assert "'2' is not one of '0', '1'" in cluster.run(*words, "2", code=2)


def test_timers_are_kept_in_files_only(cluster: Cluster) -> None:
    words = ("switchTimerEngine", *CLUSTER, "-e")

    printed = cluster.run(*words, "F")

    assert printed == f"switchTimerEngine to FILE_TIME_WHEEL success, {cluster.broker}\n"
    assert "this broker has the engine F only" in cluster.run(*words, "R", code=1)


def test_what_only_rocketmq_has_is_not_applicable(cluster: Cluster) -> None:
    for words, reason in (
        (("addBroker", "-c", cluster.broker, "-b", "/a.conf"), "is no broker container"),
        (("removeBroker", "-c", cluster.broker, "-b", "c:b:0"), "is no broker container"),
    ):
        printed = cluster.run(*words, code=4)
        assert re.search(rf"not applicable, because .*{reason}", printed)
    words = ("removeBroker", "-c", cluster.broker, "-b", "c:b")
    assert "is not clusterName:brokerName:brokerId" in cluster.run(*words, code=2)


def test_a_flush_offset_is_reset(cluster: Cluster) -> None:
    words = ("resetMasterFlushOffset", "-b", cluster.broker, "-o", "0")

    printed = cluster.run(*words)

    assert printed == "reset master flush offset to 0 success\n"


# ---- statistics


def test_the_progress_of_all_groups_of_a_broker_is_shown_by_queue(cluster: Cluster) -> None:
    topic = _consumed_topic(cluster, "readers-1")

    printed = cluster.run("brokerConsumeStats", "-b", cluster.broker)
    table, total = printed.rsplit("\n\n", 1)
    titles, *rows = columns(table)

    offsets = ["#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"]
    assert titles == ["#Topic", "#Group", "#Broker Name", "#QID", *offsets]
    (row,) = (row for row in rows if row[0] == topic)
    assert row[1:7] == ["readers-1", "broker-a", "0", "3", "1", "2"]
    assert re.fullmatch(r"[\d-]{10} [\d:]{8}", row[7])
    document = cluster.json("brokerConsumeStats", "-b", cluster.broker, "-l", "2")
    assert total == f"Diff Total: {document['totalDiff']}\n"
    assert [row["diff"] for row in document["queues"] if row["topic"] == topic] == [2]
    nothing = cluster.json("brokerConsumeStats", "-b", cluster.broker, "-o", "true")
    assert topic not in {row["topic"] for row in nothing["queues"]}
    assert "cannot connect" in cluster.run("brokerConsumeStats", "-b", NOBODY, code=3)


def test_topics_are_shown_with_what_comes_in_and_goes_to_groups(cluster: Cluster) -> None:
    topic, lonely = _consumed_topic(cluster, "readers-2"), cluster.topic()

    titles, *rows = columns(cluster.run("statsAll"))

    counts = ["#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour"]
    assert titles == ["#Topic", "#Consumer Group", *counts]
    (row,) = (row for row in rows if row[0] == topic)
    assert row[1:3] == ["readers-2", "2"]
    assert [lonely, "", "0", "0.00", "", "0", "NO_CONSUMER"] in rows
    assert cluster.json("statsAll", "-t", topic)[0]["accumulation"] == 2
    assert lonely not in cluster.run("statsAll", "-a")
    assert "Missing" in cluster.run("statsAll", "-t", "Missing", code=1)


def _consumed_topic(cluster: Cluster, group: str) -> str:
    """A topic with three messages, of which the group has consumed one."""
    topic = cluster.topic(queues=1)
    cluster.run("updateSubGroup", *CLUSTER, "-g", group)
    for text in "abc":
        cluster.run("sendMessage", "-t", topic, "-p", text)
    place = ("-b", cluster.broker, "-q", "0", "-o", "1")
    cluster.run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "now", *place, "--yes")
    return topic


@on_loop
async def test_a_round_of_the_monitor_reports_backlogs(cluster: Cluster) -> None:
    group, hold = "watched", asyncio.Event()
    topic = await asyncio.to_thread(_consumed_topic, cluster, group)

    async def take(message: StoredMessage) -> None:
        await hold.wait()

    async with PushConsumer(group, name_server=cluster.name_server) as consumer:
        await consumer.subscribe(topic, take)
        words = ("startMonitoring", "--rounds", "1")
        printed = await asyncio.to_thread(cluster.run, *words)
        reports = await asyncio.to_thread(cluster.json, *words)
        hold.set()

    undone = rf"UndoneMsgs \[consumerGroup={group}, topic={topic}, undoneMsgsTotal=2, "
    assert re.search(rf"^\[MONITOR\] reportUndoneMsgs: {undone}", printed, re.MULTILINE)
    assert printed.startswith("[MONITOR] ====")
    assert printed.endswith("endRound\n")
    (report,) = (each for each in reports if each["consumerGroup"] == group)
    assert (report["subscriptionDifferent"], report["stuck"]) == (False, [])


def test_sends_to_brokers_are_measured(cluster: Cluster) -> None:
    status = cluster.run("sendMsgStatus", "-b", "broker-a", "-c", "3")
    rates = cluster.run("clusterRT", "-a", "5", "--rounds", "1")
    log = cluster.run("clusterRT", "-a", "2", "-c", "DefaultCluster", "-p", "true", "--rounds", "1")

    result = r"SendResult \[sendStatus=SEND_OK, msgId=\w+, offsetMsgId=\w+, "
    assert len(re.findall(rf"^rt=\d+ms, SendResult={result}", status, re.MULTILINE)) == 3
    titles, row = columns(rates)
    assert titles == ["#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"]
    assert (row[:2], row[3:]) == (["DefaultCluster", "broker-a"], ["5", "0"])
    assert re.fullmatch(r"[\d-]{10} [\d:]{8}\|noname\|DefaultCluster\|broker-a\|\d+\n", log)
    assert "Nowhere" in cluster.run("clusterRT", "-c", "Nowhere", code=1)
    assert "0" in cluster.run("sendMsgStatus", "-b", "broker-a", "-c", "0", code=2)


# ---- exports and files


def test_a_cluster_is_exported_to_files(cluster: Cluster, tmp_path: Path) -> None:
    topic, target = cluster.topic(queues=3), ("-f", str(tmp_path / "out"))
    cluster.run("updateSubGroup", *CLUSTER, "-g", "exported")

    printed = cluster.run("exportMetadata", *CLUSTER, *target)

    path = tmp_path / "out" / "metadata.json"
    assert printed == f"export {path} success\n"
    metadata = json.loads(path.read_text())
    assert metadata["topicConfigTable"][topic]["readQueueNums"] == 3
    assert "exported" in metadata["subscriptionGroupTable"]
    assert not {"TBW102", "broker-a", "TOOLS_CONSUMER"} & {
        *metadata["topicConfigTable"],
        *metadata["subscriptionGroupTable"],
    }
    only_topics = cluster.json("exportMetadata", "-b", cluster.broker, "-t", *target)
    assert set(json.loads(Path(only_topics["file"]).read_text())) == {
        "topicConfigTable",
        "exportTime",
    }
    both = ("exportMetadata", *CLUSTER, "-t", "-g", *target)
    assert "give -t, only topics, or -g" in cluster.run(*both, code=2)

    cluster.run("exportConfigs", *CLUSTER, *target)
    configs = json.loads((tmp_path / "out" / "configs.json").read_text())
    assert configs["clusterScale"] == {
        "namesrvSize": 1,
        "masterBrokerSize": 1,
        "slaveBrokerSize": 0,
    }
    assert configs["brokerConfigs"]["broker-a"]["brokerName"] == "broker-a"
    cluster.run("exportMetrics", *CLUSTER, *target)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    quota = metrics["evaluateReport"]["broker-a"]["runtimeQuota"]
    assert quota["topicSize"] == len(metadata["topicConfigTable"])
    assert set(metrics["totalData"]["totalTps"]) >= {"totalNormalInTps", "totalScheduleInTps"}

    (tmp_path / "file").touch()
    blocked = ("exportConfigs", *CLUSTER, "-f", str(tmp_path / "file" / "x"))
    assert "Not a directory" in cluster.run(*blocked, code=2)
    assert "Nowhere" in cluster.run("exportMetrics", "-c", "Nowhere", *target, code=1)


def test_pop_records_are_exported_from_brokers(cluster: Cluster) -> None:
    place = f"brokerName=broker-a, brokerAddr={cluster.broker}"

    dry = cluster.run("exportPopRecord", *CLUSTER, "-d", "true")
    done = cluster.run("exportPopRecord", "-b", cluster.broker)

    assert dry == f"Export broker records, {place}, dryRun=true\n"
    assert done == f"Export broker records, {place}, dryRun=false\n"


def test_a_file_of_a_compaction_log_is_printed(cluster: Cluster, tmp_path: Path) -> None:
    stored = StoredMessage("Prices", b"7", {"KEYS": "x"}, queue_id=2, queue_offset=5)
    record = encode_message(stored)
    file = tmp_path / "00000000000000000000"
    file.write_bytes(record + bytes(100))

    lines = cluster.run("dumpCompactionLog", "-f", str(file)).splitlines()

    assert len(lines) == 1
    assert lines[0].startswith(f"MessageExt [brokerName=, queueId=2, storeSize={len(record)}, ")
    assert cluster.json("dumpCompactionLog", "-f", str(file))["keys"] == ["x"]
    file.write_bytes(record + b"something else")
    assert str(file) in cluster.run("dumpCompactionLog", "-f", str(file), code=1)
    assert "does not exist" in cluster.run("dumpCompactionLog", "-f", "/nowhere", code=2)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("checkRocksdbCqWriteProgress -c C -cf 0 -t T", "not in RocksDB"),
        ("rocksDBConfigToJson -b B -c C -e /e -j true -p /p -t topics", "not in RocksDB"),
        ("exportMetadataInRocksDB -j true -p /p -t topics", "not in RocksDB"),
        ("getBrokerLiteInfo -b B -c C -d", "no light topics"),
        ("getParentTopicInfo -p P", "no light topics"),
        ("getLiteTopicInfo -l L -p P -s", "no light topics"),
        ("getLiteClientInfo -c C -g G -p P -s", "no light topics"),
        ("getLiteGroupInfo -g G -k 3 -l L -p P", "no light topics"),
        ("triggerLiteDispatch -b B -c C -g G -p P", "no light topics"),
    ],
)
def test_what_bolide_does_not_have_is_not_applicable(words: str, reason: str) -> None:
    done = CliRunner().invoke(app, ["admin", *words.split()])

    assert done.exit_code == 4
    assert re.search(rf"not applicable, because .*{reason}", done.stderr)
