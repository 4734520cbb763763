"""The log-in page, which anybody sees."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from bolide.console.access.log_in_records import LogInRecords
from bolide.console.access.login import LoggedIn, LoginFailed
from bolide.console.service import Console
from bolide.console.settings import ConsoleSettings
from bolide.console.web.login_pages import login_router
from bolide.operations.door import AuditEntry
from tests.support.aio import on_loop


class NoAudit:
    async def write(self, entry: AuditEntry) -> None:
        pass


class Refusing:
    async def check(self, name: str, password: str, address: str) -> LoggedIn:
        raise LoginFailed


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    made = FastAPI()
    settings = ConsoleSettings(name_servers="10.9.8.7:9876", data=tmp_path)
    console = Console(settings)
    console._records = LogInRecords(NoAudit())
    monkeypatch.setattr(console, "login", Refusing())
    made.include_router(login_router(console))

    @made.middleware("http")
    async def be_nobody(
        request: Request, go_on: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        request.state.session = None
        return await go_on(request)

    return made


@pytest.mark.parametrize(
    ("address", "host", "is_shown"),
    [
        ("127.0.0.1", "localhost:9877", True),
        ("::1", "[::1]:9877", True),
        ("10.0.0.5", "10.0.0.1:9877", False),
        ("10.0.0.5", "localhost", False),
        ("127.0.0.1", "console.example", False),
    ],
)
@on_loop
async def test_only_this_machine_is_told_the_name_servers(
    app: FastAPI, address: str, host: str, is_shown: bool
) -> None:
    transport = httpx.ASGITransport(app, client=(address, 5))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        answer = await client.get("/login")
        assert answer.status_code == 200
        assert ("10.9.8.7:9876" in answer.text) == is_shown
        answer = await client.post("/login", data={"user": "eve", "password": "guess"})
        assert answer.status_code == 401
        assert ("10.9.8.7:9876" in answer.text) == is_shown
