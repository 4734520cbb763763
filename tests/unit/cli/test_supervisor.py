"""Supervisor: servers that end or cannot be started, and how this is reported."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from bolide.broker.settings.config import BrokerConfig
from bolide.cli.broker_workers import server
from bolide.cli.standalone import StandaloneSettings
from bolide.cli.supervisor import FailedToStart, Server, Supervisor, describe_exit, send_signal_to
from bolide.logs import LogLevel
from tests.support.aio import ended


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (3, "ended with exit code 3"),
        (-9, "was ended by SIGKILL"),
        (-40, "was ended by signal 40"),
    ],
)
def test_the_end_of_a_server_is_told_whatever_ended_it(code: int, said: str) -> None:
    assert describe_exit(code) == said


def test_one_that_cannot_even_be_started_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FailedToStart, match=r"worker-0 cannot be started: .*/nowhere/python"):
        asyncio.run(Supervisor([[Server("worker-0", ())]]).run(lambda: None))


def test_a_signal_to_one_that_ends_leaves_its_exit_code_alone() -> None:
    codes = asyncio.run(_codes_of_killed(10))  # on the event loop of the supervisor
    assert codes == [-signal.SIGKILL] * 10


async def _codes_of_killed(count: int) -> list[int]:
    return [await _code_of_one_killed() for _ in range(count)]


async def _code_of_one_killed() -> int:
    process = await asyncio.create_subprocess_exec("sleep", "60")
    process.kill()
    until = time.monotonic() + 0.01
    while time.monotonic() < until:  # the process ends meanwhile, before its exit code is polled
        send_signal_to(process, signal.SIGCONT)
    await ended(process)
    assert process.returncode is not None
    return process.returncode


def test_secrets_of_workers_are_not_on_their_command_lines() -> None:
    settings = {"initAuthenticationUser": "hidden", "brokerName": "b"}
    found = server("worker-0", "broker", {}, settings, BrokerConfig)
    assert found.words == ("broker", "brokerName=b")
    assert found.environment == {"BOLIDE_BROKER_INIT_AUTHENTICATION_USER": "hidden"}
    assert "hidden" not in repr(found)


def test_the_servers_of_standalone_have_the_same_first_user(tmp_path: Path) -> None:
    first = '{"username":"root","password":"hidden"}'
    given = {"authenticationEnabled": "true", "initAuthenticationUser": first}
    ports = {"namesrv": 9876, "broker": 10911}
    settings = StandaloneSettings.of(
        given, data=tmp_path, host=None, ports=ports, level=LogLevel.INFO
    )
    assert settings.name_server.init_authentication_user == first
    assert "hidden" in (settings.broker.inner_client_authentication_credentials or "")
