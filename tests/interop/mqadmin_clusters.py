"""Clusters with content for the cases of mqadmin, ours and Apache's alike."""

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bolide import Message, Producer, PushConsumer, StoredMessage
from bolide.admin import AdminClient
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from tests.interop.bench import BROKER_DEFAULTS, Bench
from tests.interop.mqadmin import run_commands, tools_home
from tests.interop.mqadmin_cases import NEW, OLD, OURS, OWN, Case, Place, cases
from tests.interop.mqadmin_comparison import mask
from tests.interop.mqadmin_of_ours import Line, run_ours
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.aio import PATIENCE
from tests.support.controllers import free_peers

BROKER = "broker-a"
MESSAGES = 10
COUNTING = 30.0
"""Seconds; brokers look at their counters every 10 s."""
ELECTION = 60.0
"""Seconds that a busy machine may take for one, and for the members to be in sync again."""

ROOT, PASSWORD = "administrator", "12345678"
_AUTH = "org.apache.rocketmq.auth"
SETTINGS: Mapping[str, Any] = {
    **BROKER_DEFAULTS,
    # Without its timer Apache's 5.x cannot delete a topic.
    "timerWheelEnable": True,
    "compactionScheduleInternal": 1000,
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
    "initAuthenticationUser": f'{{"username":"{ROOT}","password":"{PASSWORD}"}}',
    "innerClientAuthenticationCredentials": (f'{{"accessKey":"{ROOT}","secretKey":"{PASSWORD}"}}'),
}


_GUARD = {
    key: value for key, value in SETTINGS.items() if key.startswith(("auth", "initAuth", "inner"))
}


def _name(who: str) -> str:
    """Who runs a case, in names of what it makes."""
    return who.replace(".", "-")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    kind: str
    place: Place
    bench: Bench
    name_server: str
    broker: str
    directory: Path
    others: Mapping[str, str] = field(default_factory=dict)
    """Further facts."""

    @property
    def files(self) -> Path:
        """What commands read and write."""
        return self.directory / "files"

    @property
    def store(self) -> Path:
        return self.directory / "store"


@contextmanager
def cluster(place: Place, kind: str, bench: Bench, directory: Path) -> Iterator[Cluster]:
    """Start the servers of a place."""
    (directory / "files").mkdir(parents=True)
    with _STARTS[place](kind, bench, directory) as (name_server, broker, others):
        yield Cluster(
            kind=kind, place=place, bench=bench, name_server=name_server, broker=broker,
            directory=directory, others=others,
        )  # fmt: skip


Started = tuple[str, str, dict[str, str]]
"""Addresses of the NameServer and of the broker, and further facts."""


@contextmanager
def _plain(kind: str, bench: Bench, directory: Path) -> Iterator[Started]:
    own = {
        "storePathRootDir": str(directory / "store"),
        "authConfigPath": str(directory / "auth"),
    }
    if kind == OURS:
        guard = _GUARD | {"authConfigPath": own["authConfigPath"]}
        settings = {**SETTINGS, **own, "auditEnable": False}
        with (
            bolide_namesrv(directory / "namesrv", **guard) as namesrv,
            bolide_broker(directory / "broker", namesrv.address, **settings) as broker,
        ):
            yield namesrv.address, broker.address, {}
    else:
        java = bench.namesrv(NEW)
        server = bench.broker(NEW, java.address, **SETTINGS, **own)
        yield java.address, server.address, {}
        server.kill()
        java.kill()


@contextmanager
def _group(kind: str, bench: Bench, directory: Path) -> Iterator[Started]:
    """A controller in the NameServer, and two brokers, of which the first became master."""
    peers = free_peers(1)
    controller = peers.partition("-")[2]
    names: dict[str, Any] = {
        "enableControllerInNamesrv": True,
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": peers,
        "controllerDLegerSelfId": peers.partition("-")[0],
        "controllerStorePath": str(directory / "controller"),
    }
    shared: dict[str, Any] = {
        **BROKER_DEFAULTS,
        "enableControllerMode": True, "controllerAddr": controller, "brokerRole": "SLAVE",
        "allAckInSyncStateSet": True, "timerWheelEnable": True,
    }  # fmt: skip
    with ExitStack() as stack:
        if kind == OURS:
            namesrv = stack.enter_context(bolide_namesrv(directory / "namesrv", **names))
        else:
            namesrv = bench.namesrv(NEW, **names)
        members = []
        for number in (1, 2):
            settings = shared | {"storePathRootDir": str(directory / f"store-{number}")}
            if kind == OURS:
                home = directory / f"broker-{number}"
                broker = stack.enter_context(bolide_broker(home, namesrv.address, **settings))
            else:
                broker = bench.broker(NEW, namesrv.address, haListenPort=0, **settings)
            members.append(broker)
            asyncio.run(_until(partial(_in_sync, namesrv.address, controller, number), ELECTION))
        master, slave = (member.address for member in members)
        yield namesrv.address, master, {"controller": controller, "slave": slave}
        if kind != OURS:
            for server in (*members, namesrv):
                server.kill()


async def settle(of: Cluster) -> None:
    """Wait until both members of a group are in sync, after an election for example."""
    if of.place is Place.GROUP:
        await _until(partial(_in_sync, of.name_server, of.others["controller"], 2), ELECTION)


async def _in_sync(name_server: str, controller: str, count: int) -> None:
    """Fail unless so many members are in sync; a message makes a term visible to members."""
    async with (
        AdminClient(name_server) as admin,
        Producer("writers", name_server=name_server) as producer,
    ):
        table = await admin.controllers.sync_state_sets(controller, [BROKER])
        assert len(table.replicas_info_table[BROKER].in_sync_replicas) == count
        if count == 1:
            await producer.send(Message("Facts", b"fact"))


ACCOUNTS = f"""accounts:
- accessKey: {ROOT}
  secretKey: {PASSWORD}
  admin: true
""" + "".join(
    f"- accessKey: orders-{_name(who)}\n  secretKey: secret-of-orders\n" for who in (OLD, OWN)
)


@contextmanager
def _accounts(kind: str, bench: Bench, directory: Path) -> Iterator[Started]:
    """ACL 1.0, which Apache's has up to 4.9."""
    home = tools_home(directory, "home", "unused")
    file = directory / "home" / "conf" / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    file.chmod(0o600)
    with bolide_namesrv(directory / "namesrv") as namesrv:
        if kind == OURS:
            settings: dict[str, Any] = {"aclEnable": True, "rocketmqHome": file.parent.parent}
            with bolide_broker(directory / "broker", namesrv.address, **settings) as broker:
                yield namesrv.address, broker.address, {"acl_file": str(file)}
        else:
            server = bench.broker(OLD, namesrv.address, jvm=[home], aclEnable=True)
            yield namesrv.address, server.address, {"acl_file": str(file)}
            server.kill()


_STARTS: Mapping[Place, Callable[..., AbstractContextManager[Started]]] = {
    Place.PLAIN: _plain,
    Place.GROUP: _group,
    Place.ACCOUNTS: _accounts,
}


@asynccontextmanager
async def content(of: Cluster) -> AsyncIterator[dict[str, str]]:
    """Fill the cluster and stay connected to it; yields the facts that the cases refer to."""
    facts = {"broker": of.broker, "namesrv": of.name_server, "files": str(of.files), **of.others}
    if of.place is not Place.PLAIN:
        yield facts
        return
    async with _connected(of) as more:
        yield facts | more


@asynccontextmanager
async def _connected(of: Cluster) -> AsyncIterator[dict[str, str]]:
    received: asyncio.Queue[StoredMessage] = asyncio.Queue()

    def client(name: str) -> dict[str, Any]:
        return {
            "name_server": of.name_server,
            "client_ip": "127.0.0.1",
            "instance_name": f"{name}-{of.kind}",
            "access_key": ROOT,
            "secret_key": PASSWORD,
        }

    async with (
        AdminClient(of.name_server, access_key=ROOT, secret_key=PASSWORD) as admin,
        Producer("writers", send_timeout=10, **client("writer")) as producer,
        Producer("tracers", send_timeout=10, trace=True, **client("tracer")) as tracer,
        PushConsumer("readers", consume_from="first", **client("reader")) as reader,
        PushConsumer(
            "failing", consume_from="first", max_reconsume_times=0, **client("failing")
        ) as failing,
    ):
        for topic, queues in (("Facts", 2), ("Sent", 1), ("Bad", 1)):
            config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
            await admin.topics.update(of.broker, config)
        latest = TopicConfig(
            topic_name="Latest", read_queue_nums=1, write_queue_nums=1,
            attributes={"+cleanup.policy": "COMPACTION"},
        )  # fmt: skip
        await admin.topics.update(of.broker, latest)
        for group in ("sleepers", "clone"):
            retry = TopicConfig(topic_name=f"%RETRY%{group}", read_queue_nums=1, write_queue_nums=1)
            await admin.topics.update(of.broker, retry)
        for group in ("readers", "sleepers", "failing"):
            await admin.groups.update(of.broker, GroupConfig(group_name=group))
        sent = []
        for number in range(MESSAGES):
            queue = MessageQueue("Facts", BROKER, number % 2)
            sent.append(await producer.send(_fact(number), queue=queue))
            await asyncio.sleep(0.02)  # each its own store time
        for number in range(3):
            await producer.send(Message("Latest", b"%d" % number, keys=f"k{number % 2}"))
        await producer.send(Message("Sent", b"later", delay=3600))
        traced = await tracer.send(Message("Sent", b"traced", keys="traced"))
        await producer.send(Message("Bad", b"bad", keys="bad"))
        await reader.subscribe("Facts", "t1 || t2", received.put)
        await failing.subscribe("Bad", "*", _fail)
        for _ in range(MESSAGES):
            async with asyncio.timeout(PATIENCE):
                await received.get()
        await reader.commit()
        for queue_id in range(2):
            await admin.offsets.commit(
                of.broker, "sleepers", MessageQueue("Facts", BROKER, queue_id), 1
            )
        first, middle = [
            await admin.messages.view(sent[n].offset_message_id) for n in (0, MESSAGES // 2)
        ]
        await _until(lambda: admin.messages.by_unique_id("Facts", sent[-1].message_id))
        dead = MessageQueue("%DLQ%failing", BROKER, 0)
        await _until(lambda: admin.messages.at(dead, 0))
        await failing.commit()
        await _until(lambda: _exists(of))
        await _until(lambda: _counted(admin, of), COUNTING)
        yield {
            "offset_id": sent[1].offset_message_id,
            "unique_id": sent[0].message_id,
            "traced_id": traced.message_id,
            "client": f"127.0.0.1@reader-{of.kind}",
            "begin": str(first.store_timestamp - 1),
            "middle": str(middle.store_timestamp),
            "compaction_log": str(_compaction_log(of)),
        }


def _fact(number: int) -> Message:
    return Message(
        "Facts", f"fact {number}".encode(), tags=f"t{1 + number % 2}", keys=["all", f"k{number}"],
        properties={"colour": "red"},
    )  # fmt: skip


def _fail(message: StoredMessage) -> None:
    raise RuntimeError("as it must")


async def _until(look: Callable[[], Any], patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        while True:
            with contextlib.suppress(Exception):
                await look()
                return
            await asyncio.sleep(0.05)


def _compaction_log(of: Cluster) -> Path:
    """The log of the topic that keeps the newest message of each key."""
    return min((of.store / "compaction").glob("compactionLog/Latest/0/0*"))


async def _counted(admin: AdminClient, of: Cluster) -> None:
    """Fail unless the figures of the last minute have all messages."""
    stats = await admin.brokers.stats(of.broker, "TOPIC_PUT_NUMS", "Facts")
    assert stats.stats_minute is not None
    assert stats.stats_minute.sum == MESSAGES


async def _exists(of: Cluster) -> None:
    _compaction_log(of)


TOPICS = [
    {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
     "topicFilterType": "SINGLE_TAG", "attributes": {}}
    for name, queues in (("Listed", 3), ("Other", 1))
]  # fmt: skip
GROUPS = [{"groupName": name, "retryMaxTimes": 3} for name in ("listed", "other")]


def write_files(files: Path) -> None:
    (files / "topics.json").write_text(json.dumps(TOPICS))
    (files / "groups.json").write_text(json.dumps(GROUPS))
    (files / "broker.conf").write_text("brokerName=broker-b\n")


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and wrote into files; errors included."""

    text: str
    is_done: bool
    """Whether it did what it was asked for, by exit code or because it printed no exception."""
    trouble: str = ""
    """An exception of ours that nobody caught."""
    exit_code: int | None = None
    """That of ours; Java's is always 0."""


def run(of: Cluster, who: str, facts: Mapping[str, str]) -> dict[Case, Outcome]:
    """Run the cases by a release's mqadmin, or by ours."""
    chosen = list(cases(of.place, who))
    write_files(of.files)
    known = {**facts, "me": _name(who), "elected": "1" if who == OWN else "2"}
    lines = [
        Line((case.words_for(who) or "").format(**known).split(" "), case.seconds)
        for case in chosen
    ]
    for place in {Path(words[words.index("-f") + 1]) for words, _ in lines if _exports(words)}:
        shutil.rmtree(place, ignore_errors=True)
    done = _ours(of, lines) if who == OWN else _java(of, who, lines)
    return {
        case: replace(each, text=mask(each.text + written(line.words), known))
        for case, each, line in zip(chosen, done, lines, strict=True)
    }


def _java(of: Cluster, version: str, lines: Sequence[Line]) -> list[Outcome]:
    commands = [
        [*([f"--for={line.seconds}"] if line.seconds else []), *line.words] for line in lines
    ]
    home = tools_home(of.files / "tools", ROOT, PASSWORD)
    texts = run_commands(of.bench, version, of.name_server, commands, timeout=300, jvm=[home])
    return [Outcome(text, is_done=not FAILURE.search(text)) for text in texts]


FAILURE = re.compile(r"^(Caused by|[\w.]+Exception\b)", re.MULTILINE)


def _ours(of: Cluster, lines: Sequence[Line]) -> list[Outcome]:
    done = run_ours(lines, of.name_server, of.directory / "ours", ROOT, PASSWORD)
    return [
        Outcome(each.output, each.exit_code == 0, each.trouble, each.exit_code) for each in done
    ]


def written(words: Sequence[str]) -> str:
    """The content of the files that an export wrote."""
    if not _exports(words):
        return ""
    place = Path(words[words.index("-f") + 1])
    return "\n" + "\n".join(file.read_text() for file in sorted(place.rglob("*.json")))


def _exports(words: Sequence[str]) -> bool:
    return words[0].startswith("export") and "-f" in words
