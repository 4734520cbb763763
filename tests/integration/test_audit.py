"""The audit log of real servers: what the command shows, also after a kill, and who is denied."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.admin import AdminClient
from bolide.auth.access import Identity, OpenAccess
from bolide.broker.gate import Gate
from bolide.cli import app
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission
from bolide.remoting.client import RemotingClient
from tests.interop.bench import BROKER_NEIGHBOURS
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess
from tests.support.aio import on_loop
from tests.support.broker import broker_in
from tests.support.name_servers import name_server
from tests.support.ports import free_port

SMALL = {"mappedFileSizeCommitLog": 16 * 2**20, "maxHashSlotNum": 1000, "maxIndexNum": 4000}


class Commands:
    """Admin commands to one broker."""

    def __init__(self, name_server: str, broker: str) -> None:
        self._name_server = name_server
        self.broker = broker

    def __call__(self, *words: str) -> str:
        done = CliRunner().invoke(app, ["admin", *words, "-n", self._name_server])
        assert done.exit_code == 0, (words, done.output, done.exception)
        return done.output

    def audit(self, *words: str) -> list[dict[str, Any]]:
        printed = self("audit", "-b", self.broker, "--json", *words)
        return [json.loads(line) for line in printed.splitlines()]


def test_who_changed_what_is_shown_and_survives_a_kill(tmp_path: Path) -> None:
    port = free_port(BROKER_NEIGHBOURS)
    with bolide_namesrv(tmp_path / "namesrv") as names:

        def broker() -> Any:
            return bolide_broker(tmp_path, names.address, listenPort=port, **SMALL)

        with broker() as running:
            run = Commands(names.address, running.address)
            at = ("-b", running.address)
            run("updateTopic", *at, "-t", "Orders", "-r", "4", "-w", "4")
            run("updateTopic", *at, "-t", "Orders", "-r", "4", "-w", "4", "-p", "4")
            run("updateBrokerConfig", *at, "-k", "fileReservedTime", "-v", "48")
            run("updateSubGroup", *at, "-g", "billing", "-r", "3")
            run("resetOffsetByTime", "-g", "billing", "-t", "Orders", "-s", "now", "-y")
            run("deleteSubGroup", *at, "-g", "billing", "-r", "true", "-y")
            run("deleteTopic", "-c", "DefaultCluster", "-t", "Orders", "-y")
            before = run.audit()
            running.kill()
        with broker():
            after = run.audit()
            table = run("audit", *at)
            of_group = run.audit("--target", "billing")
            of_nobody = run.audit("--user", "nobody")
            of_today = run.audit("--since", "1d")

    assert after[: len(before)] == before == of_today
    assert [each["request"] for each in before] == [
        "UPDATE_AND_CREATE_TOPIC",
        "UPDATE_AND_CREATE_TOPIC",
        "UPDATE_BROKER_CONFIG",
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
        "INVOKE_BROKER_TO_RESET_OFFSET",
        "DELETE_SUBSCRIPTIONGROUP",
        "DELETE_TOPIC_IN_BROKER",
    ]
    created, changed, setting, _, reset, deleted, gone = before
    assert created["before"] == {"Orders": None}
    assert changed["before"] == {"Orders": {"perm": 6}}
    assert changed["after"] == {"Orders": {"perm": 4}}
    assert setting["before"]["fileReservedTime"] == "72"
    assert setting["after"]["fileReservedTime"] == "48"
    assert reset["after"]["offsets of Orders"] == dict.fromkeys("0123", 0)
    assert deleted["before"]["billing"]["retryMaxTimes"] == 3
    assert gone["after"]["Orders"] is None
    assert all(each["peer"].startswith("127.0.0.1:") and each["user"] is None for each in before)
    assert {each["request"] for each in of_group} == {
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
        "INVOKE_BROKER_TO_RESET_OFFSET",
        "DELETE_SUBSCRIPTIONGROUP",
    }
    assert not of_nobody
    assert "Orders: {perm=6} -> {perm=4}" in table


class NoDeletion(OpenAccess):
    """Nobody may delete topics; all else is allowed."""

    def check(self, request: Frame, peer: str) -> Identity:
        if request.code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_KV_CONFIG):
            raise NoPermission(f"{peer} may not delete")
        return Identity("alice", peer, is_verified=True)


@on_loop
async def test_a_denied_attempt_is_shown_with_its_peer_and_reason(tmp_path: Path) -> None:
    gate = Gate(access=NoDeletion())
    async with (
        broker_in(tmp_path, gate=gate) as broker,
        RemotingClient() as client,
        AdminClient("127.0.0.1:1") as admin,
    ):
        with pytest.raises(NoPermission):
            await client.call(
                broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}
            )
        (entry,) = [each async for each in admin.audit.each(broker.address)]
    record = entry.record
    assert (record.denied, record.code, record.target) == (True, 16, {"topic": "Orders"})
    assert record.remark == f"{record.peer} may not delete"


@on_loop
async def test_changes_of_a_name_server_are_lines_of_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "bolide.audit"):
        async with name_server(tmp_path) as server, RemotingClient() as client:
            for value in ("broker-a:4", "broker-a:8"):
                fields = {"namespace": "N", "key": "K", "value": value}
                await client.call(server.address, RequestCode.PUT_KV_CONFIG, fields)
            await client.call(
                server.address,
                RequestCode.UPDATE_NAMESRV_CONFIG,
                body=b"enableTopicList=false\n",
            )
            await client.call(
                server.address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}
            )
            address = server.address
    lines = [json.loads(each.message) for each in caplog.records if each.name == "bolide.audit"]
    requests = [line["request"] for line in lines]
    assert requests == ["PUT_KV_CONFIG"] * 2 + [
        "UPDATE_NAMESRV_CONFIG", "WIPE_WRITE_PERM_OF_BROKER",
    ]  # fmt: skip
    assert lines[0]["before"] == {"K": None}
    assert (lines[1]["before"], lines[1]["after"]) == ({"K": "broker-a:4"}, {"K": "broker-a:8"})
    assert lines[2]["after"]["enableTopicList"] == "false"
    assert lines[3]["after"] == {"wipeTopicCount": "0"}
    assert lines[0]["server"] == f"namesrv {address}"


def test_who_follows_the_log_gets_what_is_written_after_a_restart(tmp_path: Path) -> None:
    port = free_port(BROKER_NEIGHBOURS)
    with bolide_namesrv(tmp_path / "namesrv") as names:

        def broker() -> Any:
            return bolide_broker(tmp_path, names.address, listenPort=port, **SMALL)

        def update(topic: str) -> None:
            run("updateTopic", "-b", f"127.0.0.1:{port}", "-t", topic, "-r", "1", "-w", "1")

        run = Commands(names.address, f"127.0.0.1:{port}")
        words = ["audit", "-b", f"127.0.0.1:{port}", "--json", "--follow", "-n", names.address]
        command = [sys.executable, "-m", "bolide", "admin", *words]
        with broker() as running:
            update("Before")
            follower = ChildProcess("audit", command, os.environ)
            follower.wait_for_line("Before")
            running.kill()
            follower.wait_for_line("cannot connect")
        with follower, broker():
            update("After")
            follower.wait_for_line("After")
        assert len([line for line in follower.stdout if "Before" in line]) == 1
