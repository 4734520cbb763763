"""Messages are found by tags: on Apache's broker and ours, in a store that either wrote."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.cli import app
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_broker
from tests.interop.test_priority import SIZES
from tests.support.ports import free_port


class Store:
    """One store that brokers have in turn, and the two mqadmins that query it."""

    def __init__(self, bench: Bench, directory: Path) -> None:
        self.bench = bench
        self.directory = directory
        self.namesrv = bench.namesrv(NEWEST).address
        self._settings: dict[str, Any] = {
            "listenPort": free_port(BROKER_NEIGHBOURS),
            "storePathRootDir": str(directory / "store"),
            "brokerName": "broker-a",
            **SIZES,
        }

    @contextmanager
    def turn(self, kind: str) -> Iterator[Server]:
        if kind == "java":
            server = self.bench.broker(NEWEST, self.namesrv, **self._settings)
            yield server
            server.kill()
            (self.directory / "store" / "lock").unlink(missing_ok=True)
            return
        with bolide_broker(self.directory / "ours", self.namesrv, **self._settings) as server:
            yield server
            server.kill()

    def send(self, *tags: str) -> None:
        words = ["sendMessage", "-t", "Tagged", "-p", "x", "-k", "key", "-n", self.namesrv]
        for each in tags:
            done = CliRunner().invoke(app, ["admin", *words, "-c", each])
            assert done.exit_code == 0, done.output

    def found(self, tags: str) -> tuple[int, int]:
        """How many messages Java's mqadmin and ours find."""
        words = ["queryMsgByKey", "-t", "Tagged", "-k", tags, "-p", "T"]
        printed = self.bench.mqadmin(NEWEST, *words, namesrv=self.namesrv)
        ours = CliRunner().invoke(app, ["admin", *words, "-n", self.namesrv])
        assert ours.exit_code == 0, ours.output
        return _count(printed), _count(ours.output)


def _count(printed: str) -> int:
    return len(re.findall(r"^[0-9A-F]{32} ", printed, re.MULTILINE))


@pytest.mark.parametrize(
    ("first", "second"), [("ours", "java"), pytest.param("java", "ours", marks=pytest.mark.long)]
)
def test_messages_are_found_by_tags_in_a_store_that_a_killed_broker_left(
    java_bench: Bench, tmp_path: Path, first: str, second: str
) -> None:
    store = Store(java_bench, tmp_path)
    with store.turn(first):
        store.send("paid", "late", "paid")
        assert store.found("paid") == (2, 2)
    with store.turn(second):
        store.send("paid")
        assert store.found("paid") == (3, 3)
        assert store.found("late") == (1, 1)
