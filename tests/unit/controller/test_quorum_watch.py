"""A quorum without a leader says so, and names the peers that are missing."""

from pathlib import Path

import pytest

from bolide.controller import server as module
from bolide.controller.config import Peer
from bolide.controller.server import QuorumWatch
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock
from tests.support.controllers import controller, free_peers

PEERS = [Peer(f"n{number}", f"h{number}:1", f"h{number}:101") for number in range(3)]


class FakeNode:
    def __init__(self) -> None:
        self.knows_leader = False
        self.missing = ["h1:101"]

    def unconnected(self) -> list[str]:
        return self.missing


class Bench:
    def __init__(self) -> None:
        self.clock, self.node = FakeClock(100.0), FakeNode()
        self.watch = QuorumWatch(self.node, PEERS, self.clock)

    def look(self, seconds: float) -> None:
        """Look each second."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            self.watch.look()


def test_elections_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for _ in range(5):
        bench.look(4)
        bench.node.knows_leader = True
        bench.look(1)
        bench.node.knows_leader = False
    assert not caplog.text


def test_a_quorum_without_a_leader_is_reported_rarely(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.look(250)
    (line,) = caplog.messages
    assert "no controller has led for 5 s" in line and "needs 2 of 3" in line
    assert "not connected: n1 at h1:101." in line and "controllerRaftPassword" in line
    bench.node.missing = []
    bench.look(100)
    assert len(caplog.messages) == 2 and "all others are connected" in caplog.messages[1]
    bench.node.knows_leader = True
    bench.look(3)
    bench.node.knows_leader = False
    bench.look(6)
    assert "leader again, after 35" in caplog.messages[2]
    assert len(caplog.messages) == 4  # the next time it is reported at once


@on_loop
async def test_one_of_three_alone_names_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_LEADERLESS", 1.0)
    peers = free_peers(3)
    async with controller(tmp_path, peers, 0) as one:
        await until(lambda: "no controller has led" in caplog.text)
        for each in one.config.value.peers:
            is_named = f"{each.id} at {each.raft_address}" in caplog.text
            assert is_named == (each.id != "n0")
        async with controller(tmp_path, peers, 1):
            await until(lambda: "the controllers have a leader again" in caplog.text)
