"""Java's clients and mqadmin with our brokers and controllers: elections, seen and steered."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bolide import AdminClient, Message, Producer
from bolide.errors import BolideError
from bolide.protocol.bodies.topics import TopicConfig
from tests.interop.bench import Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.mqadmin import run_commands
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.interop.replica_group import (
    OURS,
    PATIENCE,
    Member,
    await_equal_logs,
    eventually,
    members,
)
from tests.support.aio import until
from tests.support.controllers import ControllerProcess, quorum

OLD = "4.9"
CLUSTER, BROKER = "DefaultCluster", "broker-a"
SYNC_STATE = ("getSyncStateSet", "-b", BROKER)
RIDING, IN_ORDER = "Riding", "InOrder"


class Group:
    """Members of one group, the controllers, and a NameServer, all of them ours."""

    def __init__(self, bench: Bench, names: Server, controllers: list[ControllerProcess]) -> None:
        self.bench = bench
        self.names = names
        self.controllers = [each.address for each in controllers]
        self.servers: dict[int, Server] = {}

    def admin(self, *commands: tuple[str, ...], version: str = NEWEST) -> list[str]:
        """What Java's mqadmin prints."""
        return run_commands(self.bench, version, self.names.address, commands)

    def steer(self, *commands: tuple[str, ...]) -> list[str]:
        """What the commands of controllers print."""
        return self.admin(*((name, "-a", self.controllers[0], *words) for name, *words in commands))

    def master_id(self) -> int:
        """The member that registers as broker 0."""
        address = asyncio.run(_master_address(self.names.address))
        found = [number for number, each in self.servers.items() if each.address == address]
        return found[0] if found else -1


async def _master_address(namesrv: str) -> str | None:
    async with AdminClient(namesrv) as admin:
        info = await admin.clusters.info()
        found = info.broker_addr_table.get(BROKER)
        return found.broker_addrs.get(0) if found else None


@contextmanager
def group(bench: Bench, directory: Path, controllers: int = 1, **settings: Any) -> Iterator[Group]:
    """Two members in controller mode, both in the sync-state set; number 1 is master."""
    with ExitStack() as stack:
        names = stack.enter_context(bolide_namesrv(directory / "names"))
        (directory / "controllers").mkdir()
        leaders = stack.enter_context(quorum(directory / "controllers", controllers))
        found = Group(bench, names, leaders)
        for number in (1, 2):
            found.servers[number] = stack.enter_context(
                bolide_broker(
                    directory / f"member-{number}",
                    names.address,
                    enableControllerMode=True,
                    controllerAddr=";".join(found.controllers),
                    brokerIP2="127.0.0.1",
                    **settings,
                )
            )
            eventually(lambda: found.master_id() == 1, "the first member is master")
        eventually(lambda: _members(found.servers[1]) == 2, "both are in the sync-state set")
        yield found


def _members(master: Server) -> int:
    """How many members the sync-state set has, as the master's log says."""
    found = [line for line in master.process.output if "the sync-state set is [" in line]
    return found[-1].count(",") + 1 if found else 0


# ---- mqadmin


def facts(printed: str) -> dict[str, str]:
    """The lines `#name value` of a command's output."""
    return dict(re.findall(r"^\s*#(\S+)\s+(.*?)\s*$", printed, re.MULTILINE))


def ids(cluster_list: str) -> dict[int, str]:
    """The members that clusterList shows."""
    return {
        int(n): address for n, address in re.findall(rf"{BROKER}\s+(\d+)\s+(\S+)", cluster_list)
    }


def replicas(sync_state: str) -> set[str]:
    """Addresses of the members that are in sync, as getSyncStateSet shows them."""
    return set(re.findall(r"\bInSyncReplica:.*brokerAddress='([^']+)'", sync_state))


async def send_one(namesrv: str) -> None:
    async with Producer("P", name_server=namesrv, send_timeout=10.0) as producer:
        await producer.send(Message(RIDING, b"one"))


def test_mqadmin_shows_a_group_and_moves_its_master(java_bench: Bench, tmp_path: Path) -> None:
    with group(java_bench, tmp_path, controllers=3) as members:
        asyncio.run(send_one(members.names.address))
        first, second = members.servers[1].address, members.servers[2].address
        of_master, of_slave, listed, epochs = members.admin(
            ("haStatus", "-b", first), ("haStatus", "-b", second),
            ("clusterList",), ("getBrokerEpoch", "-b", BROKER),
        )  # fmt: skip
        told = facts(of_master)
        assert told["MasterAddr"] == first
        assert (told["SlaveNum"], told["InSyncSlaveNum"]) == ("1", "1")
        assert facts(of_slave)["CommitLogMaxOffset"] == told["MasterCommitLogMaxOffset"] != "0"
        assert ids(listed) == {0: first, 2: second}
        assert re.findall(r"epoch=(\d+), startOffset=(\d+)", epochs) == [("1", "0")] * 2

        elect = ("electMaster", "-b", "2", "-bn", BROKER, "-c", CLUSTER)
        leader, in_sync, elected = members.steer(("getControllerMetaData",), SYNC_STATE, elect)
        assert facts(leader)["ControllerLeaderAddress"] in members.controllers
        assert set(re.findall(r"#Peer:\s+n\d:(\S+)", leader)) == set(members.controllers)
        assert (facts(in_sync)["MasterBrokerId"], replicas(in_sync)) == ("1", {first, second})
        assert facts(elected)["BrokerMasterAddr"] == second
        assert facts(elected)["MasterEpoch"] == "2"

        eventually(lambda: members.master_id() == 2, "the second member is master")
        asyncio.run(send_one(members.names.address))
        eventually(lambda: _members(members.servers[2]) == 2, "the first member has followed")
        listed, epochs = members.admin(("clusterList",), ("getBrokerEpoch", "-b", BROKER))
        assert ids(listed) == {0: second, 1: first}
        end = told["MasterCommitLogMaxOffset"]
        assert re.findall(r"epoch=2, startOffset=(\d+)", epochs) == [end] * 2


@pytest.mark.long
def test_mqadmin_cleans_up_a_member_that_is_gone(java_bench: Bench, tmp_path: Path) -> None:
    clean = ("cleanBrokerMetadata", "-b", "2", "-bn", BROKER, "-c", CLUSTER)
    with group(java_bench, tmp_path) as members:
        first, second = members.servers[1].address, members.servers[2].address
        (refused,) = members.steer(clean)
        assert "CODE: 2009" in refused
        members.servers[2].kill()
        eventually(lambda: replicas(members.steer(SYNC_STATE)[0]) == {first}, "the set is smaller")
        # It leaves the set after a second, and is dead for the controllers after two.
        assert second in members.steer(SYNC_STATE)[0]
        eventually(lambda: "success" in members.steer(clean)[0], "the dead member is removed")
        assert second not in members.steer(SYNC_STATE)[0]


# ---- clients while the master is killed


class Sent(NamedTuple):
    """A line of KeepSending."""

    time: float
    topic: str
    number: int
    outcome: str

    @property
    def is_ok(self) -> bool:
        return self.outcome == "SEND_OK"


def read_sent(lines: list[str]) -> list[Sent]:
    rows = [line.split(" ") for line in lines]
    return [Sent(int(at) / 1000, topic, int(n), outcome) for at, topic, n, outcome in rows]


def outage(sent: list[Sent]) -> float:
    """The longest time between two messages that were acknowledged."""
    times = [each.time for each in sent if each.is_ok]
    return max(after - before for before, after in pairwise(times))


def received(process: ChildProcess) -> list[int]:
    return [int(line.split(" ")[1]) for line in process.stdout if " " in line]


def in_order(numbers: list[int]) -> bool:
    """Whether each number arrived first after all smaller ones; later copies may follow."""
    firsts = list(dict.fromkeys(numbers))
    return firsts == sorted(firsts)


def kill_master(members: Group) -> None:
    members.servers[1].kill()


def move_master(members: Group) -> None:
    members.steer(("electMaster", "-b", "2", "-bn", BROKER, "-c", CLUSTER))


POLL = 1_000
DEFAULT_POLL = 30_000
"""Interval of route updates in milliseconds; only then a Java client learns of the next master."""
PATIENCE_FOR_MASTER = 20.0
"""Seconds until the next master serves: some 4, and more beside other tests. A client that polls at
another interval than told, and a master that only registers in turn, take 30."""


@pytest.mark.parametrize(
    ("version", "poll", "disturb"),
    [
        pytest.param(NEWEST, POLL, kill_master, id="killed"),
        pytest.param(NEWEST, POLL, move_master, id="moved", marks=pytest.mark.long),
        pytest.param(OLD, POLL, kill_master, id="4.9-killed", marks=pytest.mark.long),
        pytest.param(NEWEST, DEFAULT_POLL, kill_master, id="rare-routes", marks=pytest.mark.long),
    ],
)
def test_java_clients_lose_nothing_when_another_master_is_elected(
    version: str, poll: int, disturb: Callable[[Group], None], java_bench: Bench, tmp_path: Path
) -> None:
    limit = poll / 1000 + PATIENCE_FOR_MASTER
    with group(java_bench, tmp_path) as members:
        names = members.names.address
        asyncio.run(create_topics(names, members.servers[1].address))
        jvm = [f"-DpollMillis={poll}"]
        receive = (version, "KeepReceiving", names)
        riding = java_bench.client(*receive, "riders", RIDING, jvm=jvm)
        ordered = java_bench.client(*receive, "ordered", IN_ORDER, "--ordered", jvm=jvm)
        for each in (riding, ordered):
            each.wait_for_line("ready")
        sender = java_bench.client(version, "KeepSending", names, RIDING, IN_ORDER, jvm=jvm)
        eventually(lambda: len(sender.stdout) > 200 and bool(received(ordered)), "some are sent")

        disturb(members)
        eventually(lambda: members.master_id() == 2, "the second member is master")
        await_more(sender, 200, limit + 15)
        sender.kill()
        sent = read_sent(sender.stdout[:-1])
        for topic, consumer in ((RIDING, riding), (IN_ORDER, ordered)):
            await_all(consumer, {x.number for x in sent if x.topic == topic and x.is_ok})
        assert in_order(received(ordered))
        failures = Counter(x.outcome for x in sent if not x.is_ok)
        print(f"{version}, routes every {poll} ms: {outage(sent):.1f} s without, {dict(failures)}")
        assert outage(sent) < limit


def await_all(consumer: ChildProcess, wanted: set[int]) -> None:
    """Wait for messages; a client of 4.9 notices after 30 s that the broker of a pull is dead."""
    deadline = time.monotonic() + PATIENCE
    while missing := wanted - set(received(consumer)):
        assert time.monotonic() < deadline, f"{consumer.name} lacks {sorted(missing)}"
        time.sleep(0.2)


def await_more(sender: ChildProcess, count: int, patience: float) -> None:
    """Wait until so many further messages are acknowledged."""
    known = len(sender.stdout)

    def are_sent() -> bool:
        return sum(each.is_ok for each in read_sent(sender.stdout[known:-1])) >= count

    eventually(are_sent, "sending goes on", patience)


async def create_topics(namesrv: str, master: str) -> None:
    async with AdminClient(namesrv) as admin:
        for topic, queues in ((RIDING, 4), (IN_ORDER, 1)):
            config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
            await admin.topics.update(master, config)


# ---- groups with members of both implementations


@pytest.mark.parametrize(
    ("first", "second"), [(OURS, NEWEST), pytest.param(NEWEST, OURS, marks=pytest.mark.long)]
)
def test_members_of_both_implementations_take_turns_as_master(
    first: str, second: str, java_bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "controllers").mkdir()
    with (
        bolide_namesrv(tmp_path / "names") as names,
        quorum(tmp_path / "controllers", 1) as (controller,),
        members(java_bench, names.address, tmp_path) as member,
    ):
        settings = {
            "enableControllerMode": True,
            "controllerAddr": controller.address,
            "allAckInSyncStateSet": True,  # the default of RocketMQ may lose what it acknowledged
        }
        sync_state = ("getSyncStateSet", "-a", controller.address, "-b", BROKER)

        def in_sync() -> int:
            (shown,) = run_commands(java_bench, NEWEST, names.address, [sync_state])
            return len(replicas(shown))

        old, new = (member(kind, brokerRole="SLAVE", **settings) for kind in (first, second))
        eventually(lambda: in_sync() == 2, "both are in sync")
        acknowledged = asyncio.run(send_through(names.address, old))
        old.start()
        eventually(lambda: in_sync() == 2, "both are in sync again")
        acknowledged |= asyncio.run(send_through(names.address, None))

        await_equal_logs(new, old)
        log = new.log()
        assert [body for body in acknowledged if body not in log] == []


async def send_through(namesrv: str, killed: Member | None) -> set[bytes]:
    """Send with many in flight, and kill the master meanwhile; returns what was acknowledged."""
    acknowledged: set[bytes] = set()
    running = True

    async def keep_sending(producer: Producer, name: int) -> None:
        number = 0
        while running:
            body = f"{killed is None} {name} {number} ".encode() * 20
            number += 1
            try:
                await producer.send(Message(RIDING, body))
            except BolideError:
                await asyncio.sleep(0.1)
            else:
                acknowledged.add(body)

    async with Producer("P", name_server=namesrv, route_interval=0.5, send_timeout=1.0) as producer:
        tasks = [asyncio.create_task(keep_sending(producer, name)) for name in range(50)]
        await until(lambda: len(acknowledged) > 1000, within=PATIENCE)
        if killed is not None:
            await asyncio.to_thread(killed.kill)
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 1000, within=PATIENCE)
        running = False
        await asyncio.gather(*tasks)
    return acknowledged
