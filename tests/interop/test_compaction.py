"""Topics with cleanup.policy=COMPACTION: one program on both brokers, and one store on both."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.store.layout import Layout
from bolide.store.verify import verify
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.mqadmin import run_commands
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.compaction import LOG_SIZE, PER_FILE, QUEUE_SIZE, newest
from tests.support.ports import free_port

TOPIC = "Latest"
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 16 * 2**20,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    "timerWheelEnable": False,
    "compactionMappedFileSize": LOG_SIZE - 46,
    "compactionCqMappedFileSize": QUEUE_SIZE + 3,
    "compactionScheduleInternal": 1000,
    "flushCommitLogThoroughInterval": 1000,
}
Values = list[tuple[str, str]]


def values_of(who: str, count: int) -> Values:
    return [(f"k{number % 5}", f"{who}-{number}") for number in range(count)]


class Directory:
    """A store directory, and brokers that serve it in turn, at one port."""

    def __init__(self, bench: Bench, namesrv: str, path: Path) -> None:
        self.bench = bench
        self.namesrv = namesrv
        self.root = path / "store"
        self._path = path
        self._settings = SETTINGS | {"listenPort": free_port(BROKER_NEIGHBOURS)}
        self.sent: Values = []

    @contextmanager
    def java(self, *, kill: bool = False, **settings: Any) -> Iterator[Server]:
        chosen = self._settings | settings | {"storePathRootDir": str(self.root)}
        broker = self.bench.broker(NEWEST, self.namesrv, **chosen)
        yield broker
        (broker.kill if kill else broker.stop)()

    @contextmanager
    def ours(self, *, kill: bool = False, **settings: Any) -> Iterator[Server]:
        chosen = self._settings | settings
        with bolide_broker(self._path, self.namesrv, **chosen) as broker:
            yield broker
            if kill:
                broker.kill()

    def create(self, broker: Server) -> list[str]:
        """Create the topic; returns what mqadmin printed."""
        base = ["updateTopic", "-b", broker.address, "-t"]
        queues = ["-r", "1", "-w", "1", "-a"]
        return run_commands(
            self.bench, NEWEST, self.namesrv,
            [
                [*base, TOPIC, *queues, "+cleanup.policy=COMPACTION"],
                [*base, "Reserved", *queues, "+reserve.time=3600000"],
                [*base, "Refused", *queues, "+reserve.time=-2"],
                [*base, "Refused", *queues, "+cleanup.policy=COMPACT"],
            ],
        )  # fmt: skip

    def run(self, broker: Server, *commands: str) -> list[str]:
        client = self.bench.client(
            NEWEST, "CompactionTopic", self.namesrv, TOPIC, "broker-a", broker.address, *commands
        )
        return client.wait(100)

    def send(self, broker: Server, values: Values, *before: str) -> list[str]:
        """Send values, and read the topic when it has been compacted."""
        self.sent += values
        commands = [f"{key}={body}" for key, body in values]
        return self.run(broker, *before, *commands, f"read:{len(self.compacted())}")

    def read(self, broker: Server) -> list[str]:
        return self.run(broker, f"read:{len(self.compacted())}")

    def compacted(self) -> list[str]:
        """What the topic holds when all full files are compacted."""
        full = (len(self.sent) - 1) // PER_FILE * PER_FILE
        values = [(key, body.encode()) for key, body in self.sent]
        return [f"{offset} {key} {body.decode()}" for offset, key, body in newest(values, full)]


@pytest.fixture
def directories(java_bench: Bench, tmp_path: Path) -> Iterator[Callable[[str], Directory]]:
    with ExitStack() as stack:

        def make(name: str) -> Directory:
            path = tmp_path / name
            namesrv = stack.enter_context(bolide_namesrv(path / "namesrv"))
            return Directory(java_bench, namesrv.address, path)

        yield make


def told(lines: list[str]) -> list[str]:
    return [line for line in lines if line[:1].isdigit()]


def test_the_same_program_has_the_same_outcome_on_both_brokers(
    directories: Callable[[str], Directory],
) -> None:
    values = [*values_of("first", 23), ("k1", ""), *values_of("second", 3), ("k9", "last")]
    values += [("filler", str(number)) for number in range(10)]
    outcomes = []
    for name in ("java", "ours"):
        directory = directories(name)
        with directory.java() if name == "java" else directory.ours() as broker:
            created = directory.create(broker)
            lines = directory.send(broker, values, "nokey")
            count = len(directory.compacted())
            consumer = directory.bench.client(
                NEWEST, "ReceiveMessages", directory.namesrv, TOPIC, count, jvm=["-Ddeadline=30"]
            )
            assert consumer.wait()[-1] == f"received {count}"
            outcomes.append((name, created, lines, directory))
    (_, created, lines, directory), (_, created_ours, lines_ours, _) = outcomes
    assert lines_ours == lines
    assert lines[0].startswith("13 ")  # MESSAGE_ILLEGAL
    assert told(lines[1:]) == directory.compacted()
    assert ["success" in text for text in created] == [True, True, False, False], created
    assert ["success" in text for text in created_ours] == [True, True, False, False], created_ours


@pytest.mark.parametrize(
    ("first", "kill"),
    [
        ("ours", True),  # a clean stop of a Java broker takes long
        pytest.param("java", True, marks=pytest.mark.long),
        pytest.param("ours", False, marks=pytest.mark.long),
        pytest.param("java", False, marks=pytest.mark.long),
    ],
)
def test_a_store_goes_back_and_forth(
    directories: Callable[[str], Directory], first: str, kill: bool
) -> None:
    directory = directories("both")
    turns = [directory.ours, directory.java, directory.ours]
    if first == "java":
        turns = [directory.java, directory.ours, directory.java]
    for number, turn in enumerate(turns):
        with turn(kill=kill) as broker:
            if not number:
                directory.create(broker)
            else:
                assert told(directory.read(broker)) == directory.compacted()
            lines = directory.send(broker, values_of(f"turn{number}", 27))
            assert told(lines) == directory.compacted()
        report = verify(Layout.read_off(directory.root))
        assert report.sound, report.findings
        assert kill or report.compacted == len(directory.compacted())


@pytest.mark.long
def test_a_log_that_we_copy_has_the_bytes_that_java_writes(
    directories: Callable[[str], Directory],
) -> None:
    directory = directories("bytes")
    never: dict[str, Any] = {"compactionScheduleInternal": 3_600_000}
    commands = [f"{key}={body}" for key, body in values_of("value", 35)]
    with directory.java(**never) as broker:
        directory.create(broker)
        directory.run(broker, *commands, "read:35")
    java = contents(directory.root / "compaction")
    shutil.rmtree(directory.root / "compaction")
    with directory.ours(**never) as broker:
        directory.run(broker, "read:35")
    assert contents(directory.root / "compaction") == java
    assert len(java) == 8


def contents(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.glob("compaction*/**/*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}
