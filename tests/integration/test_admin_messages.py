"""Admin commands that read queues, move offsets, ask members and send dead letters again."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from tests.support.admin_cluster import CLUSTER, NOBODY, Cluster, columns
from tests.support.aio import on_loop, until
from tests.support.brokers import broker_header, leaving_header, plain, topics_body


async def ask(found: Cluster, *words: str, code: int = 0) -> str:
    return await asyncio.to_thread(found.run, *words, code=code)


async def fill(found: Cluster, topic: str, count: int, tags: str = "") -> None:
    """Store messages in queue 0, that are found by the key `k`."""
    async with Producer("shop", name_server=found.name_server) as producer:
        queue = (await producer.fetch_publish_queues(topic))[0]
        for number in range(count):
            message = Message(topic, b"text %d" % number, tags=tags, keys="k")
            await producer.send(message, queue=queue)


# ---- queues


@on_loop
async def test_messages_of_queues_are_printed_as_java_does(cluster: Cluster) -> None:
    topic = await asyncio.to_thread(cluster.topic, 2)
    await fill(cluster, topic, 2, "red")
    await fill(cluster, topic, 1, "blue")

    def bodies(printed: str) -> list[str]:
        return re.findall(r"BODY: (.*)", printed)

    every = await ask(cluster, "printMsg", "-t", topic)
    assert bodies(every) == ["text 0", "text 1", "text 0"]
    queue = f"MessageQueue [topic={topic}, brokerName=broker-a, queueId=0]"
    assert every.splitlines()[0] == f"minOffset=0, maxOffset=3, {queue}"
    assert every.splitlines()[4] == "-" * 56
    plain_text = await ask(cluster, "printMsg", "-t", topic, "-d", "false", "-s", "blue || green")
    assert bodies(plain_text) == ["NOT PRINT BODY"]
    none = await ask(cluster, "printMsg", "-t", topic, "-s", "green")
    assert f"{queue} no matched msg. status=NO_MATCHED_MSG, offset=3" in none
    past = await ask(cluster, "printMsg", "-t", topic, "-e", "2001-02-03#04:05:06:789")
    assert bodies(past) == []

    one = ("printMsgByQueue", "-t", topic, "-a", "broker-a", "-i", "0")
    counted = await ask(cluster, *one, "-f", "true")
    assert counted.split() == ["Tag:", "red", "Count:", "2", "Tag:", "blue", "Count:", "1"]
    assert bodies(await ask(cluster, *one, "-p", "true", "-d", "true", "-b", "0"))[2] == "text 0"
    assert "give -p true, -f true" in await ask(cluster, *one)
    tags = json.loads(await ask(cluster, *one, "--json"))
    assert tags == [{"tag": "red", "count": 2}, {"tag": "blue", "count": 1}]

    shown = await ask(cluster, "queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "0",
                      "-o", "1", "-f", "UTF-8")  # fmt: skip
    assert re.search(r"^Message Body: +text 1$", shown, re.MULTILINE)
    entries = ("queryCq", "-t", topic, "-q", "0", "-i", "1", "-c", "1")
    shown = await ask(cluster, *entries)
    assert "Queue data: \nmax: 3, min: 0\n" in shown
    assert "idx: 1\nConsumeQueueData{physicOffset=" in shown
    assert "cut after 1 of 2 entries; -i 2 goes on" in shown


@on_loop
async def test_a_listing_that_was_cut_says_how_to_go_on(cluster: Cluster) -> None:
    topic = await asyncio.to_thread(cluster.topic, 2)
    await fill(cluster, topic, 3)

    consumed = await ask(cluster, "consumeMessage", "-t", topic, "-c", "2")
    place = "-b broker-a -i 0 -o 2"
    cut = f"cut after 2 of 3 messages in 2 queues; -c 4 shows more, {place} goes on in that queue"
    assert consumed.splitlines()[-1] == cut
    rest = await ask(cluster, "consumeMessage", "-t", topic, *place.split())
    assert re.findall(r"BODY: (.*)", rest) == ["text 2"]
    await until_indexed(cluster, topic, 3)
    found = await ask(cluster, "queryMsgByKey", "-t", topic, "-k", "k", "-m", "2")
    assert "cut after 2 from broker-a, which may have more; -m 4 shows more" in found
    by_time = ("-b", "2001-02-03#04:05:06:789", "-e", "now")
    found = await ask(cluster, "queryMsgByKey", "-t", topic, "-k", "k", *by_time)
    assert "cut" not in found


async def until_indexed(found: Cluster, topic: str, count: int) -> None:
    words = ("queryMsgByKey", "-t", topic, "-k", "k", "--json")
    while len(json.loads(await ask(found, *words))) < count:  # noqa: ASYNC110  nobody tells
        await asyncio.sleep(0.01)


@on_loop
async def test_what_the_other_brokers_have_is_shown(cluster: Cluster) -> None:
    topic = await asyncio.to_thread(cluster.topic, 1)
    await fill(cluster, topic, 1)
    await until_indexed(cluster, topic, 1)
    await ask(cluster, "updateSubGroup", *CLUSTER, "-g", "halved")
    await ask(cluster, "resetOffsetByTime", "-g", "halved", "-t", topic, "-s", "now", "--yes")
    ghost = broker_header(NOBODY, name="ghost", cluster="Ghosts")
    async with RemotingClient() as client:
        body = plain(topics_body(topic))
        await client.call(cluster.name_server, RequestCode.REGISTER_BROKER, ghost, body=body)
        printed = await ask(cluster, "printMsg", "-t", topic, code=3)
        consumed = await ask(cluster, "consumeMessage", "-t", topic, code=3)
        found = await ask(cluster, "queryMsgByKey", "-t", topic, "-k", "k", code=3)
        unknown = await ask(cluster, "queryMsgByKey", "-t", topic, "-k", "none", code=3)
        status = await ask(cluster, "topicStatus", "-t", topic, code=3)
        progress = await ask(cluster, "consumerProgress", "-g", "halved", "-t", topic, code=3)
        reset = ("resetOffsetByTime", "-g", "halved", "-t", topic, "-s", "0", "--dry-run")
        planned = await ask(cluster, *reset, code=3)
        await client.call(cluster.name_server, RequestCode.UNREGISTER_BROKER, leaving_header(ghost))

    assert "BODY: text 0\n" in printed
    assert "BODY: text 0\n" in consumed
    assert re.search(r"^[0-9A-F]{32} +0 +0$", found, re.MULTILINE)
    assert re.search(r"^broker-a +0 +0 +1 ", status, re.MULTILINE)
    assert re.search(rf"^{topic} +broker-a +0 +1 +1 +0 ", progress, re.MULTILINE)
    for text in (printed, consumed, found, unknown, status, progress, planned):
        assert text.count(f"cannot connect to {NOBODY}") == 1


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["printMsg", "-t", "Nowhere"], 1, "Nowhere"),
        (["printMsg", "-t", "TBW102", "-c", "klingon"], 2, "-c 'klingon' is no charset"),
        (["printMsg", "-t", "TBW102", "-s", "||"], 2, "'||' names no tag"),
        (["printMsgByQueue", "-t", "TBW102", "-a", "x", "-i", "0", "-f", "true"], 1, "no queue 0"),
        (["queryMsgByOffset", "-t", "TBW102", "-b", "x", "-i", "0", "-o", "1"], 1, "broker 'x'"),
        (["queryMsgByKey", "-t", "TBW102", "-k", "x", "-b", "soon"], 2, "time 'soon'"),
        (["queryCq", "-t", "TBW102", "-q", "0", "-i", "0", "-b", NOBODY], 3, "cannot connect"),
        (["producer", "-b", NOBODY], 3, "cannot connect"),
        (["allocateMQ", "-t", "TBW102", "-i", ","], 2, "-i names no address"),
        (["getConsumerConfig", "-g", "nobody"], 1, "no broker has group 'nobody'"),
        (["updateSubGroupList", *CLUSTER, "-f", "/nowhere"], 2, "/nowhere"),
        (["consumerStatus", "-g", "nobody"], 1, "group 'nobody'"),
        (["cloneGroupOffset", "-s", "a", "-d", "b", "-t", "TBW102"], 1, "'a' has no offsets"),
        (["skipAccumulatedMessage", "-g", "nobody", "-t", "Nowhere"], 1, "Nowhere"),
        (["listDeadLetters", "-k", "x"], 2, "need -g"),
        (["listDeadLetters", "-g", "nobody"], 1, "'nobody' ever became a dead letter"),
        (["redriveDeadLetters", "-g", "x", "--to", "y", "--to-group"], 2, "exclude each other"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    cluster: Cluster, words: list[str], code: int, reason: str
) -> None:
    assert reason in re.sub(r"\s*\n[│ ]*", " ", cluster.run(*words, code=code))


# ---- groups and their members


def test_groups_are_made_from_a_file_and_shown(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    file.write_text('[{"groupName": "listed-1"}, {"groupName": "listed-2", "retryMaxTimes": 3}]')

    printed = cluster.run("updateSubGroupList", *CLUSTER, "-f", str(file))

    batch = f"submit batch of subscription group config to {cluster.broker} success"
    assert printed == f"{batch}, please check the result later.\n"
    shown = cluster.run("getConsumerConfig", "-g", "listed-2")
    assert shown.splitlines()[0] == f"{'=' * 29}DefaultCluster:broker-a{'=' * 29}"
    assert re.search(r"^retryMaxTimes +=  3$", shown, re.MULTILINE)
    assert cluster.json("getConsumerConfig", "-g", "listed-1")[0]["brokerName"] == "broker-a"
    file.write_text("[7]")
    words = ("updateSubGroupList", *CLUSTER, "-f", str(file))
    assert "no list of group" in cluster.run(*words, code=2)


@on_loop
async def test_members_say_what_they_do_and_whether_they_subscribe_alike(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = await asyncio.to_thread(cluster.topic, 2), "reporters"
    monkeypatch.chdir(tmp_path)

    def member(name: str) -> PushConsumer:
        return PushConsumer(group, name_server=cluster.name_server, instance_name=name)

    async with member("one") as one, member("two") as two:
        await one.subscribe(topic, lambda _: None)
        await two.subscribe(topic, lambda _: None)
        await until(lambda: bool(one.assigned_queues and two.assigned_queues))
        same = await ask(cluster, "consumerStatus", "-g", group, "-s")
        single = await ask(cluster, "consumerStatus", "-g", group, "-i", one.client_id)
        await two.subscribe(topic, "red", lambda _: None)
        different = await ask(cluster, "consumerStatus", "-g", group)
        document = json.loads(await ask(cluster, "consumerStatus", "-g", group, "--json"))
        producers = await ask(cluster, "producer", "-b", cluster.broker)

    titles, first, *_ = same.splitlines()
    assert titles.split() == ["#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"]
    assert "\n\n\nSame subscription in the same group of consumer\n\nRebalance OK\n" in same
    assert first.split()[:2] == ["1", one.client_id]
    written = Path(first.split()[3]).read_text()
    parts = re.findall(r"^#[A-Z][^#]*#$", written, re.MULTILINE)
    assert parts[0] == "#Consumer Properties#"
    assert parts[-1] == "#Consumer jstack#"
    assert "thread MainThread\n" in written
    assert re.search(rf"^{topic} +broker-a +\d +ProcessQueueInfo \[commitOffset=0, ", single, re.M)
    assert "jstack" not in single
    assert "WARN: Different subscription in the same group of consumer!!!" in different
    assert f"{topic} {two.client_id}: TAG red" in different
    assert document["differences"][topic][one.client_id] == "TAG *"
    assert producers == ""


def test_queues_are_divided_and_sends_are_timed(cluster: Cluster) -> None:
    topic = cluster.topic(3)

    shares = json.loads(cluster.run("allocateMQ", "-t", topic, "-i", "a,b"))["result"]
    assert [queue["queueId"] for queue in shares["a"]] == [0, 1]
    assert shares["b"] == [{"brokerName": "broker-a", "queueId": 2, "topic": topic}]
    titles, *rows, average = cluster.run("checkMsgSendRT", "-t", topic, "-a", "4").splitlines()
    assert titles.split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#RT"]
    assert [row.split()[:3] for row in rows] == [
        ["broker-a", str(number % 3), "true"] for number in range(4)
    ]
    assert re.fullmatch(r"Avg RT: \d+\.\d\d", average)


# ---- what is dangerous


@on_loop
async def test_what_offsets_will_do_is_shown_first_and_then_done(cluster: Cluster) -> None:
    topic, group = await asyncio.to_thread(cluster.topic, 1), "movable"
    await fill(cluster, topic, 3)
    for name in (group, "follower"):
        await ask(cluster, "updateSubGroup", *CLUSTER, "-g", name)
    reset = ("resetOffsetByTime", "-g", group, "-t", topic)

    async def plan(*words: str) -> list[int | None]:
        """The last is None where the group has no offset: it begins where its members say."""
        (move,) = json.loads(await ask(cluster, *words, "--dry-run", "--json"))
        return [move[name] for name in ("before", "after", "deliveredAgain", "skipped")]

    assert await plan(*reset, "-s", "now") == [None, 3, 0, None]
    refused = await ask(cluster, *reset, "-s", "now", code=1)
    assert f"Reset group {group} in topic {topic}? [y/N]" in refused
    assert "nothing was changed" in refused
    assert await plan(*reset, "-s", "now") == [None, 3, 0, None]
    await ask(cluster, *reset, "-s", "now", "--yes")
    assert await plan(*reset, "-s", "0") == [3, 0, 3, 0]
    one_queue = ("-q", "0", "-b", cluster.broker, "-o", "1")
    assert await plan(*reset, "-s", "0", *one_queue) == [3, 1, 2, 0]
    for how in ("--dry-run", "--yes"):
        far = await ask(cluster, *reset, "-s", "0", *one_queue[:5], "999", how, code=1)
        assert "offset 999 is not in the queue, which is from 0 to 3" in far
        other = await ask(cluster, *reset, "-s", "0", "-q", "99", *one_queue[2:], how, code=1)
        assert f"has no queue 99 of topic '{topic}'; it has 0" in other
    await ask(cluster, *reset, "-s", "0", *one_queue, "--yes")
    assert await plan(*reset, "-s", "now", "-f", "false") == [1, 1, 0, 0]
    await ask(cluster, *reset, "-s", "now", "-f", "false", "--yes")
    assert await plan(*reset, "-s", "now") == [1, 3, 0, 2]

    clone = ("cloneGroupOffset", "-s", group, "-d", "follower", "-t", topic)
    assert await plan(*clone) == [None, 1, 0, None]
    shown = await ask(cluster, *clone, "--dry-run")
    assert re.search(r"^Total: +0 +up to 1$", shown, re.MULTILINE)
    for words in (
        (*reset[:2], "nogroup", *reset[3:], "-s", "now"),
        (*clone[:4], "nogroup", *clone[5:]),
    ):
        assert "no group 'nogroup'" in await ask(cluster, *words, "--dry-run", code=1)
    cloned = f"srcGroup[{group}], destGroup=[follower], topic[{topic}]"
    assert await ask(cluster, *clone, "--yes") == f"clone group offset success. {cloned}\n"
    skip = ("skipAccumulatedMessage", "-g", "follower", "-t", topic)
    assert await plan(*skip) == [1, 3, 0, 2]
    titles, row = columns(await ask(cluster, *skip, "--yes"))
    assert (titles, row) == (["#brokerName", "#queueId", "#offset"], ["broker-a", "0", "3"])
    assert await plan(*skip) == [3, 3, 0, 0]


@on_loop
async def test_what_a_deletion_destroys_is_shown_first(cluster: Cluster) -> None:
    topic, group = await asyncio.to_thread(cluster.topic, 1), "losers"
    await fill(cluster, topic, 3)
    got: list[bytes] = []

    async with PushConsumer(
        group, name_server=cluster.name_server, consume_from="first"
    ) as consumer:
        await consumer.subscribe(topic, lambda message: got.append(message.body))
        await until(lambda: len(got) == 3)
        await consumer.commit()
        await fill(cluster, topic, 0)
        delete = ("deleteTopic", *CLUSTER, "-t", topic)
        shown = await ask(cluster, *delete, "--dry-run")
        facts = json.loads(await ask(cluster, *delete, "--dry-run", "--json"))
        of_group = ("deleteSubGroup", *CLUSTER, "-g", group)
        group_facts = json.loads(await ask(cluster, *of_group, "--dry-run", "--json"))
        kept = await ask(cluster, *delete, code=1)

    assert re.match(r"3 messages in 1 queues are lost, last write \d{4}-", shown)
    assert (facts["messages"], facts["groups"]) == (
        3,
        [{"group": group, "members": 1, "backlog": 0}],
    )
    assert (group_facts["members"], group_facts["brokers"]) == (1, [cluster.broker])
    assert {"topic": topic, "backlog": 0} in group_facts["topics"]
    assert f"Delete topic {topic} from cluster DefaultCluster? [y/N]" in kept
    assert topic in (await ask(cluster, "topicList")).splitlines()
    for how in ("--dry-run", "--yes"):
        unknown = await ask(cluster, "deleteTopic", *CLUSTER, "-t", "Unknown-1", how, code=1)
        assert unknown.endswith(": no broker of cluster DefaultCluster has topic Unknown-1\n")
    delete_group = ("deleteSubGroup", *CLUSTER, "-g", "unknown-1")
    assert "unknown-1, on no broker" in await ask(cluster, *delete_group, "--dry-run")
    assert "no broker had group unknown-1\n" in await ask(cluster, *delete_group, "--yes")


# ---- dead letters


@asynccontextmanager
async def despair(found: Cluster, topic: str, group: str) -> AsyncIterator[list[StoredMessage]]:
    """Make three dead letters; yields what the consumer of their group gets from then on."""
    got: list[StoredMessage] = []
    fails = True

    async def take(message: StoredMessage) -> None:
        if fails:
            raise ValueError("bad")
        got.append(message)

    name_server = found.name_server
    async with (
        Producer("shop", name_server=name_server) as producer,
        PushConsumer(
            group, name_server=name_server, consume_from="first", max_reconsume_times=0
        ) as consumer,
    ):
        await consumer.subscribe(topic, take)
        for number in range(3):
            error = {"ERROR": "no stock"}
            message = Message(topic, b"%d" % number, keys=f"k{number}", properties=error)
            await producer.send(message)
            while (await counts(found)).get(group) != number + 1:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.01)
        fails = False
        yield got


@on_loop
async def test_dead_letters_are_sent_again_once(cluster: Cluster) -> None:
    topic, group = await asyncio.to_thread(cluster.topic, 1), "despairing"

    async def outcomes(*words: str) -> list[str]:
        words = ("redriveDeadLetters", "-g", group, "--yes", "--json", *words)
        lines = (await ask(cluster, *words)).splitlines()
        return [json.loads(line)["outcome"] for line in lines if line.startswith("{")]

    async with despair(cluster, topic, group) as got:
        assert await outcomes("-k", "k1") == ["SENT"]
        await until(lambda: len(got) == 1)
        await until_copied(cluster, topic, got[0].message_id)
        assert await outcomes("-m", "1") == ["SENT", "SENT_BEFORE"]
        await until(lambda: len(got) == 2)
        await until_copied(cluster, topic, got[1].message_id)
        printed = await ask(cluster, "redriveDeadLetters", "-g", group, "--yes")
        await until(lambda: len(got) == 3)

    assert printed.splitlines()[-1] == "3 dead letters: 1 sent, 2 sent before"
    assert [each.body for each in got] == [b"1", b"0", b"2"]
    facts = (got[0].keys, got[0].properties["ERROR"], got[0].reconsume_times)
    assert facts == (("k1",), "no stock", 0)
    assert got[0].properties["REPLAYED_FROM"] == f"%DLQ%{group}/broker-a/0@1"


@on_loop
async def test_dead_letters_say_why_and_where_they_would_go(cluster: Cluster) -> None:
    topic, group = await asyncio.to_thread(cluster.topic, 1), "moribund"
    redrive = ("redriveDeadLetters", "-g", group)

    async with despair(cluster, topic, group) as got:
        listed = json.loads(await ask(cluster, "listDeadLetters", "-g", group, "--json"))
        cut = await ask(cluster, "listDeadLetters", "-g", group, "-m", "1")
        planned = await ask(cluster, *redrive, "--dry-run")
        refused = await ask(cluster, *redrive, code=1)
        nowhere = await ask(cluster, *redrive, "-y", "--to", "Unknown-2", code=1)
        assert got == []
        await ask(cluster, *redrive, "-y", "-i", listed[0]["messageId"], "--to-group")
        await until(lambda: len(got) == 1)

    assert [each["reason"] for each in listed] == ["no stock"] * 3
    assert {each["originTopic"] for each in listed} == {topic}
    assert "cut after 1 of 3 dead letters" in cut
    assert planned.count("PLANNED") == 3
    assert f"3 go to topic {topic}, read by {group}" in planned
    assert f"Send 3 dead letters of group {group} again? [y/N]" in refused
    assert nowhere.splitlines()[-1] == "3 dead letters: 3 not sendable"
    assert "topic 'Unknown-2' does not exist" in nowhere
    assert (got[0].topic, got[0].body) == (topic, b"0")
    await ask(cluster, "updateTopicPerm", *CLUSTER, "-t", f"%DLQ%{group}", "-p", "2")
    closed = await ask(cluster, "listDeadLetters", "-g", group, code=1)
    assert f"updateTopicPerm -c CLUSTER -t %DLQ%{group} -p 6" in closed


async def counts(found: Cluster) -> dict[str, int]:
    listed = json.loads(await ask(found, "listDeadLetters", "--json"))
    return {each["group"]: each["messages"] for each in listed}


async def until_copied(found: Cluster, topic: str, message_id: str) -> None:
    """Wait until the index has the copy of a dead letter."""
    words = ("queryMsgByUniqueKey", "-t", topic, "-i", message_id, "-a", "--json")
    while "REPLAYED_FROM" not in await ask(found, *words):  # noqa: ASYNC110  nobody tells
        await asyncio.sleep(0.01)


@on_loop
async def test_dead_letters_of_a_broker_that_is_away_are_not_counted_as_none(
    cluster: Cluster,
) -> None:
    ghost = broker_header(NOBODY, name="ghost", cluster="Ghosts")
    async with RemotingClient() as client:
        body = plain(topics_body("%DLQ%haunted"))
        await client.call(cluster.name_server, RequestCode.REGISTER_BROKER, ghost, body=body)
        listed = await ask(cluster, "listDeadLetters", code=3)
        one = await ask(cluster, "redriveDeadLetters", "-g", "haunted", "--yes", code=3)
        await client.call(cluster.name_server, RequestCode.UNREGISTER_BROKER, leaving_header(ghost))

    assert re.search(r"^haunted +N/A +N/A +N/A$", listed, re.MULTILINE)
    assert one.count("\n") == 1
