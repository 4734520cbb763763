"""Our brokers and Java's replicate from each other, in both directions."""

import asyncio
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from bolide import AdminClient, Message, Producer, PushConsumer, SendStatus
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.store.timers.checkpoint import TimerCheckpoint
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST
from tests.interop.mqadmin import run_commands
from tests.interop.ours import bolide_namesrv
from tests.interop.replica_group import (
    OURS,
    SIZES,
    Member,
    await_equal_logs,
    eventually,
    java_errors,
    members,
    tables_of,
)
from tests.support.aio import until

OLD = "4.9"
FEW, MANY = 5_000, 100_000
IN_FLIGHT = 100
TOPIC, GROUP = "Replicated", "replica_readers"

HAS_TIMERS = (OURS, NEWEST)

PAIRS = [
    pytest.param(OURS, OLD, id="ours-to-4.9", marks=pytest.mark.long),
    pytest.param(OURS, NEWEST, id="ours-to-5.x"),
    pytest.param(OLD, OURS, id="4.9-to-ours"),
    pytest.param(NEWEST, OURS, id="5.x-to-ours", marks=pytest.mark.long),
]


def _but(chosen: str) -> list[ParameterSet]:
    """All pairs; only the chosen one is in the short run."""
    return [
        pytest.param(*pair.values, id=pair.id, marks=() if pair.id == chosen else pytest.mark.long)
        for pair in PAIRS
    ]


ONE_DIRECTION, OTHER_DIRECTION = _but("ours-to-5.x"), _but("5.x-to-ours")


def send(namesrv: str, first: int, count: int) -> None:
    """Send messages of many sizes, some delayed, some with keys and tags."""

    async def main() -> None:
        dice = random.Random(first)
        numbers = iter(range(first, first + count))
        async with Producer("P", name_server=namesrv) as producer:

            async def take_some() -> None:
                for number in numbers:
                    await producer.send(_message(dice, number))

            await producer.send(_message(dice, first))
            await asyncio.gather(*(take_some() for _ in range(IN_FLIGHT)))

    asyncio.run(main())


def _message(dice: random.Random, number: int) -> Message:
    body = dice.randbytes(dice.choice((10, 100, 1000, 4000)))
    delay = 1 if number % 50 == 0 else 0
    return Message(TOPIC, body, tags="a", keys=[f"key-{number}"], delay_level=delay)


def replicate(bench: Bench, kinds: tuple[str, str], directory: Path, count: int) -> None:
    part = count // 3
    with (
        bolide_namesrv(directory / "namesrv") as names,
        members(bench, names.address, directory) as member,
    ):
        master, slave = member(kinds[0]), member(kinds[1], 1)
        send(names.address, 0, part)
        with ThreadPoolExecutor() as threads:
            sending = threads.submit(send, names.address, part, part)
            slave.kill()
            slave.start()
            sending.result()
        master.restart()
        send(names.address, 2 * part, part)
        await_equal_logs(master, slave)
        assert len(master.log()) > part


@pytest.mark.parametrize(("master", "slave"), PAIRS)
def test_the_log_of_a_slave_is_the_masters_to_the_byte(
    master: str, slave: str, java_bench: Bench, tmp_path: Path
) -> None:
    replicate(java_bench, (master, slave), tmp_path, FEW)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("master", "slave"), PAIRS)
def test_the_log_of_a_slave_is_the_masters_after_many_messages(
    master: str, slave: str, java_bench: Bench, tmp_path: Path
) -> None:
    replicate(java_bench, (master, slave), tmp_path, MANY)


@pytest.mark.parametrize(
    "master", [*(pytest.param(each, marks=pytest.mark.long) for each in (OLD, NEWEST)), OURS]
)
def test_a_new_slave_copies_what_its_master_sends_it(
    master: str, java_bench: Bench, tmp_path: Path
) -> None:
    """A Java master sends its last log file to a slave that has nothing, ours the whole log."""
    with (
        bolide_namesrv(tmp_path / "namesrv") as names,
        members(java_bench, names.address, tmp_path) as member,
    ):
        first = member(master)
        send(names.address, 0, FEW)
        second = member(OURS if master != OURS else NEWEST, 1)
        eventually(lambda: first.log().endswith(second.log() or b"nothing"), "the log is copied")
        size = int(SIZES["mappedFileSizeCommitLog"])
        last = len(first.log()) // size * size
        assert last > 0
        assert second.log_start() == (0 if master == OURS else last)


# ---- metadata, and reading while the master is down

CONFIGURED = TopicConfig(topic_name="Configured", read_queue_nums=3, write_queue_nums=5, perm=6)
READ = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
PATIENT = GroupConfig(group_name="patient", retry_max_times=7, which_broker_when_consume_slowly=1)
SHORT_DELAY = 1


class Reader:
    """What a consumer received."""

    def __init__(self) -> None:
        self.bodies: set[bytes] = set()

    async def take(self, message: StoredMessage) -> None:
        self.bodies.add(message.body)


async def fill(namesrv: str, master: Member, *, timers: bool) -> set[bytes]:
    """Messages, delayed ones among them, of which a group has consumed all; configured tables."""
    async with AdminClient(namesrv) as admin:
        await admin.topics.update(master.address, CONFIGURED)
        await admin.topics.update(master.address, READ)
        await admin.groups.update(master.address, PATIENT)
    reader = Reader()
    async with (
        Producer("P", name_server=namesrv) as producer,
        PushConsumer(GROUP, name_server=namesrv, consume_from="first") as consumer,
    ):
        await consumer.subscribe(TOPIC, "*", reader.take)
        bodies = [b"%d" % number for number in range(60)]
        for body in bodies[:50]:
            await producer.send(Message(TOPIC, body))
        for body in bodies[50:]:
            await producer.send(Message(TOPIC, body, delay_level=SHORT_DELAY))
        if timers:
            await producer.send(Message(TOPIC, b"much later", delay=3600.0))
        await until(lambda: reader.bodies == set(bodies), within=30)
        await consumer.commit()
    return set(bodies)


async def await_equal_tables(master: Member, slave: Member) -> None:
    """Wait until both tell the same."""
    what = {TOPIC, "Configured"}, {GROUP, "patient"}
    for _ in range(400):
        told = await tables_of(master, *what)
        copied = await tables_of(slave, *what)
        if told == copied and None not in copied.topics.values():
            assert told.offsets and told.delay_offsets
            return
        await asyncio.sleep(0.1)
    assert copied == told


def has_timer_checkpoint(member: Member) -> bool:
    """Whether a slave knows that the timer is in the master's wheel."""
    file = member.store / "config" / "timercheck"
    checkpoint = TimerCheckpoint.decode(file.read_bytes()) if file.exists() else TimerCheckpoint()
    return checkpoint.read_time > 0 and checkpoint.master_queue_offset == 1


@pytest.mark.parametrize(("master", "slave"), ONE_DIRECTION)
def test_a_slave_has_the_masters_metadata_and_serves_consumers_without_it(
    master: str, slave: str, java_bench: Bench, tmp_path: Path
) -> None:
    timers = master in HAS_TIMERS and slave in HAS_TIMERS
    with (
        bolide_namesrv(tmp_path / "namesrv") as names,
        members(java_bench, names.address, tmp_path) as member,
    ):
        first = member(master, timerWheelEnable=timers)
        second = member(slave, 1, timerWheelEnable=timers)
        bodies = asyncio.run(fill(names.address, first, timers=timers))
        asyncio.run(await_equal_tables(first, second))
        if timers:
            eventually(lambda: has_timer_checkpoint(second), "the timer checkpoint")
        if slave != OURS:
            assert java_errors(second.server, r"[Ss]ync.* Exception") == []
        await_equal_logs(first, second)
        first.kill()

        java = java_bench.client(NEWEST, "ReceiveMessages", names.address, TOPIC, len(bodies))
        received = asyncio.run(receive(names.address, bodies))
        assert received == bodies
        assert java.wait()[-1] == f"received {len(bodies)}"


async def receive(namesrv: str, bodies: set[bytes], group: str = "late") -> set[bytes]:
    """What a new group receives."""
    reader = Reader()
    async with PushConsumer(group, name_server=namesrv, consume_from="first") as consumer:
        await consumer.subscribe(TOPIC, "*", reader.take)
        await until(lambda: reader.bodies >= bodies, within=40)
    return reader.bodies


# ---- a slave made master by hand


@pytest.mark.parametrize(("master", "slave"), OTHER_DIRECTION)
def test_the_store_of_a_slave_can_be_the_masters_of_either_implementation(
    master: str, slave: str, java_bench: Bench, tmp_path: Path
) -> None:
    with (
        bolide_namesrv(tmp_path / "namesrv") as names,
        members(java_bench, names.address, tmp_path) as member,
    ):
        first = member(master)
        second = member(slave, 1)
        bodies = asyncio.run(send_some(names.address, "first"))
        await_equal_logs(first, second)
        before = first.log()
        first.kill()

        for number, kind in enumerate((slave, master)):
            second.become(kind, brokerRole="ASYNC_MASTER", brokerId=0)
            bodies |= asyncio.run(send_some(names.address, f"turn {number}"))
            assert asyncio.run(receive(names.address, bodies, f"readers{number}")) == bodies
            assert second.log().startswith(before)
            before = second.log()


async def send_some(namesrv: str, name: str) -> set[bytes]:
    bodies = {f"{name} {number}".encode() for number in range(100)}
    async with Producer("P", name_server=namesrv, send_timeout=20.0) as producer:
        await asyncio.gather(*(producer.send(Message(TOPIC, body)) for body in bodies))
    return bodies


# ---- what a SYNC_MASTER answers


@pytest.mark.parametrize(
    ("master", "slave"),
    [
        pytest.param(OURS, OLD, id="ours-with-4.9", marks=pytest.mark.long),
        pytest.param(OURS, NEWEST, id="ours-with-5.x"),
        pytest.param(OLD, OURS, id="4.9-with-ours", marks=pytest.mark.long),
        pytest.param(OLD, OLD, id="4.9-with-4.9", marks=pytest.mark.long),
    ],
)
def test_a_sync_master_tells_producers_whether_a_slave_has_the_message(
    master: str, slave: str, java_bench: Bench, tmp_path: Path
) -> None:
    with (
        bolide_namesrv(tmp_path / "namesrv") as names,
        members(java_bench, names.address, tmp_path) as member,
    ):

        def statuses() -> set[str]:
            """As Java's producers and ours see it."""
            versions = (OLD, NEWEST)
            java = [
                java_bench.client(each, "SendStatuses", names.address, TOPIC, 2)
                for each in versions
            ]
            told = {asyncio.run(status(names.address)).name}
            return told.union(*(each.wait() for each in java))

        member(master, brokerRole="SYNC_MASTER", slaveTimeout=1000)
        assert statuses() == {"SLAVE_NOT_AVAILABLE"}
        second = member(slave, 1)
        eventually(
            lambda: asyncio.run(status(names.address)) is SendStatus.SEND_OK, "the slave follows"
        )
        assert statuses() == {"SEND_OK"}
        second.pause()
        assert statuses() == {"FLUSH_SLAVE_TIMEOUT"}
        second.resume()
        eventually(
            lambda: asyncio.run(status(names.address)) is SendStatus.SEND_OK, "the slave goes on"
        )
        second.kill()
        assert statuses() == {"SLAVE_NOT_AVAILABLE"}


@pytest.mark.parametrize("master", [OURS, pytest.param(NEWEST, marks=pytest.mark.long)])
def test_an_explicit_number_of_replicas_counts_as_in_5x(
    master: str, java_bench: Bench, tmp_path: Path
) -> None:
    with (
        bolide_namesrv(tmp_path / "namesrv") as names,
        members(java_bench, names.address, tmp_path) as member,
    ):

        def is_answered(wanted: SendStatus) -> bool:
            return asyncio.run(status(names.address)) is wanted

        member(master, brokerRole="SYNC_MASTER", slaveTimeout=1000, inSyncReplicas=2)
        assert is_answered(SendStatus.FLUSH_SLAVE_TIMEOUT)
        slave = member(OURS, 1)
        eventually(lambda: is_answered(SendStatus.SEND_OK), "the slave follows")
        slave.kill()
        assert is_answered(SendStatus.FLUSH_SLAVE_TIMEOUT)


async def status(namesrv: str) -> SendStatus:
    async with Producer("P", name_server=namesrv, send_timeout=10.0) as producer:
        return (await producer.send(Message(TOPIC, b"once"))).status


# ---- mqadmin


def test_mqadmin_shows_master_and_slave(java_bench: Bench, tmp_path: Path) -> None:
    with (
        bolide_namesrv(tmp_path / "namesrv") as names,
        members(java_bench, names.address, tmp_path) as member,
    ):
        first, second = member(OURS), member(OURS, 1)
        send(names.address, 0, 10)
        await_equal_logs(first, second)
        statuses = [("haStatus", "-b", each.address) for each in (first, second)]
        of_master, of_slave, listed = run_commands(
            java_bench, NEWEST, names.address, [*statuses, ("clusterList",)]
        )
        (listed_by_old,) = run_commands(java_bench, OLD, names.address, [("clusterList",)])
    assert re.search(r"#SlaveNum\s+1\s+#InSyncSlaveNum\s+1\b", of_master)
    (end,) = re.findall(r"#MasterCommitLogMaxOffset\s+(\d+)", of_master)
    assert re.search(rf"#CommitLogMaxOffset\s+{end}\b", of_slave)
    for shown in (listed, listed_by_old):
        assert re.search(rf"broker-a\s+0\s+{first.address}\b", shown)
        assert re.search(rf"broker-a\s+1\s+{second.address}\b", shown)
