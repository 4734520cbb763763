"""What every request passes before the application sees it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from bolide.console.service import Console
from bolide.console.settings import ConsoleSettings
from bolide.console.web.guard import Guard
from bolide.console.web.login_pages import own_path
from tests.support.aio import on_loop


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body, and answers how long it is."""
    size, is_over = 0, False
    while not is_over:
        message = await receive()
        size += len(message.get("body", b""))
        is_over = not message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % size})


def guard(tmp_path: Path, *, login: bool = True) -> Guard:
    settings = ConsoleSettings(name_servers="127.0.0.1:1", data=tmp_path, login=login)
    return Guard(_application, Console(settings))


async def ask(
    asked: Guard,
    path: str = "/healthz",
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    body: bytes = b"",
    kind: str = "http",
) -> tuple[int, bytes]:
    """Status and body of an answer; for a websocket the code of its end."""
    parts = [body[start : start + 65536] for start in range(0, len(body), 65536)] or [b""]
    sent: list[Message] = []
    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "client": ("127.0.0.1", 5),
        "headers": [
            (key.encode(), value.encode("latin-1"))
            for key, value in ({"host": "127.0.0.1:9877"} | dict(headers or {})).items()
        ],
    }

    async def receive() -> Message:
        if kind == "websocket":
            return {"type": "websocket.connect"}
        if not parts:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    await asked(scope, receive, send)
    status: int = sent[0].get("status") or sent[0]["code"]
    return status, b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1:9877", True),
        ("localhost:9877", True),
        ("LOCALHOST", True),
        ("[::1]:9877", True),
        ("evil.example:9877", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("10.0.0.5:9877", False),
        ("[::1", True),
        ("", False),
    ],
)
@on_loop
async def test_without_log_in_only_this_machine_is_named(
    tmp_path: Path, host: str, is_own: bool
) -> None:
    """A page whose name was made to lead to 127.0.0.1 is of the same origin for a browser."""
    opened = guard(tmp_path, login=False)
    for path in ("/", "/api/v1/topics", "/healthz"):
        status, _ = await ask(opened, path, {"host": host})
        assert status == (200 if is_own else 403), path
    if not is_own:
        status, _ = await ask(opened, "/_nicegui_ws/", {"host": host}, kind="websocket")
        assert status == 4401


@on_loop
async def test_with_log_in_any_name_leads_to_it(tmp_path: Path) -> None:
    status, _ = await ask(guard(tmp_path), "/healthz", {"host": "console.example"})
    assert status == 200


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null", "\xff", "//evil", ""])
@on_loop
async def test_malformed_origins_are_foreign(tmp_path: Path, origin: str) -> None:
    status, _ = await ask(guard(tmp_path), "/login", {"origin": origin}, method="POST")
    assert status == 403


@pytest.mark.parametrize(
    "target",
    ["//[", "/\ud800", "/\t/evil.example", "/\n", "//evil", "/\\evil", "http://[", "", "topics"],
)
def test_a_target_that_is_no_path_is_the_dashboard(target: str) -> None:
    assert own_path(target) == "/"


def test_a_path_is_a_target() -> None:
    for target in ("/topics/a%2Fb?tab=queues&search=[x]", "/consumers?search=订单"):
        assert own_path(target) == target


@pytest.mark.parametrize("announces", [True, False])
@pytest.mark.parametrize(("path", "limit"), [("/login", 64 * 1024), ("/api/v1/session", 64 * 1024)])
@on_loop
async def test_bodies_of_log_ins_are_small(
    tmp_path: Path, path: str, limit: int, announces: bool
) -> None:
    asked = guard(tmp_path)
    for size, expected in ((limit, 200), (limit + 1, 413), (20 * limit, 413)):
        headers = {"content-length": str(size)} if announces else {}
        status, answer = await ask(asked, path, headers, method="POST", body=b"x" * size)
        assert status == expected
        if expected == 413:
            assert answer.startswith(b"{" if "api" in path else b"<!doctype"), answer


@on_loop
async def test_no_body_is_larger_than_what_a_message_needs(tmp_path: Path) -> None:
    opened = guard(tmp_path, login=False)
    size = 8 * 1024 * 1024
    for path in ("/api/v1/messages", "/topics"):
        assert (await ask(opened, path, method="POST", body=b"x" * size))[0] == 200
        assert (await ask(opened, path, method="POST", body=b"x" * (size + 1)))[0] == 413
        announced = {"content-length": "9" * 30}
        assert (await ask(opened, path, announced, method="POST"))[0] == 413
