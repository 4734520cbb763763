"""The state behind the pages: sessions of programs that send name and password."""

import asyncio
from pathlib import Path

import pytest

from bolide.console.access.login import LoggedIn, LoginFailed
from bolide.console.service import Console
from bolide.console.settings import ConsoleSettings
from bolide.operations.declaration import Role
from bolide.operations.errors import Conflict
from tests.support.aio import on_loop

PASSWORD = "correct-horse-7"


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(ConsoleSettings(name_servers="127.0.0.1:1", data=tmp_path))


@on_loop
async def test_nobody_logs_everybody_out(console: Console) -> None:
    everybody = console.sessions.endless("everybody", Role.ADMIN)
    with pytest.raises(Conflict, match="no log-in"):
        await console.log_out(everybody)
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
