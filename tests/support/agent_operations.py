"""Operations for tests of `bolide mcp`, and `bolide` with these operations.

They are not declared with the decorators, so that nothing else in a test process has them.
"""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bolide.cli import main
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import OPERATIONS, Operation, Role
from bolide.operations.errors import Conflict
from bolide.operations.views import Page, page_of


class Kind(StrEnum):
    NORMAL = "normal"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    lag: int | None = None
    """Messages behind; None if no broker told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    topic: str
    messages: int
    """That would be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """What the test operations change."""

    rows: dict[str, int] = field(default_factory=dict)


SHELF = Shelf()


async def list_rows(
    cluster: Cluster,
    *,
    search: str = "",
    kind: Kind = Kind.NORMAL,
    page: int = 1,
    size: int = 50,
) -> Page[Row]:
    """Rows of the shelf.

    Sorted by name.

    Args:
        search: a part of the name.
        kind: which of them; those of the system are
            hidden otherwise.
        page: from 1.
    """
    rows = [Row(name=name, lag=lag) for name, lag in sorted(SHELF.rows.items()) if search in name]
    return page_of(rows, page=page, size=size)


async def topics(cluster: Cluster) -> list[str]:
    """Names of all topics of the cluster."""
    return await cluster.admin.topics.names()


async def put_row(cluster: Cluster, *, row: str, lag: int = 0) -> Row:
    """Put a row on the shelf."""
    if lag < 0:
        raise Conflict(f"the row {row} cannot have a lag below 0")
    await asyncio.sleep(0.05 if row == "slow" else 0)
    SHELF.rows[row] = lag
    return Row(name=row, lag=lag)


async def effect_of(cluster: Cluster, *, row: str) -> Effect:
    return Effect(topic=row, messages=SHELF.rows[row])


async def drop_row(cluster: Cluster, *, row: str, secret: str = "") -> int:
    """Take a row off the shelf.

    Its messages are lost.
    """
    return SHELF.rows.pop(row)


async def break_down(cluster: Cluster) -> str:
    """Has a defect."""
    raise ZeroDivisionError("inside")


async def secrets(cluster: Cluster) -> dict[str, str]:
    """For admins."""
    return {"a": "b"}


OWN: list[Operation[Any, Any]] = [
    Operation(function=list_rows, method="GET", path="/rows", role=Role.VIEWER),
    Operation(function=topics, method="GET", path="/names", role=Role.VIEWER),
    Operation(function=break_down, method="GET", path="/broken", role=Role.VIEWER),
    Operation(function=secrets, method="GET", path="/secrets", role=Role.ADMIN),
    Operation(
        function=put_row, method="PUT", path="/rows/{row}", role=Role.OPERATOR, target="row {row}"
    ),
    Operation(
        function=drop_row,
        method="DELETE",
        path="/rows/{row}",
        role=Role.OPERATOR,
        target="row {row}",
        preview=effect_of,
        secret=frozenset({"secret"}),
    ),
]


def run() -> None:
    """`bolide` with the operations of tests besides its own."""
    OPERATIONS.update({each.name: each for each in OWN})
    main()
