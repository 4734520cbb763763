"""The state behind the pages: sessions of programs that send name and password."""

import asyncio
from pathlib import Path

import pytest

from bolide.console.access.log_in_records import MAX_FAILURES, LogInRecords
from bolide.console.access.login import LoggedIn, LoginFailed, TooManyAttempts
from bolide.console.service import Console
from bolide.console.settings import ConsoleSettings
from bolide.operations.audit_store import AuditUnavailable
from bolide.operations.cluster import Identity
from bolide.operations.declaration import Role
from bolide.operations.door import AuditEntry
from bolide.operations.errors import Conflict
from tests.support.aio import on_loop

PASSWORD = "correct-horse-7"


@pytest.fixture
def entries() -> list[AuditEntry]:
    return []


@pytest.fixture
def console(tmp_path: Path, entries: list[AuditEntry]) -> Console:
    """It is not started: no connection, and its audit log is a list."""
    made = Console(ConsoleSettings(name_servers="127.0.0.1:1", data=tmp_path))
    made._records = LogInRecords(_Audit(entries))
    return made


class _Audit:
    def __init__(self, entries: list[AuditEntry]) -> None:
        self._entries = entries

    async def write(self, entry: AuditEntry) -> None:
        self._entries.append(entry)


@on_loop
async def test_nobody_logs_everybody_out(console: Console) -> None:
    everybody = console.sessions.endless("everybody", Role.ADMIN)
    with pytest.raises(Conflict, match="no log-in"):
        await console.log_out(everybody, "console 10.0.0.1")
    assert everybody.is_valid


class _Login:
    """Counts log-ins; the wrong password fails."""

    def __init__(self) -> None:
        self.count = 0

    async def check(self, name: str, password: str, address: str) -> LoggedIn:
        self.count += 1
        await asyncio.sleep(0.01)
        if password != PASSWORD:
            raise LoginFailed
        return LoggedIn(user=name, role=Role.VIEWER)


@on_loop
async def test_parallel_requests_of_a_program_share_one_log_in(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = _Login()
    monkeypatch.setattr(console, "login", login)

    def ask(password: str, address: str = "10.0.0.1") -> asyncio.Task[object]:
        return asyncio.create_task(console.session_of_password("eve", password, address))

    asked = [ask(PASSWORD) for _ in range(20)]
    await asyncio.sleep(0)
    asked[0].cancel()  # who goes away does not take the others along
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert len(set(found[1:])) == 1
    assert login.count == 1
    assert await ask(PASSWORD) is found[1]
    assert await ask(PASSWORD, "10.0.0.2") is not found[1]
    assert login.count == 2
    failed = await asyncio.gather(*(ask("guess") for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in failed} == {LoginFailed}
    assert login.count == 3
    with pytest.raises(LoginFailed):
        await ask("guess")
    assert login.count == 4


@on_loop
async def test_log_ins_are_written_down(
    console: Console, entries: list[AuditEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "login", _Login())
    _, session = await console.log_in("eve", PASSWORD, "10.0.0.1")
    await console.log_out(session, "api 10.0.0.1")
    for _ in range(2):  # every minute
        found = await console.session_of_password("robot", PASSWORD, "10.0.0.2")
        console.sessions.end(found)
    with pytest.raises(LoginFailed):
        await console.session_of_password("mallory", "guess", "10.0.0.3")
    assert [
        (each.operation, each.target, each.caller.source, bool(each.error)) for each in entries
    ] == [
        ("session.log_in", "user eve", "console 10.0.0.1", False),
        ("session.log_out", "user eve", "api 10.0.0.1", False),
        ("session.log_in", "user robot", "api 10.0.0.2", False),
        ("session.log_in", "user mallory", "api 10.0.0.3", True),
    ]
    assert PASSWORD not in repr(entries)


def test_the_audit_log_tells_users_of_the_cluster_from_accounts(console: Console) -> None:
    """Both may have the same name."""
    keys = Identity(access_key="eve", secret_key=PASSWORD)
    _, of_cluster = console.sessions.start("eve", Role.OPERATOR, identity=keys)
    _, own = console.sessions.start("eve", Role.OPERATOR)
    assert console._caller(own, "api 10.0.0.1").source == "api 10.0.0.1"
    assert console._caller(of_cluster, "api 10.0.0.1").source == "api 10.0.0.1, user of the cluster"


@on_loop
async def test_failed_log_ins_flood_neither_the_log_nor_the_audit_log(
    entries: list[AuditEntry], caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    records = LogInRecords(_Audit(entries), clock=lambda: now)
    for number in range(500):
        await records.failed(f"a\nforged line {number} " + "x" * 500, "api 10.0.0.1", LoginFailed())
    assert len(entries) == MAX_FAILURES
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(lines) == 1
    assert "a\\nforged line 0" in lines[0]
    assert "10.0.0.1" in lines[0]
    assert len(lines[0]) < 300
    now = 3600.0
    await records.failed("eve", "api 10.0.0.1", TooManyAttempts(3.0))
    assert entries[-1].arguments == {"left_out_before": 500 - MAX_FAILURES}
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 2


@on_loop
async def test_an_audit_log_that_cannot_be_written_keeps_nobody_out(
    console: Console, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        async def write(self, entry: AuditEntry) -> None:
            raise AuditUnavailable("the disk is full")

    monkeypatch.setattr(console, "login", _Login())
    monkeypatch.setattr(console, "_records", LogInRecords(Full()))
    _, session = await console.log_in("eve", PASSWORD, "10.0.0.1")
    assert session.is_valid
    assert "the disk is full" in caplog.text
