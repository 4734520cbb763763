"""Players: one process for a client with a broker, that plays cells and tells what it saw."""

import os
import re
import sys
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from tests.interop import golang
from tests.interop.bench import Bench
from tests.interop.matrix.brokers import Cluster
from tests.interop.matrix.cells import Cell, Seen
from tests.interop.matrix.facts import Line
from tests.interop.matrix.witness import Witness
from tests.interop.processes import ChildProcess

REPOSITORY = Path(__file__).resolve().parents[3]
OURS = "ours"
GO = "go"
CLIENTS: Mapping[str, str] = {
    OURS: OURS,
    "java5": "5.x",
    "java49": "4.9 client",
    "java47": "4.7 client",
    "java42": "4.2 client",
    GO: GO,
}
"""By the prefix of its topics: ours, names in versions.toml, and the client for Go."""

AT_ONCE = 2
PATIENCE = 110.0

# Rebalancing is quick where a cell waits for it: for retry topics, which come with the first retry.
JVM = ("-Drocketmq.client.rebalance.waitInterval=1000",)


class CellFailed(Exception):
    """The player could not play the cell; the text is its traceback."""


class Absent(Exception):
    """The client or the broker has nothing of the kind."""


@dataclass(frozen=True)
class Play:
    """A player at work."""

    client: str
    cluster: Cluster
    process: ChildProcess

    def seen(self, cell: Cell) -> Seen:
        """What the player saw in the cell, once it has told."""
        line = self.process.wait_for_line(f'^{{"cell":"{re.escape(cell.name)}"', PATIENCE)
        told = msgspec.json.decode(line, type=Line)
        if told.failure:
            raise CellFailed(told.failure)
        if bytes(told.facts).startswith(b'{"missing":'):
            raise Absent(msgspec.json.decode(told.facts, type=dict[str, str])["missing"])
        return Seen(
            facts=told.facts,
            topic=cell.topic(self.client),
            group=f"{cell.topic(self.client)}_group",
            broker=self.cluster.broker,
            witness=witness(self.cluster),
        )


class Players:
    """The players of one cluster, a few at a time."""

    def __init__(self, cluster: Cluster, bench: Bench) -> None:
        self._cluster = cluster
        self._bench = bench
        self._turns = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="player")
        self._plays: dict[str, Future[Play]] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        for play in self._plays.values():
            if not play.cancel() and play.done() and not play.exception():
                play.result().process.kill()
        self._turns.shutdown(cancel_futures=True)

    @property
    def broker(self) -> str:
        return self._cluster.broker

    def begin(self, client: str, cells: Iterable[Cell]) -> None:
        """Let the client play these cells when its turn comes."""
        started: Future[Play] = Future()
        self._plays[client] = started
        playable = [cell for cell in cells if not self._missing(client, cell)]
        self._turns.submit(self._take_turn, client, playable, started)

    def seen(self, client: str, cell: Cell) -> Seen:
        if reason := self._missing(client, cell):
            raise Absent(reason)
        return self._plays[client].result(PATIENCE).seen(cell)

    def _missing(self, client: str, cell: Cell) -> str:
        if client == GO and cell.name not in golang.cells():
            return "not played with the client for Go"
        return cell.lacking.get(self.broker) or cell.lacking.get(client) or ""

    def _take_turn(self, client: str, cells: Sequence[Cell], started: Future[Play]) -> None:
        if self._closed or not started.set_running_or_notify_cancel():
            return
        try:
            play = start(client, cells, self._cluster, self._bench)
        except BaseException as failure:  # noqa: BLE001 - told by whoever asks for the play
            started.set_exception(failure)
            return
        started.set_result(play)
        play.process.wait_for_end(PATIENCE)


def start(client: str, cells: Sequence[Cell], cluster: Cluster, bench: Bench) -> Play:
    topics = dict(ChainMap(*(cell.topics(client) for cell in cells)))
    witness(cluster).create_topics(topics)
    for cell in cells:
        if cell.ordered_queues:
            witness(cluster).lay_down_order(cell.topic(client), cell.ordered_queues)
    names = [cell.name for cell in cells]
    arguments = (cluster.namesrv_address, cluster.broker_address, client, *names)
    if client == OURS:
        process = _our_player(arguments)
    elif client == GO:
        process = bench.executable(golang.obtain(), *arguments)
    else:
        process = bench.client(CLIENTS[client], "Player", *arguments, jvm=JVM)
    return Play(client, cluster, process)


def witness(cluster: Cluster) -> Witness:
    return Witness(cluster.broker_address, cluster.namesrv_address)


def _our_player(arguments: Sequence[str]) -> ChildProcess:
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(REPOSITORY)])
    command = [sys.executable, "-m", "tests.interop.matrix.ours", *arguments]
    return ChildProcess("our player", command, os.environ | {"PYTHONPATH": path})
