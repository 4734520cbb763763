"""A command's way to the cluster and back."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from bolide.admin import AdminClient
from bolide.cli.exits import FAILED, fail
from bolide.errors import BolideError

T = TypeVar("T")


def run(name_server: str | None, act: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Let `act` use a client; an error of ours ends the program with one line."""
    try:
        return asyncio.run(_run(name_server, act))
    except BolideError as exc:
        fail(reason_of(exc), FAILED)


def warn(exc: BolideError) -> None:
    """Tell of a failure that does not stop the rest."""
    print(f"{Path(sys.argv[0]).name}: {reason_of(exc)}", file=sys.stderr)


def reason_of(exc: BolideError) -> str:
    """One line that says what failed, and where."""
    text = " ".join(str(exc).split()) or type(exc).__name__
    notes = "".join(f" ({note})" for note in getattr(exc, "__notes__", ()))
    return text + notes


async def _run(name_server: str | None, act: Callable[[AdminClient], Awaitable[T]]) -> T:
    async with AdminClient(name_server) as admin:
        return await act(admin)


async def targets(
    admin: AdminClient, broker: str | None, cluster: str | None, *, slaves: bool = False
) -> list[str]:
    """The brokers that -b or -c means."""
    if broker is not None:
        return [broker]
    assert cluster is not None
    choose = admin.clusters.members if slaves else admin.clusters.masters
    return await choose(cluster)
