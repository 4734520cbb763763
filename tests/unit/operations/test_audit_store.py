import asyncio
import stat
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from bolide.operations.audit_store import (
    MAX_VALUE_BYTES,
    AuditQuery,
    AuditStore,
    AuditUnavailable,
    StoredPage,
)
from bolide.operations.declaration import Role
from bolide.operations.door import AuditEntry, Caller


@dataclass(frozen=True)
class TopicState:
    queues: int
    tags: frozenset[str] = frozenset()


def entry(number: int, *, user: str = "ada", error: str = "", **values: object) -> AuditEntry:
    return AuditEntry(
        caller=Caller(name=user, role=Role.OPERATOR, source="api 127.0.0.1"),
        operation="topics.update_topic",
        target=f"topic T{number}",
        arguments={"topic": f"T{number}", **values},
        before=TopicState(number, frozenset({"b", "a"})),
        after=TopicState(number + 1),
        error=error,
    )


def targets(page: StoredPage) -> list[str]:
    return [stored.entry.target for stored in page.entries]


def test_entries_are_read_newest_first_with_filters_and_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "console" / "audit.db"
    clock = count(1000)

    async def write() -> None:
        async with AuditStore(path, now=lambda: float(next(clock))) as store:
            for number in range(5):
                await store.write(entry(number, user="bob" if number % 2 else "ada"))
            await store.write(entry(5, error="no such broker", note="\ud800 100% _x'"))

    async def read(query: AuditQuery, skip: int = 0, limit: int = 100) -> StoredPage:
        async with AuditStore(path) as store:
            return await store.page(query, skip=skip, limit=limit)

    asyncio.run(write())
    page = asyncio.run(read(AuditQuery(), skip=1, limit=2))
    assert (targets(page), page.total) == (["topic T4", "topic T3"], 6)
    stored = page.entries[1]
    assert stored.time_ms == 1_003_000
    assert stored.entry.caller == Caller(name="bob", role=Role.OPERATOR, source="api 127.0.0.1")
    assert stored.entry.before == {"queues": 3, "tags": ["a", "b"]}
    assert stored.entry.after == {"queues": 4, "tags": []}

    assert targets(asyncio.run(read(AuditQuery(user="bob")))) == ["topic T3", "topic T1"]
    assert targets(asyncio.run(read(AuditQuery(failed=True)))) == ["topic T5"]
    assert targets(asyncio.run(read(AuditQuery(failed=False, target="t5")))) == []
    window = AuditQuery(since_ms=1_001_000, until_ms=1_003_000)
    assert targets(asyncio.run(read(window))) == ["topic T2", "topic T1"]
    assert targets(asyncio.run(read(AuditQuery(search="0% _X'")))) == ["topic T5"]
    assert asyncio.run(read(AuditQuery(operation="UPDATE"))).total == 6
    assert asyncio.run(read(AuditQuery(operation="topics_"))).total == 0  # no patterns
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_store_is_bounded_by_number_and_by_bytes(tmp_path: Path) -> None:
    async def run(
        name: str, numbers: range, padding: int, max_entries: int = 100, max_bytes: int = 10**6
    ) -> StoredPage:
        async with AuditStore(
            tmp_path / name, max_entries=max_entries, max_bytes=max_bytes
        ) as store:
            for number in numbers:
                await store.write(entry(number, text="x" * padding))
            return await store.page(AuditQuery(), skip=0, limit=10)

    kept = asyncio.run(run("number", range(6), 0, max_entries=3))
    assert (targets(kept), kept.total) == (["topic T5", "topic T4", "topic T3"], 3)
    assert asyncio.run(run("number", range(6, 7), 0, max_entries=2)).total == 2  # opened again
    assert targets(asyncio.run(run("bytes", range(6), 5000, max_bytes=12_000))) == [
        "topic T5",
        "topic T4",
    ]
    huge = asyncio.run(run("huge", range(1), MAX_VALUE_BYTES)).entries[0].entry
    assert list(huge.arguments) == ["left out"]
    assert huge.target == "topic T0"


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    async def run() -> int:
        path = tmp_path / "audit.db"
        async with AuditStore(path) as one, AuditStore(path) as other:
            writes = [store.write(entry(n)) for n in range(10) for store in (one, other)]
            await asyncio.gather(*writes)
            return (await other.page(AuditQuery(), skip=0, limit=1)).total

    assert asyncio.run(run()) == 20


def test_a_file_that_is_no_audit_log_is_named(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    path.write_text("not a database, but long enough to be taken for the head of one" * 10)

    async def run() -> None:
        async with AuditStore(path):
            pass

    with pytest.raises(AuditUnavailable, match=r"audit\.db cannot be opened: file is not"):
        asyncio.run(run())
