"""The admin commands against a cluster of ours: what they print, do, and how they end."""

import asyncio
import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from bolide.cli.admin.commands import load
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from tests.support.admin_cluster import CLUSTER, NOBODY, Cluster, columns
from tests.support.aio import on_loop, until
from tests.support.brokers import broker_header, leaving_header, plain, topics_body
from tests.support.commands import run

# ---- topics


def test_a_new_topic_has_eight_queues_of_each_kind(cluster: Cluster) -> None:
    printed = cluster.run("updateTopic", *CLUSTER, "-t", "Plain")

    made, config = printed.splitlines()
    assert made == f"create topic to {cluster.broker} success."
    assert config == (
        "TopicConfig [topicName=Plain, readQueueNums=8, writeQueueNums=8, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}]"
    )
    route = cluster.json("topicRoute", "-t", "Plain")
    assert route["queueDatas"][0]["readQueueNums"] == 8


def test_an_ordered_topic_gets_its_order_configuration(cluster: Cluster) -> None:
    switches = ("-o", "true", "-u", "true", "-s", "true")
    printed = cluster.run("updateTopic", *CLUSTER, "-t", "Ordered", "-w", "4", *switches)

    assert "set cluster orderConf. isOrder=true, orderConf=[broker-a:4]" in printed
    assert "topicSysFlag=3, order=true" in printed


def test_an_order_configuration_is_set_shown_and_deleted(cluster: Cluster) -> None:
    order = ("updateOrderConf", "-t", "Steps", "-m")

    put = cluster.run(*order, "put", "-v", "broker-a:4; broker-b:2")
    assert put == "update orderConf success. topic=[Steps], orderConf=[broker-a:4;broker-b:2]\n"
    assert cluster.json(*order, "get")["orderConf"] == "broker-a:4;broker-b:2"
    assert "delete orderConf success. topic=[Steps]" in cluster.run(*order, "delete")
    assert "'Steps' has no order configuration" in cluster.run(*order, "get", code=1)


def test_attributes_are_taken_as_changes_or_refused(cluster: Cluster) -> None:
    words = ("updateTopic", *CLUSTER, "-t", "Typed", "-a")

    assert "attributes={+message.type=FIFO}" in cluster.run(*words, "+message.type=FIFO")
    assert "neither +name=value nor -name" in cluster.run(*words, "message.type=FIFO", code=2)


def test_a_permission_is_changed_once(cluster: Cluster) -> None:
    topic = cluster.topic()
    words = ("updateTopicPerm", "-b", cluster.broker, "-t", topic, "-p", "4")

    assert f"update topic perm from 6 to 4 in {cluster.broker} success." in cluster.run(*words)
    assert "new perm equals to the old one" in cluster.run(*words)
    assert cluster.json("updateTopicPerm", *CLUSTER, "-t", topic, "-p", "6") == [
        {"broker": cluster.broker, "oldPerm": 4, "perm": 6}
    ]


def test_a_static_topic_gets_queues_and_tells_where_its_plans_are(cluster: Cluster) -> None:
    words = ("updateStaticTopic", *CLUSTER, "-t", "Fixed", "-qn")

    old, new, led = cluster.run(*words, "2").splitlines()
    assert led == "broker-a leads the queues [0, 1]"
    assert json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', Path(old.split()[-1]).read_text()))
    plan = Path(new.split()[-1])
    assert plan.name.startswith("Fixed-")
    assert cluster.json(*words, "3")["brokerConfigMap"]["broker-a"]["writeQueueNums"] == 3
    assert "can only get more" in cluster.run(*words, "3", code=1)
    assert "is older than" in cluster.run(*words, "3", "-mf", str(plan), code=1)
    status = columns(cluster.run("topicStatus", "-t", "Fixed").rpartition("\n\n")[0])
    assert [row[:2] for row in status if row[0] == "__syslo__global__"] == [
        ["__syslo__global__", str(number)] for number in range(3)
    ]


def test_the_queues_of_a_static_topic_move_to_known_brokers_only(cluster: Cluster) -> None:
    cluster.run("updateStaticTopic", "-b", "broker-a", "-t", "Moving", "-qn", "2")
    move = ("remappingStaticTopic", "-t", "Moving")

    printed = cluster.run(*move, "-b", "broker-a")
    assert "broker-a leads the queues [0, 1]" in printed
    after = printed.splitlines()[1].split()[-1]
    assert cluster.json(*move, "-mf", after, "-fr", "true")["brokerToMapIn"] == []
    assert "no broker 'broker-z'" in cluster.run(*move, "-b", "broker-z", code=1)
    assert "either -b" in cluster.run(*move, code=2)
    assert "not of Moving" in cluster.run(*move, "-mf", _plan_of_another_topic(cluster), code=2)
    assert "no plan" in cluster.run(*move, "-mf", "/nowhere", code=2)
    assert "not a static topic" in cluster.run(
        "remappingStaticTopic", "-t", cluster.topic(), "-b", "broker-a", code=1
    )


def _plan_of_another_topic(cluster: Cluster) -> str:
    printed = cluster.run("updateStaticTopic", "-b", "broker-a", "-t", "Other", "-qn", "1")
    return printed.splitlines()[1].split()[-1]


def test_a_deleted_topic_is_gone_everywhere(cluster: Cluster) -> None:
    topic = cluster.topic()
    assert topic in cluster.run("topicList").splitlines()

    printed = cluster.run("deleteTopic", *CLUSTER, "-t", topic, "--yes")

    assert f"delete topic [{topic}] from cluster [DefaultCluster] success." in printed
    assert topic not in cluster.json("topicList")
    assert topic in cluster.run("topicRoute", "-t", topic, code=1)


def test_topics_are_listed_with_their_groups(cluster: Cluster) -> None:
    topic = cluster.topic(queues=1)
    cluster.run("updateSubGroup", *CLUSTER, "-g", "readers")
    place = ("-b", cluster.broker, "-q", "0", "-o", "0")
    cluster.run("resetOffsetByTime", "-g", "readers", "-t", topic, "-s", "now", *place, "--yes")

    titles, *rows = columns(cluster.run("topicList", "-c"))

    assert titles == ["#Cluster Name", "#Topic", "#Consumer Group"]
    assert ["DefaultCluster", "TBW102", ""] in rows
    assert ["DefaultCluster", topic, "readers"] in rows


def test_a_route_is_a_table_a_tree_or_one_line(cluster: Cluster) -> None:
    topic = cluster.topic()

    titles, row, total = columns(cluster.run("topicRoute", "-t", topic, "-l"))

    names = ["#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"]
    assert titles == names
    assert row == ["DefaultCluster", "broker-a", f"{{0={cluster.broker}}}", "2", "2", "6"]
    assert total == ["Total:", "1", "", "2", "2", ""]
    tree = json.loads(cluster.run("topicRoute", "-t", topic))
    assert tree == cluster.json("topicRoute", "-t", topic)


def test_the_status_of_a_topic_tells_the_ends_of_its_queues(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, "one", "-b", "broker-a", "-i", "1")

    table, tps = cluster.run("topicStatus", "-t", topic).split("\n\n")
    titles, *rows = columns(table)

    assert titles == ["#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"]
    assert [row[:4] for row in rows] == [["broker-a", "0", "0", "0"], ["broker-a", "1", "0", "1"]]
    assert (rows[0][4], bool(re.fullmatch(r"[\d-]{10} [\d:]{8},\d{3}", rows[1][4]))) == ("", True)
    assert tps.startswith("Topic Put TPS: ")
    first, second = cluster.json("topicStatus", "-t", topic)["queues"]
    assert (first["maxOffset"], second["maxOffset"], second["queueId"]) == (0, 1, 1)


# ---- brokers


def test_brokers_are_listed_with_their_load(cluster: Cluster) -> None:
    titles, row = columns(cluster.run("clusterList"))

    names = ["#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)"]
    names += ["#OutTPS(LOAD)", "#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED"]
    assert titles == names
    assert row[:5] == ["DefaultCluster", "broker-a", "0", cluster.broker, "V5_5_0"]
    assert row[-1] == "true"
    titles, row = columns(cluster.run("clusterList", "-m"))
    assert titles[2:] == ["#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday"]
    (document,) = cluster.json("clusterList")
    assert document["runtime"]["brokerVersionDesc"] == "V5_5_0"


@on_loop
async def test_a_broker_that_is_away_does_not_hide_the_others(cluster: Cluster) -> None:
    ghost = broker_header(NOBODY, name="ghost", cluster="Ghosts")
    async with RemotingClient() as client:
        await client.call(
            cluster.name_server,
            RequestCode.REGISTER_BROKER,
            ghost,
            body=plain(topics_body("Haunted")),
        )
        printed = await asyncio.to_thread(cluster.run, "clusterList", code=3)
        status = await asyncio.to_thread(cluster.run, "brokerStatus", "-c", "Ghosts", code=3)
        topics = await asyncio.to_thread(cluster.run, "topicList", "-c", code=3)
        await client.call(cluster.name_server, RequestCode.UNREGISTER_BROKER, leaving_header(ghost))

    assert "V5_5_0" in printed
    assert re.search(rf"Ghosts +ghost +0 +{NOBODY}", printed)
    assert re.search(r"^Ghosts +Haunted +N/A$", topics, re.MULTILINE)
    assert re.search(r"^DefaultCluster +BenchmarkTest$", topics, re.MULTILINE)
    assert topics.count("cannot connect") == 1
    for text in (printed, status, topics):
        assert f"cannot connect to {NOBODY}" in text


def test_the_figures_of_a_broker_stand_by_name(cluster: Cluster) -> None:
    of_one = cluster.run("brokerStatus", "-b", cluster.broker)
    of_all = cluster.run("brokerStatus", *CLUSTER)

    assert re.search(r"^bootTimestamp +: \d+$", of_one, re.MULTILINE)
    assert re.search(rf"^{cluster.broker} +bootTimestamp +: \d+$", of_all, re.MULTILINE)
    assert of_one.splitlines() == sorted(of_one.splitlines())


def test_a_setting_is_changed_while_the_broker_runs(cluster: Cluster) -> None:
    change = ("updateBrokerConfig", *CLUSTER, "-k", "fileReservedTime", "-v", "71")

    assert cluster.run(*change) == f"update broker config success, {cluster.broker}\n"
    printed = cluster.run("getBrokerConfig", *CLUSTER)
    assert f"============Master: {cluster.broker}============" in printed
    assert re.search(r"^fileReservedTime +=  71$", printed, re.MULTILINE)
    settings = cluster.json("getBrokerConfig", "-b", cluster.broker)[cluster.broker]
    assert settings["fileReservedTime"] == "71"


def test_a_setting_that_cannot_be_is_refused_by_name(cluster: Cluster) -> None:
    words = ("updateBrokerConfig", "-b", cluster.broker, "-k", "fileReservedTime", "-v", "soon")

    printed = cluster.run(*words, code=1)

    assert "fileReservedTime" in printed
    assert f"(asked of {cluster.broker})" in printed


# ---- groups and their consumers


def test_a_group_is_made_and_deleted(cluster: Cluster) -> None:
    words = ("updateSubGroup", *CLUSTER, "-g", "billing", "-r", "3", "-d", "true")

    printed = cluster.run(*words)

    assert f"create subscription group to {cluster.broker} success." in printed
    assert "groupName=billing, consumeEnable=true, consumeFromMinEnable=false, " in printed
    assert "consumeBroadcastEnable=true" in printed
    assert "retryMaxTimes=3, groupRetryPolicy=GroupRetryPolicy{type=CUSTOMIZED, " in printed
    deleted = cluster.run("deleteSubGroup", *CLUSTER, "-g", "billing", "-r", "true", "--yes")
    where = f"from broker [{cluster.broker}] in cluster [DefaultCluster] success."
    assert deleted == f"delete subscription group [billing] {where}\n"


def test_a_group_is_told_to_pop(cluster: Cluster) -> None:
    cluster.run("updateTopic", *CLUSTER, "-t", "Popped")
    words = ("setConsumeMode", "-t", "Popped", "-g", "poppers")

    printed = cluster.run(*words, *CLUSTER, "-m", "POP", "-q", "2")

    assert printed.splitlines() == [
        f"set consume mode to {cluster.broker} success.",
        "topic[Popped] group[poppers] consume mode[POP] popShareQueueNum[2]",
    ]
    told = json.loads(cluster.run(*words, "-b", cluster.broker, "-m", "PULL", "--json"))
    assert (told["brokers"], told["mode"]) == ([cluster.broker], "PULL")
    assert "'PUSH' is not one of 'PULL', 'POP'" in cluster.run(*words, "-m", "PUSH", code=2)
    missing = ("setConsumeMode", *CLUSTER, "-t", "Missing", "-g", "poppers", "-m", "POP")
    assert "Missing" in cluster.run(*missing, code=1)


def test_a_retry_policy_is_json_or_refused(cluster: Cluster) -> None:
    words = ("updateSubGroup", *CLUSTER, "-g", "growing", "--json", "-p")

    made = cluster.run(*words, '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5}}')

    policy = json.loads(made)["groupConfig"]["groupRetryPolicy"]
    assert policy["exponentialRetryPolicy"]["initial"] == 5
    assert "is no retry policy" in cluster.run(*words, "soon", code=2)


@on_loop
async def test_a_running_consumer_and_producer_are_shown(cluster: Cluster) -> None:
    topic = await asyncio.to_thread(cluster.topic, 1)
    got: list[StoredMessage] = []

    def ask(*words: str) -> Any:
        return asyncio.to_thread(cluster.run, *words)

    async with (
        Producer("shop", name_server=cluster.name_server) as producer,
        PushConsumer("shoppers", name_server=cluster.name_server, consume_from="first") as consumer,
    ):
        await consumer.subscribe(topic, "paid", got.append, inline=True)
        await producer.send(Message(topic, b"one", tags="paid"))
        await until(lambda: got)
        progress = await ask("consumerProgress", "-g", "shoppers", "-s", "true")
        everyone = await ask("consumerProgress")
        consumers = await ask("consumerConnection", "-g", "shoppers")
        producers = await ask("producerConnection", "-g", "shop", "-t", topic)
        found = await ask("queryMsgByUniqueKey", "-t", topic, "-i", got[0].message_id)
        client_ids = (consumer.client_id, producer.client_id)

    titles, *rows = columns(progress.split("\n\n")[0])
    names = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    assert titles == [*names, "#Client IP", "#Diff", "#Inflight", "#LastTime"]
    (row,) = (row for row in rows if row[0] == topic)
    assert row[:4] == [topic, "broker-a", "0", "1"]
    assert client_ids[0].startswith(f"{row[5]}@")
    assert "Consume Diff Total: " in progress
    titles, *rows = columns(everyone)
    assert titles == ["#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"]
    (row,) = (row for row in rows if row[0] == "shoppers")
    assert row[1:5] == ["1", "V5_5_0", "PUSH", "CLUSTERING"]
    assert client_ids[0] in consumers
    assert re.search(rf"^{topic} +paid$", consumers, re.MULTILINE)
    assert "ConsumeType: CONSUME_PASSIVELY\nMessageModel: CLUSTERING" in consumers
    assert producers.startswith(f"0001  {client_ids[1]}")
    assert "consumerGroup=shoppers, trackType=" in found


@on_loop
async def test_parked_keys_are_listed_resumed_and_made_dead_letters(cluster: Cluster) -> None:
    topic, group = await asyncio.to_thread(cluster.topic, 1), "parkers"
    poison, got = {"a", "b"}, list[str]()

    async def take(message: StoredMessage) -> None:
        if message.sharding_key in poison:
            raise ValueError("bad")
        got.append(message.body.decode())

    def ask(*words: str) -> Any:
        return asyncio.to_thread(cluster.json, *words)

    assert await ask("listParked", "-g", group) == []
    async with (
        Producer("shop", name_server=cluster.name_server) as producer,
        PushConsumer(
            group, name_server=cluster.name_server, consume_from="first", max_reconsume_times=0
        ) as consumer,
    ):
        for text in ("a1", "b1", "c1", "a2"):
            await producer.send(Message(topic, text.encode(), sharding_key=text[0]))
        await consumer.subscribe(topic, take, ordered=True, order_by="keys", on_poison="park")
        await until(lambda: got == ["c1"])
        while len(await ask("listParked", "-g", group)) < 2:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)
        while (await ask("listParked", "-g", group, "-k", "a"))[0]["messages"] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        table = await asyncio.to_thread(cluster.run, "listParked", "-g", group, "-t", topic)
        poison.clear()
        (resumed,) = await ask("resumeParked", "-g", group, "-k", "a")
        await ask("deadLetterParked", "-g", group, "-t", topic, "-k", "b")
        await until(lambda: got == ["c1", "a1", "a2"])
        while await ask("listParked", "-g", group):  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)

    titles, first, second = columns(table)
    names = ["#Topic", "#Broker Name", "#QID", "#Key", "#Messages", "#Since", "#State", "#Error"]
    assert titles == names
    assert (first[:5], first[6:]) == ([topic, "broker-a", "0", "a", "2"], PARKED)
    assert second[3:5] == ["b", "1"]
    assert (resumed["firstOffset"], resumed["lastOffset"]) == (0, 3)


PARKED = ["parked", "ValueError: bad"]


def test_a_group_nobody_ever_connected_for_is_named(cluster: Cluster) -> None:
    for command in ("consumerProgress", "consumerConnection"):
        assert "group 'nobody'" in cluster.run(command, "-g", "nobody", code=1)
    topic = cluster.topic()
    words = ("producerConnection", "-g", "nobody", "-t", topic)
    assert "no client of group 'nobody'" in cluster.run(*words, code=1)


# ---- positions


def test_a_group_is_moved_to_a_time(cluster: Cluster) -> None:
    topic = cluster.topic(queues=1)
    cluster.send(topic, "one")
    cluster.run("updateSubGroup", *CLUSTER, "-g", "travellers")
    words = ("resetOffsetByTime", "-g", "travellers", "-t", topic, "--yes", "-s")

    first, table = cluster.run(*words, "now").split("\n", 1)

    assert first.startswith("start reset consumer offset by specified, group[travellers], ")
    titles, row = columns(table)
    assert titles == ["#brokerName", "#queueId", "#offset"]
    assert row == ["broker-a", "0", "1"]
    assert cluster.json(*words, "2001-02-03#04:05:06:789") == [
        {"brokerName": "broker-a", "queueId": 0, "offset": 0}
    ]
    assert "time 'soon' is none of now" in cluster.run(*words, "soon", code=2)


def test_a_group_is_moved_in_one_queue(cluster: Cluster) -> None:
    topic = cluster.topic(queues=1)
    cluster.send(topic, "one")
    cluster.run("updateSubGroup", *CLUSTER, "-g", "movers")
    words = (
        "resetOffsetByTime",
        "-g",
        "movers",
        "-t",
        topic,
        "-s",
        "now",
        "-b",
        cluster.broker,
        "-y",
    )

    assert "reset consumer offset to 1\n" in cluster.run(*words, "-q", "0")
    assert cluster.json(*words, "-q", "0", "-o", "0")["offset"] == 0
    assert "give -b and -q" in cluster.run(*words, code=2)


# ---- messages


def test_a_message_that_was_sent_is_found_by_key_and_by_both_ids(cluster: Cluster) -> None:
    topic = cluster.topic()
    sent = cluster.send(topic, "ein Büchlein", "-c", "paid", "-b", "broker-a", "-i", "1")

    titles, row = columns(cluster.run("queryMsgByKey", "-t", topic, "-k", "all"))
    assert titles == ["#Message ID", "#QID", "#Offset"]
    assert row == [sent["messageId"], "1", "0"]
    by_tags = cluster.run("queryMsgByKey", "-t", topic, "-k", "paid", "-p", "T")
    assert columns(by_tags)[1] == row
    for message_id in (sent["messageId"], sent["offsetMessageId"]):
        printed = cluster.run("queryMsgById", "-t", topic, "-i", message_id, "-f", "UTF-8")
        assert re.search(rf"^OffsetID: +{sent['offsetMessageId']}$", printed, re.MULTILINE)
        assert re.search(r"^Tags: +\[paid\]$", printed, re.MULTILINE)
        assert re.search(r"^Message Body: +ein Büchlein$", printed, re.MULTILINE)
        path = re.findall(r"^Message Body Path: +(.*)$", printed, re.MULTILINE)[0]
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            assert file.read() == "ein Büchlein"
    # As in RocketMQ 4.9, an id that has the address of its broker needs no topic.
    assert "Büchlein" in cluster.run("queryMsgById", "-i", sent["offsetMessageId"], "-f", "UTF-8")
    found = cluster.json("queryMsgByUniqueKey", "-t", topic, "-i", sent["messageId"])
    assert (found["bodyText"], found["keys"]) == ("ein Büchlein", ["all"])


def test_a_message_that_is_nowhere_is_named(cluster: Cluster) -> None:
    topic = cluster.topic()
    unknown = "7F0000010C7D18B4AAC2194D5E8C0000"

    assert "by key 'none'" in cluster.run("queryMsgByKey", "-t", topic, "-k", "none", code=1)
    for command in ("queryMsgById", "queryMsgByUniqueKey"):
        assert f"id {unknown}" in cluster.run(command, "-t", topic, "-i", unknown, code=1)
    words = ("queryMsgById", "-t", topic, "-i", unknown, "-f", "klingon")
    assert "'klingon' is no charset" in cluster.run(*words, code=2)


def test_a_stored_message_is_sent_again(cluster: Cluster) -> None:
    topic = cluster.topic(queues=1)
    sent = cluster.send(topic, "again")

    cluster.run("queryMsgById", "-t", topic, "-i", sent["messageId"], "-s", "true")

    assert cluster.json("topicStatus", "-t", topic)["queues"][0]["maxOffset"] == 2


def test_a_message_with_a_key_is_sent_again_though_its_topic_takes_a_key_once(
    cluster: Cluster,
) -> None:
    topic = cluster.topic(queues=1)
    where = ("-b", cluster.broker, "-t", topic, "-r", "1", "-w", "1")
    cluster.run("updateTopic", *where, "-a", "+dedup.window=1h")

    async def send() -> str:
        async with Producer("shop", name_server=cluster.name_server) as producer:
            return (await producer.send(Message(topic, b"once", dedup_key="k"))).offset_message_id

    cluster.run("queryMsgById", "-t", topic, "-i", asyncio.run(send()), "-s", "true")

    assert cluster.json("topicStatus", "-t", topic)["queues"][0]["maxOffset"] == 2


def test_messages_are_printed_from_where_and_as_many_as_asked(cluster: Cluster) -> None:
    topic = cluster.topic(queues=2)
    for number in range(4):
        cluster.send(topic, f"text {number}", "-b", "broker-a", "-i", str(number % 2))

    def texts(*options: str) -> list[str]:
        return re.findall(r"BODY: (.*)", cluster.run("consumeMessage", "-t", topic, *options))

    assert texts() == ["text 0", "text 2", "text 1", "text 3"]
    assert texts("-c", "3") == ["text 0", "text 2", "text 1"]
    assert texts("-b", "broker-a", "-i", "1", "-o", "1") == ["text 3"]
    assert texts("-s", "now") == []
    assert texts("-e", "2001-02-03#04:05:06:789") == []
    lines = cluster.run("consumeMessage", "-t", topic, "--json").splitlines()
    assert [json.loads(line)["queueOffset"] for line in lines] == [0, 1, 0, 1]


def test_queues_that_are_none_are_refused(cluster: Cluster) -> None:
    topic = cluster.topic()
    words = ("consumeMessage", "-t", topic)

    assert "-i needs -b" in cluster.run(*words, "-i", "0", code=2)
    assert "-o needs -i" in cluster.run(*words, "-b", "broker-a", "-o", "0", code=2)
    printed = cluster.run(*words, "-b", "broker-z", "-i", "9", code=1)
    assert "no queue 9 on broker 'broker-z'; it is on broker-a (2 queues)" in printed
    alone = ("sendMessage", "-t", topic, "-p", "x", "-b", "broker-a")
    assert "-b and -i go together" in cluster.run(*alone, code=2)


# ---- how commands end


def test_every_reading_command_speaks_json(cluster: Cluster) -> None:
    topic = cluster.topic()
    for words in (
        ("topicList",),
        ("topicList", "-c"),
        ("topicRoute", "-t", topic),
        ("topicStatus", "-t", topic),
        ("clusterList",),
        ("clusterList", "-m"),
        ("brokerStatus", *CLUSTER),
        ("getBrokerConfig", *CLUSTER),
        ("consumerProgress",),
    ):
        assert cluster.json(*words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["updateTopic", "-t", "X"], "either -b, one broker, or -c, a cluster"),
        (["updateTopic", "-t", "X", "-b", "x:1", "-c", "y"], "either -b, one broker, or -c"),
        (["updateTopic", "-c", "y"], "-t"),
        (["updateTopic", "-t", "X", "-c", "y", "-o", "maybe"], "maybe"),
        (["updateTopic", "-t", "X", "-c", "y", "-r", "0"], "0"),
        (["updateOrderConf", "-t", "X", "-m", "put"], "-m put needs -v"),
        (["updateOrderConf", "-t", "X", "-m", "put", "-v", "a:4;b"], "'b' is not broker:queues"),
        (["resumeParked", "-g", "x"], "either -k, one key, or -a, all of them"),
        (["noSuchCommand"], "noSuchCommand"),
        (["help", "noSuchCommand"], "noSuchCommand"),
    ],
)
def test_wrong_words_end_with_2(words: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, ["admin", *words])

    assert done.exit_code == 2
    assert reason in done.output


@pytest.mark.parametrize("command", [["mqadmin"], ["bolide", "admin"]])
def test_an_unreachable_server_is_one_line_and_ends_with_3(command: list[str]) -> None:
    done = run(*command, "topicList", "-n", NOBODY, NAMESRV_ADDR="")

    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(rf"{command[0]}: cannot connect to {NOBODY}: .*\n", done.stderr)


def test_without_a_name_server_it_says_how_to_name_one() -> None:
    done = run("mqadmin", "topicList", NAMESRV_ADDR="")

    assert (done.returncode, done.stdout) == (2, "")
    assert "set NAMESRV_ADDR=host:port" in done.stderr


def test_name_servers_come_from_the_environment_too(cluster: Cluster) -> None:
    done = run("mqadmin", "topicList", NAMESRV_ADDR=f"{NOBODY};{cluster.name_server}")

    assert (done.returncode, done.stderr) == (0, "")
    assert "TBW102" in done.stdout.splitlines()


def test_an_unknown_cluster_is_named_with_those_there_are(cluster: Cluster) -> None:
    for words in (
        ("updateTopic", "-t", "X"),
        ("updateTopicPerm", "-t", "X", "-p", "6"),
        ("deleteTopic", "-t", "X"),
        ("brokerStatus",),
        ("getBrokerConfig",),
        ("updateBrokerConfig", "-k", "a", "-v", "b"),
        ("updateSubGroup", "-g", "x"),
        ("deleteSubGroup", "-g", "x"),
        ("setConsumeMode", "-t", "X", "-g", "x", "-m", "POP"),
        ("clusterList",),
    ):
        printed = cluster.run(*words, "-c", "Nowhere", code=1)
        assert "no cluster 'Nowhere'; it knows DefaultCluster" in printed


# ---- help


@pytest.mark.parametrize("command", [name for name in load() if name != "help"])
def test_every_command_helps_with_an_example(command: str) -> None:
    asked = CliRunner().invoke(app, ["admin", command, "-h"], env={"COLUMNS": "60"})
    helped = CliRunner().invoke(app, ["admin", "help", command.lower()], env={"COLUMNS": "60"})

    assert (asked.exit_code, helped.exit_code) == (0, 0)
    assert asked.output.strip() == helped.output.strip()
    assert re.search(rf"^ *Example: mqadmin {command} -n 127\.0\.0\.1:9876 \S+", asked.output, re.M)
    assert "--namesrvAddr" in asked.output


def test_help_alone_lists_the_commands() -> None:
    done = CliRunner().invoke(app, ["admin", "help"])

    assert done.exit_code == 0
    assert [n for n in load() if not re.search(rf"^  {n}\s", done.output, re.MULTILINE)] == []


def test_help_and_listings_load_nothing_heavy() -> None:
    """What keeps the start below 300 ms; the long test measures it."""
    for words in (["--help"], ["topicList", "--help"]):
        code = f"import sys; from bolide.cli import mqadmin; sys.argv = {['mqadmin', *words]}\n"
        code += "try:\n    mqadmin()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded = set(done.stderr.split())
        assert "bolide.cli.admin.commands" in loaded
        heavy = {"rich", "yaml", "uvloop", "pyarrow", "prometheus_client", "lark", "bolide.broker"}
        assert not loaded & heavy


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "limit"),
    [(["--help"], 0.3), (["topicList", "--help"], 0.3), (["topicList", "-n", "{}"], 0.5)],
)
def test_commands_start_at_once(cluster: Cluster, words: list[str], limit: float) -> None:
    """Processor time, which other programs on the machine do not add to as they do to a clock."""
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run("mqadmin", *(word.format(cluster.name_server) for word in words))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < limit
