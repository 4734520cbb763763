"""Accounts, limits on failed log-ins, and sessions."""

import asyncio
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bolide.console.access import accounts as accounts_module
from bolide.console.access.accounts import Accounts, check_password
from bolide.console.access.attempts import Attempts
from bolide.console.access.sessions import Sessions
from bolide.errors import ConfigError
from bolide.operations.declaration import Role
from bolide.operations.errors import BadInput, Conflict, NotFound
from tests.support.aio import on_loop

PASSWORD = "correct-horse-7"


@on_loop
async def test_the_first_start_makes_an_admin_with_a_one_time_password(tmp_path: Path) -> None:
    file = tmp_path / "new" / "accounts.json"
    accounts = Accounts(file)
    password = await accounts.ensure_first(None)
    assert password is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert password not in file.read_text()
    again = await Accounts(file).ensure_first(None)
    assert again not in {None, password}  # nobody has used it: it may be lost
    accounts = Accounts(file)
    assert await accounts.verify("admin", password) is None
    found = await accounts.verify("admin", again or "")
    assert found is not None
    assert (found.role, found.must_change) == (Role.ADMIN, True)
    assert await Accounts(file).ensure_first(None) is None


@on_loop
async def test_a_given_first_password_is_not_printed_nor_changed(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path / "accounts.json")
    assert await accounts.ensure_first(PASSWORD) is None
    found = await accounts.verify("admin", PASSWORD)
    assert found is not None
    assert not found.must_change
    assert await accounts.ensure_first("another-one-8") is None
    assert await accounts.verify("admin", PASSWORD) is not None


@on_loop
async def test_accounts_are_made_changed_and_deleted(tmp_path: Path) -> None:
    file = tmp_path / "accounts.json"
    accounts = Accounts(file)
    await accounts.ensure_first(PASSWORD)
    first = await accounts.create("eve", Role.VIEWER)
    assert await accounts.verify("eve", "nonsense-1") is None
    assert (await Accounts(file).verify("eve", first)) is not None
    await accounts.set_password("eve", "a-new-one-99")
    assert not accounts.find_known("eve").must_change
    await accounts.set_role("eve", Role.OPERATOR)
    assert [(each.name, each.role) for each in Accounts(file).list()] == [
        ("admin", Role.ADMIN),
        ("eve", Role.OPERATOR),
    ]
    with pytest.raises(Conflict, match="already"):
        await accounts.create("eve", Role.VIEWER)
    with pytest.raises(BadInput, match="name"):
        await accounts.create("../eve", Role.VIEWER)
    await accounts.delete("eve")
    with pytest.raises(NotFound, match="eve"):
        await accounts.delete("eve")


@on_loop
async def test_changes_side_by_side_do_not_undo_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a password is hashed, in a thread, others change the account."""
    accounts = Accounts(tmp_path / "accounts.json")
    await accounts.ensure_first(PASSWORD)
    for name in ("eve", "adam", "cain"):
        await accounts.create(name, Role.ADMIN)
    password = await accounts.reset_password("cain")
    is_hashing, may_go_on = threading.Event(), threading.Event()

    def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            is_hashing.set()
            assert may_go_on.wait(10)
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("_hashed", "_matches"):
            patch.setattr(accounts_module, name, slowed(getattr(accounts_module, name)))
        slow = [
            asyncio.create_task(accounts.set_password("eve", "a-new-one-99")),
            asyncio.create_task(accounts.reset_password("adam")),
            asyncio.create_task(accounts.create("seth", Role.VIEWER)),
            asyncio.create_task(accounts.create("seth", Role.OPERATOR)),
            asyncio.create_task(accounts.verify("cain", password)),
        ]
        await asyncio.to_thread(is_hashing.wait, 10)
        await accounts.set_role("eve", Role.VIEWER)
        await accounts.delete("adam")
        await accounts.delete("cain")
        may_go_on.set()
        _, reset, *created, verified = await asyncio.gather(*slow, return_exceptions=True)
    assert accounts.find_known("eve").role is Role.VIEWER
    assert await accounts.verify("eve", "a-new-one-99") is not None
    assert isinstance(reset, NotFound)
    assert sum(isinstance(each, Conflict) for each in created) == 1
    assert verified is None
    assert [each.name for each in Accounts(tmp_path / "accounts.json").list()] == [
        "admin",
        "eve",
        "seth",
    ]
    both = [accounts.set_role("seth", Role.ADMIN), accounts.set_role("admin", Role.VIEWER)]
    await asyncio.gather(*both)
    last = await asyncio.gather(
        accounts.create("abel", Role.ADMIN),
        accounts.delete("seth"),
        return_exceptions=True,
    )
    assert isinstance(last[1], Conflict)


@on_loop
async def test_the_last_admin_stays(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path / "accounts.json")
    await accounts.ensure_first(PASSWORD)
    with pytest.raises(Conflict, match="last"):
        await accounts.delete("admin")
    with pytest.raises(Conflict, match="last"):
        await accounts.set_role("admin", Role.VIEWER)


@pytest.mark.parametrize("password", ["short", "aaaaaaaaaaaa", "x" * 300, "administrator"])
def test_easy_passwords_are_refused(password: str) -> None:
    with pytest.raises(BadInput, match="password"):
        check_password(password)


@pytest.mark.parametrize("content", ["not json", '{"admin": {"role": "king", "password": "a:b"}}'])
def test_a_damaged_file_stops_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "accounts.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match="accounts"):
        Accounts(file)


def test_failures_make_wait_longer_and_longer() -> None:
    now = 0.0
    attempts = Attempts(lambda: now)
    for _ in range(5):
        assert attempts.wait("admin", "10.0.0.1") == 0
        attempts.failed("admin", "10.0.0.1")
    assert attempts.wait("admin", "10.0.0.1") == 1
    assert attempts.wait("admin", "10.0.0.2") == 0  # nobody can lock somebody else out
    now = 1.0
    attempts.failed("admin", "10.0.0.1")
    assert attempts.wait("admin", "10.0.0.1") == 2
    attempts.succeeded("admin", "10.0.0.1")
    assert attempts.wait("admin", "10.0.0.1") == 0
    for number in range(40):
        attempts.failed(f"name-{number}", "10.0.0.3")
    assert attempts.wait("another", "10.0.0.3") == 300
    for _ in range(6):
        attempts.failed("a name", "10.0.0.4")
    assert attempts.wait("", "10.0.0.4") == 0  # of an address there may be more than of a name
    now = 2000.0
    assert attempts.wait("another", "10.0.0.3") == 0


def test_log_ins_that_succeed_do_not_make_their_address_wait() -> None:
    """Behind a proxy all have one address; attempts are counted before they are made."""
    attempts = Attempts(lambda: 0.0)
    for number in range(100):
        attempts.failed(f"name-{number}", "10.0.0.1")
        attempts.succeeded(f"name-{number}", "10.0.0.1")
    assert attempts.wait("another", "10.0.0.1") == 0
    for number in range(29):
        attempts.failed(f"guess-{number}", "10.0.0.1")
    for _ in range(5):  # one's own account is no way to guess on at others
        assert attempts.wait("own", "10.0.0.1") == 0
        attempts.failed("own", "10.0.0.1")
        attempts.succeeded("own", "10.0.0.1")
    attempts.failed("guess", "10.0.0.1")
    assert attempts.wait("own", "10.0.0.1") > 0


def test_sessions_end_by_log_out_expiry_and_idleness() -> None:
    sessions = Sessions(lifetime=3600, idle_limit=600)
    told = []
    token, session = sessions.start("eve", Role.VIEWER)
    session.on_end.add(lambda: told.append("eve"))
    assert sessions.find(token) is session
    assert sessions.find("guess") is None
    assert sessions.find(None) is None
    sessions.end(session)
    assert (told, sessions.find(token), session.is_valid) == (["eve"], None, False)
    token, session = sessions.start("eve", Role.VIEWER)
    session.last_used -= 601
    assert sessions.find(token) is None
    token, session = sessions.start("eve", Role.VIEWER)
    session.expires -= 3601
    assert sessions.find(token) is None


def test_the_session_of_everybody_goes_on() -> None:
    sessions = Sessions(lifetime=3600, idle_limit=600)
    everybody = sessions.endless("everybody", Role.ADMIN)
    sessions.end(everybody)
    assert everybody.is_valid


@on_loop
async def test_expired_sessions_are_told_without_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bolide.console.access.sessions._SWEEP_EVERY", 0.01)
    sessions = Sessions(lifetime=0.05, idle_limit=600)
    ended = asyncio.Event()
    _, session = sessions.start("eve", Role.VIEWER)
    session.on_end.add(ended.set)
    sweeping = asyncio.create_task(sessions.sweep())
    await asyncio.wait_for(ended.wait(), 5)
    sweeping.cancel()


def test_a_changed_account_loses_its_other_sessions_only() -> None:
    sessions = Sessions(lifetime=3600, idle_limit=600)
    token, own = sessions.start("eve", Role.VIEWER)
    other, _ = sessions.start("eve", Role.VIEWER)
    stranger, _ = sessions.start("adam", Role.VIEWER)
    sessions.end_all_of("eve", but=own)
    assert sessions.find(token) is own
    assert sessions.find(other) is None
    assert sessions.find(stranger) is not None
