"""The one door: roles, confirmations and the audit log."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Operation, Role
from bolide.operations.door import CONFIRMED, AuditEntry, Caller, Door
from bolide.operations.errors import ConfirmationNeeded, NotFound, RoleTooLow
from tests.support.aio import on_loop


@dataclass
class Log:
    entries: list[AuditEntry] = field(default_factory=list)

    async def write(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


@dataclass
class Shelf:
    """What the operations of these tests change."""

    books: dict[str, int] = field(default_factory=lambda: {"a": 1})


def caller(role: Role = Role.OPERATOR) -> Caller:
    return Caller(name="eve", role=role, source="test")


def cluster() -> Cluster:
    return Cluster(admin=AdminClient("127.0.0.1:1"), name_servers="127.0.0.1:1")


def operations(shelf: Shelf) -> tuple[Operation[..., Any], Operation[..., Any]]:
    async def look(_: Cluster, book: str) -> dict[str, int | None]:
        """Look."""
        return {"copies": shelf.books.get(book)}

    async def remove(_: Cluster, book: str, token: str = "") -> int:
        """Remove a book."""
        if book not in shelf.books:
            raise NotFound(f"no book {book}")
        return shelf.books.pop(book)

    reading = Operation(function=look, method="GET", path="/books/{book}", role=Role.VIEWER)
    removing = Operation(
        function=remove,
        method="DELETE",
        path="/books/{book}",
        role=Role.OPERATOR,
        target="book {book}",
        preview=look,
        state=look,
        secret=frozenset({"token"}),
    )
    return reading, removing


@on_loop
async def test_reading_needs_a_role_and_leaves_no_trace() -> None:
    log, (reading, removing) = Log(), operations(Shelf())
    door = Door(log)
    assert await door.run(reading, cluster(), caller(Role.VIEWER), {"book": "a"}) == {"copies": 1}
    with pytest.raises(RoleTooLow, match="operator"):
        await door.run(removing, cluster(), caller(Role.VIEWER), {"book": "a"})
    with pytest.raises(RoleTooLow):
        await door.preview(removing, cluster(), caller(Role.VIEWER), {"book": "a"})
    assert log.entries == []


@on_loop
async def test_what_destroys_is_run_only_with_the_token_of_its_present_effect() -> None:
    shelf, log = Shelf(), Log()
    _, removing = operations(shelf)
    door = Door(log)
    with pytest.raises(ConfirmationNeeded) as needed:
        await door.run(removing, cluster(), caller(), {"book": "a"})
    assert needed.value.effect == {"copies": 1}
    shelf.books["a"] = 2  # somebody else was faster
    with pytest.raises(ConfirmationNeeded) as again:
        await door.run(
            removing, cluster(), caller(), {"book": "a"}, confirmation=needed.value.token
        )
    with pytest.raises(ConfirmationNeeded):  # a token is for one call, not for another
        await door.run(removing, cluster(), caller(), {"book": "b"}, confirmation=again.value.token)
    assert shelf.books == {"a": 2}
    token = again.value.token
    assert await door.preview(removing, cluster(), caller(), {"book": "a"}) == (
        {"copies": 2},
        token,
    )
    assert (await door.run(removing, cluster(), caller(), {"book": "a"}, confirmation=token)) == 2
    assert shelf.books == {}


@on_loop
async def test_changes_are_written_with_before_and_after_and_without_secrets() -> None:
    log, (_, removing) = Log(), operations(Shelf())
    arguments = {"book": "a", "token": "hush"}
    await Door(log).run(removing, cluster(), caller(), arguments, confirmation=CONFIRMED)
    [entry] = log.entries
    assert (entry.target, entry.operation) == ("book a", removing.name)
    assert (entry.before, entry.after) == ({"copies": 1}, {"copies": None})
    assert entry.arguments == {"book": "a", "token": "***"}


@on_loop
async def test_failures_are_written_too() -> None:
    log, (_, removing) = Log(), operations(Shelf({}))
    with pytest.raises(NotFound):
        await Door(log).run(removing, cluster(), caller(), {"book": "z"}, confirmation=CONFIRMED)
    assert log.entries[0].error == "no book z"


@on_loop
async def test_a_change_that_is_cut_off_is_written_as_such() -> None:
    started = asyncio.Event()

    async def hang(_: Cluster) -> None:
        started.set()
        await asyncio.Event().wait()

    log = Log()
    operation = Operation(function=hang, method="POST", path="/hang", role=Role.VIEWER, target="it")
    running = asyncio.create_task(Door(log).run(operation, cluster(), caller(), {}))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "interrupted" in log.entries[0].error


@on_loop
async def test_many_who_ask_the_same_ask_once() -> None:
    shared = cluster()
    asked = 0

    async def fetch() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        if asked == 1:
            raise BolideError("not yet")
        return asked

    async def ask() -> int:
        return await shared.shared("figures", fetch, seconds=60)

    answers = await asyncio.gather(*(ask() for _ in range(5)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {BolideError}
    assert await asyncio.gather(*(ask() for _ in range(5))) == [2] * 5
    shared.forget("fig")
    assert await ask() == 3
