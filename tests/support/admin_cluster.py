"""A NameServer and a broker of ours as processes, and the admin commands run against them."""

import itertools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from tests.support.commands import Running

SMALL = ("mappedFileSizeCommitLog=16777216", "maxHashSlotNum=1000", "maxIndexNum=4000")
PORTS = ("--namesrv-port", "0", "--broker-port", "0")
CLUSTER = ("-c", "DefaultCluster")
NOBODY = "127.0.0.1:1"

_numbers = itertools.count()


@dataclass(frozen=True)
class Cluster:
    name_server: str
    broker: str

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints on both streams, if it ends with that code."""
        done = CliRunner().invoke(app, ["admin", *words, "-n", self.name_server])
        assert done.exit_code == code, (words, done.output, done.exception)
        return done.output

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def topic(self, queues: int = 2) -> str:
        """A new topic."""
        name = f"Topic-{next(_numbers)}"
        self.run("updateTopic", "-b", self.broker, "-t", name, "-r", str(queues), "-w", str(queues))
        return name

    def send(self, topic: str, text: str, *options: str) -> Any:
        """What sendMessage tells, once the message can be found by key."""
        sent = self.json("sendMessage", "-t", topic, "-p", text, "-k", "all", *options)
        self._await_index(topic, sent["messageId"])
        return sent

    def _await_index(self, topic: str, message_id: str) -> None:
        words = ["admin", "queryMsgByUniqueKey", "-t", topic, "-i", message_id]
        for _ in range(200):
            done = CliRunner().invoke(app, [*words, "--json", "-n", self.name_server])
            if done.exit_code == 0:
                return
        raise AssertionError(f"{message_id} is not found: {done.output}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("BOLIDE_", "NAMESRV_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("TMPDIR", str(home))
        words = ("--host", "127.0.0.1", "--data", str(home / "data"), *PORTS, *SMALL)
        running = Running("bolide", "standalone", *words)
        try:
            broker = running.wait_for(r"The broker\[\S+, (\S+)\] boot success")[1]
            name_server = running.wait_for(r"Name Server boot success.* address (\S+)")[1]
            yield Cluster(name_server, broker)
        finally:
            running.stop()
            running.process.communicate()


def columns(printed: str) -> list[list[str]]:
    """The cells of a table, cut where its titles begin; what is not a cell breaks the cut."""
    lines = [line for line in printed.splitlines() if line]
    starts = [match.start() for match in re.finditer("#", lines[0])]
    bounds = list(itertools.pairwise([*starts, None]))
    for line in lines[1:]:
        assert all(line[at - 1 : at].strip() == "" for at in starts[1:]), printed
    return [[line[begin:end].strip() for begin, end in bounds] for line in lines]
