"""`bolide mcp` as a program, with the SDK's own client, on a cluster of ours."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from typer.testing import CliRunner

from bolide.cli import app
from bolide.cli.agents import TOKEN_VARIABLE
from tests.support.admin_cluster import NOBODY, Cluster
from tests.support.aio import ended, on_loop

TOKEN = "a-token-for-tests-only"
_PROGRAM = "from tests.support.agent_operations import run; run()"
START = 60.0
"""Seconds that the program may take to start beside the rest of the suite."""
LIST, PUT, DROP, TOPICS = (
    f"agent_operations_{name}" for name in ("list_rows", "put_row", "drop_row", "topics")
)


def command(*words: str) -> list[str]:
    """`bolide mcp` with the operations of the tests besides its own."""
    return [sys.executable, "-c", _PROGRAM, "mcp", *words]


def environment(home: Path, **more: str) -> dict[str, str]:
    return os.environ | {"HOME": str(home)} | more


def over_stdio(home: Path, *words: str) -> StdioServerParameters:
    program, *rest = command(*words)
    return StdioServerParameters(command=program, args=rest, env=environment(home))


@asynccontextmanager
async def started(
    home: Path, *words: str, **more: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The program serving HTTP on a port of the kernel's, and what it printed up to its address."""
    process = await asyncio.create_subprocess_exec(
        *command("--http", "127.0.0.1:0", *words),
        env=environment(home, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START):
            printed = (await process.stderr.readline()).decode()
        assert "http://" in printed, printed + (await process.stderr.read()).decode()
        yield process, printed
    finally:
        if process.returncode is None:
            process.terminate()
        await ended(process)


@asynccontextmanager
async def over_http(address: str, token: str = TOKEN, **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(address, http_client=http), **options) as client,
    ):
        yield client


def test_agent_reads_over_stdio(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic()

    @on_loop
    async def scenario() -> None:
        parameters = over_stdio(tmp_path, "-n", cluster.name_server)
        async with Client(parameters) as client:
            tools = {each.name for each in (await client.list_tools()).tools}
            assert client.server_info is not None
            assert client.server_info.name == "bolide"
            assert "never instructions" in (client.instructions or "")
            assert {LIST, TOPICS} <= tools
            assert not tools & {PUT, DROP}
            result = await client.call_tool(TOPICS)
            assert topic in result.structured_content["result"]

    scenario()
    assert not (tmp_path / ".bolide").exists(), "who only reads leaves nothing"


def test_agent_changes_over_stdio_and_the_audit_tells(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "audit.db"

    @on_loop
    async def scenario() -> None:
        words = ("-n", cluster.name_server, "--allow-writes", "--audit-log", str(log))
        async with Client(over_stdio(tmp_path, *words), mode="legacy") as client:
            await client.call_tool(PUT, {"row": "a", "lag": 3})
            shown = (await client.call_tool(DROP, {"row": "a"})).structured_content
            again = {"row": "a", "confirmation": shown["confirmation"]}
            done = await client.call_tool(DROP, again)
            assert done.structured_content == {"result": 3}

    scenario()
    rows = sqlite3.connect(log).execute("select role, operation, source from entries order by id")
    assert [(role, operation) for role, operation, _ in rows.fetchall()] == [
        (2, "agent_operations.put_row"),
        (2, "agent_operations.drop_row"),
    ]


def test_agent_works_over_http(cluster: Cluster, tmp_path: Path) -> None:
    """Both eras of the protocol, a wrong token, foreign names and origins, and the end."""
    topic = cluster.topic()

    @on_loop
    async def scenario() -> None:
        words = ("-n", cluster.name_server, "--allow-host", "agents.example.com")
        async with started(tmp_path, *words, **{TOKEN_VARIABLE: TOKEN}) as (process, printed):
            address = printed.split()[-1]
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", address)
            for mode in ("auto", "legacy"):
                async with over_http(address, mode=mode) as client:
                    result = await client.call_tool(TOPICS)
                    assert topic in result.structured_content["result"]
            await check_doors(address)
            async with over_http(address, mode="legacy"):
                process.terminate()
                out, rest = await ended(process)
            assert process.returncode == 0
            assert out == b""
            assert b"Traceback" not in rest, rest.decode()
            assert TOKEN.encode() not in rest

    scenario()


async def check_doors(address: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    own = address.removeprefix("http://").removesuffix("/mcp")
    host, _, port = own.partition(":")
    async with httpx2.AsyncClient() as http:

        async def status(token: str | None = TOKEN, **headers: str) -> int:
            sent = {"Accept": "application/json, text/event-stream"} | headers
            if token is not None:
                sent["Authorization"] = f"Bearer {token}"
            return (await http.post(address, json=message, headers=sent)).status_code

        accepted = await status()
        assert accepted not in {401, 403, 421}
        assert [await status(None), await status("x"), await status(TOKEN + "x")] == [401] * 3
        assert await status(Host="evil.example.com") == 421
        assert await status(Host=f"evil.example.com:{port}") == 421
        assert await status(Origin="http://evil.example.com") == 403
        assert await status(Origin=f"http://{host}:1") == 403
        assert await status(Origin=f"http://{own}") == accepted
        assert await status(Host="agents.example.com") == accepted


@on_loop
async def test_token_is_made_and_printed_once(tmp_path: Path) -> None:
    async with started(tmp_path, "-n", NOBODY) as (process, printed):
        assert process.stderr is not None
        token = (await process.stderr.readline()).decode().removeprefix("Token: ").strip()
        assert len(token) >= 32
        async with over_http(printed.split()[-1], token) as client:
            result = await client.call_tool(TOPICS)
        assert result.is_error
        assert isinstance(result.content[0], TextContent)
        assert NOBODY in result.content[0].text


@on_loop
async def test_signal_ends_the_program_while_it_waits_for_its_client(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        process = await asyncio.create_subprocess_exec(
            *command("-n", NOBODY),
            env=environment(tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        hello = {
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }  # fmt: skip
        process.stdin.write(json.dumps(hello).encode() + b"\nno message\n")
        try:
            async with asyncio.timeout(START):
                answer = json.loads(await process.stdout.readline())
            assert answer["result"]["serverInfo"]["name"] == "bolide"
        finally:
            process.send_signal(number)
            out, errors = await ended(process)
        assert process.returncode == 0, errors.decode()
        assert b"Traceback" not in errors
        for line in out.splitlines():
            assert json.loads(line)["jsonrpc"] == "2.0"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (
            ["--allow-writes", "--role", "viewer"],
            2,
            "--allow-writes needs --role operator or admin",
        ),
        (["--allow-host", "a"], 2, "--allow-host needs --http"),
        (["--http", "host:port"], 2, "not an address of the form host:port"),
        (["--http", "203.0.113.1:80"], 3, "cannot listen on 203.0.113.1:80"),
        (["--http", "0"], 3, f"{TOKEN_VARIABLE} has less than 16 characters"),
    ],
)
def test_wrong_options_are_told(
    words: list[str], code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "short" if words[-1] == "0" else TOKEN)

    ran = CliRunner().invoke(app, ["mcp", "-n", NOBODY, *words])

    assert (ran.exit_code, ran.stdout) == (code, "")
    assert told in " ".join(ran.stderr.split())


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    program = "import sys; sys.modules['mcp'] = None; from bolide.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "mcp", "-n", NOBODY],
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START,
        check=False,
    )

    assert (ran.returncode, ran.stdout) == (3, "")
    assert 'pip install "bolide[mcp]"' in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
