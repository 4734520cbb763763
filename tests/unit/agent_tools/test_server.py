"""`bolide mcp` without a cluster: the tools, their results, and confirmations."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

from bolide.admin import AdminClient
from bolide.agent_tools.confirmations import LIFETIME, IssuedTokens
from bolide.agent_tools.results import MAX_CHARACTERS, as_text, shorten
from bolide.agent_tools.server import Access, AgentServer
from bolide.agent_tools.tools import make_tools, name_operations
from bolide.operations.catalog import OPERATIONS
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Operation, Role
from bolide.operations.door import AuditEntry
from tests.support.agent_operations import OWN, SHELF
from tests.support.aio import on_loop, until

DOCS = Path(__file__).parents[3] / "docs"
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])
WRITER = Access(user="anna", role=Role.OPERATOR, allow_writes=True)
DROP = "agent_operations_drop_row"
PUT = "agent_operations_put_row"
LIST = "agent_operations_list_rows"


class Recorder:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def write(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


class User:
    """Answers what the client asks."""

    def __init__(self, answer: ElicitResult) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(
        self, _context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        self.asked.append(params.message)
        return self.answer


@pytest.fixture(autouse=True)
def shelf() -> Iterator[dict[str, int]]:
    SHELF.rows.clear()
    SHELF.rows.update(a=1, b=2)
    yield SHELF.rows
    SHELF.rows.clear()


@asynccontextmanager
async def connected(
    access: Access = WRITER, *, audit: Recorder | None = None, **options: Any
) -> AsyncIterator[Client]:
    async with AdminClient("127.0.0.1:1") as admin:
        cluster = Cluster(admin=admin, name_servers="127.0.0.1:1")
        server = AgentServer(cluster, OWN, access, audit or Recorder())
        async with server, Client(server.protocol, **options) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


@on_loop
async def test_tools_say_what_the_source_says() -> None:
    async with connected() as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}

    assert set(tools) == {
        LIST, PUT, DROP, "agent_operations_topics", "agent_operations_break_down",
    }  # fmt: skip
    listing = tools[LIST]
    assert listing.description == "Rows of the shelf.\n\nSorted by name."
    properties = listing.input_schema["properties"]
    assert properties["search"] == {
        "type": "string", "default": "", "description": "a part of the name.",
    }  # fmt: skip
    assert properties["kind"]["description"].endswith("those of the system are hidden otherwise.")
    assert listing.output_schema is not None
    row = listing.output_schema["$defs"]["Row"]["properties"]
    assert row["lag"]["description"] == "Messages behind; None if no broker told."
    assert listing.annotations is not None
    assert listing.annotations.read_only_hint
    assert "confirmation" not in tools[PUT].input_schema["properties"]
    assert "confirmation" in tools[DROP].input_schema["properties"]
    assert "confirmation" not in tools[DROP].input_schema["required"]
    hints = [tools[name].annotations for name in (PUT, DROP)]
    assert [(each.read_only_hint, each.destructive_hint) for each in hints if each] == [
        (False, False),
        (False, True),
    ]


def test_role_and_writes_decide_about_the_tools() -> None:
    def names(role: Role, *, allow_writes: bool) -> set[str]:
        tools = make_tools(OWN, role=role, allow_writes=allow_writes)
        return {name.removeprefix("agent_operations_") for name in tools}

    reads = {"list_rows", "topics", "break_down"}
    assert names(Role.VIEWER, allow_writes=False) == reads
    assert names(Role.VIEWER, allow_writes=True) == reads
    assert names(Role.OPERATOR, allow_writes=True) == reads | {"put_row", "drop_row"}
    assert names(Role.ADMIN, allow_writes=False) == reads | {"secrets"}


def test_names_say_the_subject_once() -> None:
    def named(*names: str) -> dict[str, str]:
        operations: list[Operation[Any, Any]] = []
        for each in names:
            module, _, function = each.partition(".")

            async def act(_cluster: Cluster) -> None: ...

            act.__module__, act.__name__ = f"bolide.operations.{module}", function
            operations.append(Operation(function=act, method="GET", path="/", role=Role.VIEWER))
        return {operation.name: name for name, operation in name_operations(operations).items()}

    assert named("topics.list_topics", "topics.create_topic", "sending.sending_options") == {
        "topics.list_topics": "topics_list",
        "topics.create_topic": "topics_create",
        "sending.sending_options": "sending_options",
    }
    assert named("dead_letters.list_dead_letter_groups", "servers.list_name_servers") == {
        "dead_letters.list_dead_letter_groups": "dead_letters_list_groups",
        "servers.list_name_servers": "servers_list_name_servers",
    }
    assert named("groups.reset_offsets") == {"groups.reset_offsets": "groups_reset_offsets"}
    assert named("topics.delete_topic", "topics.delete_topics") == {
        "topics.delete_topic": "topics_delete_topic",
        "topics.delete_topics": "topics_delete_topics",
    }


def test_every_operation_of_the_catalog_becomes_a_tool() -> None:
    tools = make_tools(OPERATIONS.values(), role=Role.ADMIN, allow_writes=True)

    assert {each.operation.name for each in tools.values()} == set(OPERATIONS)
    assert [name for name, each in tools.items() if not each.tool.description] == []
    assert [name for name in tools if len(name) > 48] == []
    singular = [tuple(word.removesuffix("s") for word in name.split("_")) for name in tools]
    assert len(singular) == len(set(singular)), "names that differ only by an s"
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", (DOCS / "how-to/agents.md").read_text()))
    assert "topics_list" in named
    assert named - set(tools) == set()


@ERAS
@on_loop
async def test_results_are_data_and_brief_text(mode: str) -> None:
    async with connected(mode=mode) as client:
        result = await client.call_tool(LIST, {"size": "1"})
        none = await client.call_tool(LIST, {"search": "nothing"})

    assert not result.is_error
    assert result.structured_content == {
        "items": [{"name": "a", "lag": 1}], "total": 2, "page": 1, "size": 1, "failures": [],
    }  # fmt: skip
    assert (
        text_of(result) == "items:\n  name | lag\n  a | 1\ntotal: 2\npage: 1\nsize: 1\nfailures: []"
    )
    assert none.structured_content["items"] == []


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        (PUT, {}, "row: is missing; the parameters are row, lag"),
        (PUT, {"row": "c", "lag": "many"}, "lag: Input should be a valid integer"),
        (PUT, {"row": "c", "Lag": 1}, "Lag: there is no such parameter; there are row, lag"),
        (PUT, {"row": "c", "confirmation": "yes"}, "confirmation: there is no such parameter"),
        (PUT, {"row": "c", "lag": -1}, "the row c cannot have a lag below 0"),
        (LIST, {"kind": "odd"}, "kind: Input should be 'normal' or 'system'"),
        (
            "agent_operations_secrets",
            {},
            "there is no tool 'agent_operations_secrets' for the role",
        ),
        ("agent_operations_break_down", {}, "a defect of the server (ZeroDivisionError)"),
        ("agent_operations_topics", {}, "127.0.0.1:1"),
    ],
)
@on_loop
async def test_errors_tell_what_to_do(tool: str, arguments: dict[str, Any], told: str) -> None:
    async with connected() as client:
        result = await client.call_tool(tool, arguments)

    assert result.is_error
    assert told in text_of(result)
    assert "Traceback" not in text_of(result)
    assert "c" not in SHELF.rows


@ERAS
@on_loop
async def test_client_without_forms_repeats_the_call_with_the_token(mode: str) -> None:
    audit = Recorder()
    async with connected(audit=audit, mode=mode) as client:

        async def drop(row: str = "a", **more: str) -> Any:
            result = await client.call_tool(DROP, {"row": row} | more)
            assert not result.is_error, text_of(result)
            return result.structured_content

        shown = await drop(secret="hush")
        assert shown["effect"] == {"topic": "a", "messages": 1}
        assert not shown["done"]
        token = shown["confirmation"]
        for wrong in ({"confirmation": "yes"}, {"confirmation": token, "row": "b"}):
            assert (await drop(**{"row": "a", "secret": "hush"} | wrong))["done"] is False
        SHELF.rows["a"] = 9  # the effect is another one now
        shown = await drop(secret="hush", confirmation=token)
        assert "was for another call or effect" in shown["next"]
        assert shown["effect"] == {"topic": "a", "messages": 9}
        assert audit.entries == []

        assert await drop(secret="hush", confirmation=shown["confirmation"]) == {"result": 9}
        assert SHELF.rows == {"b": 2}
        SHELF.rows["a"] = 9
        again = await drop(secret="hush", confirmation=shown["confirmation"])
        assert again["done"] is False, "a token is good for one call"

    (entry,) = audit.entries
    assert (entry.operation, entry.target) == ("agent_operations.drop_row", "row a")
    assert entry.arguments == {"row": "a", "secret": "***"}
    assert entry.caller.name == "anna"
    assert entry.caller.source.startswith("mcp")


@ERAS
@on_loop
async def test_client_with_forms_asks_its_user(mode: str) -> None:
    user = User(ElicitResult(action="accept", content={"confirm": True}))
    async with connected(mode=mode, elicitation_callback=user) as client:
        done = await client.call_tool(DROP, {"row": "a", "secret": "hush"})
        assert done.structured_content == {"result": 1}
        assert SHELF.rows == {"b": 2}
        assert "Take a row off the shelf." in user.asked[0]
        assert "messages: 1" in user.asked[0]
        assert "hush" not in user.asked[0]

        for answer in (
            ElicitResult(action="decline"),
            ElicitResult(action="cancel"),
            ElicitResult(action="accept", content={"confirm": False}),
            ElicitResult(action="accept"),
        ):
            user.answer = answer
            refused = await client.call_tool(DROP, {"row": "b"})
            assert refused.is_error
            assert "The user did not agree" in text_of(refused)
        with_token = await client.call_tool(DROP, {"row": "b", "confirmation": "anything"})
        assert with_token.is_error, "the user is asked all the same"
        assert SHELF.rows == {"b": 2}


@on_loop
async def test_change_goes_on_when_its_call_is_cancelled() -> None:
    audit = Recorder()
    async with connected(audit=audit, mode="legacy") as client:
        call = asyncio.ensure_future(client.call_tool(PUT, {"row": "slow"}))
        await asyncio.sleep(0.02)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: audit.entries)

    assert SHELF.rows["slow"] == 0
    assert audit.entries[0].error == ""


def test_token_expires() -> None:
    now = 0.0
    tokens = IssuedTokens(now=lambda: now)
    early, late = (tokens.issue("drop", {"row": "a"}, f"door-{each}") for each in "12")

    assert tokens.redeem(early, "drop", {"row": "a"}) == "door-1"
    now = LIFETIME + 1
    assert tokens.redeem(late, "drop", {"row": "a"}) is None


def test_long_list_is_cut_and_says_how_to_go_on() -> None:
    rows = [{"name": f"topic-{each:05}", "lag": each} for each in range(5000)]
    data: dict[str, Any] = {"items": rows, "total": 5000, "failures": []}

    notes = shorten(data, {"page": 1, "size": 5000, "search": ""})

    kept = len(data["items"])
    assert 500 < kept < 5000
    assert len(str(data)) < MAX_CHARACTERS * 1.2
    assert notes == [
        f"items has {kept} of 5000; for the rest, call again with size={kept} and page=2, 3, …"
    ]


def test_long_texts_are_cut_before_lists() -> None:
    data: dict[str, Any] = {"message": {"body": "x" * 100_000}, "items": [1, 2, 3]}

    notes = shorten(data, {})

    assert data["items"] == [1, 2, 3]
    assert data["message"]["body"] == "x" * 2000 + "…"
    assert notes == ["1 texts of more than 2000 characters end with …"]


def test_text_keeps_values_apart() -> None:
    data = {
        "name": "a", "lag": None, "on": True, "odd": "x | y", "line": "1\n2", "word": "unknown",
        "rows": [{"a": 1, "b": ["x"]}, {"a": None, "b": []}],
        "mixed": [{"a": {"b": 1}}, {"c": 2}],
        "inner": {"deep": "\u202e"},
    }  # fmt: skip

    assert as_text(data).splitlines() == [
        "name: a",
        "lag: unknown",
        "on: yes",
        'odd: "x | y"',
        'line: "1\\n2"',
        'word: "unknown"',
        "rows:",
        "  a | b",
        '  1 | ["x"]',
        "  unknown | []",
        "mixed[0]:",
        "  a:",
        "    b: 1",
        "mixed[1]:",
        "  c: 2",
        "inner:",
        '  deep: "\\u202e"',
    ]
