"""A master and a slave of one broker group, each one Java's or ours, that can be restarted."""

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigTable
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.bodies.topics import TopicConfig, TopicConfigTable
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from bolide.store.tables import DelayOffsets
from tests.interop.bench import BROKER_DEFAULTS, BROKER_NEIGHBOURS, Bench, Server
from tests.interop.ours import bolide_broker
from tests.support.ports import free_port

T = TypeVar("T")

OURS = "ours"
PATIENCE = 60.0

UNMAPPING = ("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",)
"""What 4.9 needs with Java 17 to recover a store after it was killed."""
SYNC_OFTEN = ("-DsyncMillis=1000",)
"""A slave of 5.x copies the tables of its master every minute otherwise; 4.9 every 10 s."""

# All members must have log files of the same size; these are small, so that several are filled.
# The others are those of the bench, so that a store can go from one implementation to the other.
SIZES: dict[str, str | int | bool] = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    **{
        key: BROKER_DEFAULTS[key]
        for key in ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
    },
}


class Member:
    """One broker of a group: its directory and port stay the same when it starts again.

    Args:
        kind: "ours", or a release of RocketMQ.
    """

    def __init__(
        self, bench: Bench, kind: str, namesrv: str, directory: Path, **settings: Any
    ) -> None:
        self.kind = kind
        self._bench = bench
        self._namesrv = namesrv
        self._directory = directory
        self._settings = {
            "listenPort": free_port(BROKER_NEIGHBOURS),
            "brokerIP2": "127.0.0.1",
            "slaveReadEnable": True,
            **SIZES,
            **settings,
        }
        self.address = f"127.0.0.1:{self._settings['listenPort']}"
        self.store = directory / "store"
        self._running = ExitStack()
        self.server: Server

    def start(self, **settings: Any) -> None:
        """Start the broker; settings given here replace earlier ones."""
        self._settings |= settings
        if self.kind == OURS:
            self.server = self._running.enter_context(
                bolide_broker(self._directory, self._namesrv, **self._settings)
            )
        else:
            self.server = self._bench.broker(
                self.kind,
                self._namesrv,
                jvm=(*UNMAPPING, *SYNC_OFTEN),
                storePathRootDir=str(self.store),
                storePathCommitLog=str(self.store / "commitlog"),
                **self._settings,
            )

    def become(self, kind: str, **settings: Any) -> None:
        """Start the other implementation with this member's store."""
        self.stop()
        self.kind = kind
        self.start(**settings)

    def stop(self) -> None:
        self.server.stop()
        self._running.close()

    def kill(self) -> None:
        self.server.kill()
        self._running.close()

    def pause(self) -> None:
        os.killpg(self.server.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.server.process.pid, signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def log(self) -> bytes:
        """The bytes of the commit log up to its end."""
        return b"".join(file.read_bytes() for file in self._log_files()).rstrip(b"\0")

    def log_start(self) -> int:
        """The position of the first byte in the log; -1 without a log."""
        return next((int(file.name) for file in self._log_files()), -1)

    def _log_files(self) -> list[Path]:
        return sorted((self.store / "commitlog").glob("[0-9]" * 20))


class Tables(NamedTuple):
    """Metadata of a broker that slaves copy."""

    topics: dict[str, TopicConfig | None]
    groups: dict[str, GroupConfig | None]
    offsets: dict[str, dict[int, int]]
    delay_offsets: dict[int, int]


@contextmanager
def members(bench: Bench, namesrv: str, directory: Path) -> Iterator[Callable[..., Member]]:
    """Make members that are stopped at the end."""
    made: list[Member] = []

    def make(kind: str, number: int = 0, **settings: Any) -> Member:
        role = "SLAVE" if number else "ASYNC_MASTER"
        settings = {"brokerId": number, "brokerRole": role} | settings
        member = Member(bench, kind, namesrv, directory / f"member-{len(made)}", **settings)
        made.append(member)
        member.start()
        return member

    try:
        yield make
    finally:
        for member in made:
            member.kill()


def eventually(look: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition that no event tells of: other processes bring it about."""
    deadline = time.monotonic() + patience
    while not look():
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}"
        time.sleep(0.1)


def await_equal_logs(master: Member, slave: Member, patience: float = PATIENCE) -> None:
    """Wait until the slave's log is the master's, byte for byte."""
    eventually(lambda: slave.log_start() == master.log_start(), "the logs begin alike", patience)
    deadline = time.monotonic() + patience
    while (theirs := slave.log()) != (ours := master.log()):
        if time.monotonic() > deadline:
            assert len(theirs) == len(ours)
            pairs = enumerate(zip(ours, theirs, strict=True))
            first = next(number for number, pair in pairs if len(set(pair)) > 1)
            raise AssertionError(f"the logs differ from {first} of {len(ours)} on")
        time.sleep(0.2)


def java_errors(server: Server, pattern: str = "Exception") -> list[str]:
    """Lines of a Java broker's log with a pattern."""
    text = (server.directory / "logs" / "rocketmq.log").read_text(errors="replace")
    return [line for line in text.splitlines() if re.search(pattern, line)]


async def tables_of(member: Member, topics: Collection[str], groups: Collection[str]) -> Tables:
    """What a broker tells about some topics and groups, in the answers that slaves copy."""
    address = member.address
    async with RemotingClient() as client:

        async def ask(code: RequestCode, shape: type[T]) -> T:
            return fastjson.decode((await client.call(address, code)).body, shape)

        configs = await ask(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)
        group_configs = await ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupConfigTable)
        offsets = await ask(RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets)
        delays = await ask(RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets)
    file = member.store / "config" / "delayOffset.json"
    if not delays.offset_table and file.exists():
        # A slave of 4.9 stores the master's answer and reads it when it starts again.
        delays = fastjson.decode(file.read_bytes(), DelayOffsets)
    return Tables(
        {name: configs.topic_config_table.get(name) for name in topics},
        {name: group_configs.subscription_group_table.get(name) for name in groups},
        {
            key: numbers
            for key, numbers in offsets.offset_table.items()
            if key.partition("@")[0] in topics
        },
        delays.offset_table,
    )
