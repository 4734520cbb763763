"""A cluster with something in it for administrators to look at, and the commands they try."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

from typer.testing import CliRunner

from bolide.admin import AdminClient
from bolide.cli import app
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import SendResult
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, ProducerGroup, Subscription
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from tests.interop.bench import Bench, Server
from tests.interop.processes import ChildProcess
from tests.support.aio import PATIENCE

BROKER = "broker-a"
GROUP = "facts-readers"
STOPPED_GROUPS = ("sleepers-java", "sleepers-ours")
SENT = 6

# {me} is who runs the command: "java" or "ours". The rest are facts of the cluster.
COMMANDS = {
    "create": "updateTopic -c DefaultCluster -t Made-{me} -r 3 -w 3",
    "create ordered": "updateTopic -b {broker} -t Ordered-{me} -r 2 -w 2 -o true -u true",
    "create with defaults": "updateTopic -c DefaultCluster -t Plain-{me}",
    "perm": "updateTopicPerm -b {broker} -t Made-{me} -p 4",
    "perm in cluster": "updateTopicPerm -c DefaultCluster -t Plain-{me} -p 2",
    "route": "topicRoute -t Made-{me}",
    "route of missing": "topicRoute -t Missing",
    "status": "topicStatus -t Facts",
    "topics": "topicList",
    "topics with groups": "topicList -c",
    "clusters": "clusterList",
    "cluster totals": "clusterList -m",
    "broker status": "brokerStatus -b {broker}",
    "set config": "updateBrokerConfig -b {broker} -k fileReservedTime -v 71",
    "set bad config": "updateBrokerConfig -b {broker} -k brokerConfigPath -v x",
    "config": "getBrokerConfig -b {broker}",
    "create group": "updateSubGroup -c DefaultCluster -g group-{me} -r 3 -q 2",
    "progress": f"consumerProgress -g {GROUP}",
    "all progress": "consumerProgress",
    "consumers": f"consumerConnection -g {GROUP}",
    "producers": "producerConnection -g facts-writers -t Facts",
    "by id": "queryMsgById -t Facts -i {offset_id}",
    "by key": "queryMsgByKey -t Facts -k all",
    "by missing key": "queryMsgByKey -t Facts -k nothing",
    "by unique key": "queryMsgByUniqueKey -t Facts -i {unique_id}",
    "consume": f"consumeMessage -t Facts -b {BROKER} -i 0",
    "send": f"sendMessage -t Sent -b {BROKER} -i 0 -p hello -k key -c tag",
    "print": "printMsg -t Facts",
    "print tags": "printMsg -t Facts -s t1||t4 -d false",
    "print by queue": f"printMsgByQueue -t Facts -a {BROKER} -i 0 -p true -d true -f true",
    "by offset": f"queryMsgByOffset -t Facts -b {BROKER} -i 0 -o 0",
    "queue entries": "queryCq -t Facts -q 0 -i 0 -c 3 -b {broker}",
    "send times": "checkMsgSendRT -t Sent -a 3",
    "all producers": "producer -b {broker}",
    "group config": f"getConsumerConfig -g {GROUP}",
    "allocation": "allocateMQ -t Facts -i 10.0.0.1,10.0.0.2",
    "reset": "resetOffsetByTime -g sleepers-{me} -t Facts -s {middle}",
    "skip": "skipAccumulatedMessage -g sleepers-{me} -t Facts",
    "clone": f"cloneGroupOffset -s {GROUP} -d sleepers-{{me}} -t Facts",
    "delete group": "deleteSubGroup -c DefaultCluster -g group-{me}",
    "delete": "deleteTopic -c DefaultCluster -t Made-{me}",
}

ASKING = {
    "resetOffsetByTime",
    "skipAccumulatedMessage",
    "cloneGroupOffset",
    "deleteSubGroup",
    "deleteTopic",
}
"""Commands of ours that ask first, unless told not to."""


@dataclass(frozen=True)
class AdminCluster:
    """Name server and broker, and what the commands need to know of them."""

    kind: str
    name_server: Server
    broker: Server
    facts: dict[str, str]
    printed: dict[str, dict[str, str]] = field(default_factory=dict)
    running: dict[str, ChildProcess] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The Java release whose mqadmin fits the broker best."""
        return "4.9" if self.kind == "4.9" else "5.x"

    def begin_java(self, bench: Bench, version: str) -> None:
        """Have Java's mqadmin run all commands; it takes its time."""
        where = f"-n {self.name_server.address}"
        lines = [f"{_known(text, version)} {where}" for text in self._lines("java").values()]
        self.running[version] = bench.client(version, "MqadminBatch", *lines)

    def java(self, bench: Bench, version: str = "") -> dict[str, str]:
        """What Java's mqadmin prints for each command."""
        version = version or self.version
        if version not in self.printed:
            if version not in self.running:
                for other in self.running:  # it would delete what this one makes
                    self.java(bench, other)
                self.begin_java(bench, version)
            self.printed[version] = _by_command(self.running[version])
        return self.printed[version]

    def ours(self) -> dict[str, str]:
        """What our mqadmin prints; it runs them once."""
        if "ours" not in self.printed:
            self.printed["ours"] = {
                name: self._run(*text.split(" ")) for name, text in self._lines("ours").items()
            }
        return self.printed["ours"]

    def _run(self, *words: str) -> str:
        agrees = ["--yes"] if words[0] in ASKING else []
        done = CliRunner().invoke(app, ["admin", *words, *agrees, "-n", self.name_server.address])
        assert done.exit_code in {0, 1}, (words, done.output, done.exception)
        return done.output if done.exit_code == 0 else f"failed: {done.output}"

    def _lines(self, me: str) -> dict[str, str]:
        return {name: text.format(me=me, **self.facts) for name, text in COMMANDS.items()}


def _by_command(process: ChildProcess) -> dict[str, str]:
    process.wait(100)
    streams = ("\n".join(lines) for lines in (process.stdout, process.stderr))
    parts = (re.split(r"^@@ \d+$", text, flags=re.MULTILINE)[1:] for text in streams)
    both = [told + wrong for told, wrong in zip(*parts, strict=True)]
    return dict(zip(COMMANDS, both, strict=True))


def _known(command: str, version: str) -> str:
    """The command without an option that 4.9 does not know."""
    return command.replace("ById -t Facts", "ById") if version == "4.9" else command


async def fill(name_server: str, broker: str) -> dict[str, str]:
    """Make topics, messages and groups; returns what the commands refer to."""
    async with AdminClient(name_server) as admin:
        for topic, queues in (("Facts", 2), ("Sent", 1)):
            config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
            await admin.topics.update(broker, config)
        for group in (GROUP, *STOPPED_GROUPS):
            await admin.groups.update(broker, GroupConfig(group_name=group))
        sent = await _send(name_server)
        await _until_indexed(admin, sent[-1].message_id)
        for queue_id in range(2):
            queue = MessageQueue("Facts", BROKER, queue_id)
            for group in (GROUP, *STOPPED_GROUPS):
                await admin.offsets.commit(broker, group, queue, 2)
        middle = await admin.messages.view(sent[2].offset_message_id)
    return {
        "broker": broker,
        "unique_id": sent[0].message_id,
        "offset_id": sent[1].offset_message_id,
        "middle": str(middle.store_timestamp),
    }


async def _send(name_server: str) -> list[SendResult]:
    sent = []
    async with Producer("facts-senders", name_server=name_server) as producer:
        for number in range(SENT):
            message = Message(
                "Facts", f"fact {number}".encode(), tags=f"t{number}", keys=["all", f"k{number}"]
            )
            queue = MessageQueue("Facts", BROKER, number % 2)
            sent.append(await producer.send(message, queue=queue))
            await asyncio.sleep(0.02)  # each its own store time
    return sent


async def _until_indexed(admin: AdminClient, unique_id: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(Exception):
                await admin.messages.by_unique_id("Facts", unique_id)
                return
            await asyncio.sleep(0.05)


@contextmanager
def present(broker: str) -> Iterator[None]:
    """A client that is a producer and a consumer to the broker, and does nothing else."""
    ready, over = Event(), Event()
    thread = Thread(target=lambda: asyncio.run(_stay(broker, ready, over)), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)


async def _stay(broker: str, ready: Event, over: Event) -> None:
    topics = [
        Subscription(topic="Facts", sub_string="t1 || t2", tags_set=["t1", "t2"], sub_version=1),
        Subscription(topic=f"%RETRY%{GROUP}", sub_version=1),
    ]
    heartbeat = Heartbeat(
        client_id="127.0.0.1@facts",
        producer_data_set=[ProducerGroup("facts-writers")],
        consumer_data_set=[ConsumerGroup(group_name=GROUP, subscription_data_set=topics)],
    )
    async with RemotingClient() as client:
        while not over.is_set():
            await client.call(broker, RequestCode.HEART_BEAT, body=fastjson.encode(heartbeat))
            ready.set()
            await asyncio.to_thread(over.wait, 20)
