"""Clusters for code without `await`: one for each connection, for as long as the process lives."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bolide.arrow.cluster import PATIENCE, Cluster
from bolide.arrow.connection import Connection
from bolide.client.blocking import LoopThread

T = TypeVar("T")

_opened: dict[Connection, "asyncio.Task[Cluster]"] = {}
"""Used on the loop's thread only."""

os.register_at_fork(after_in_child=_opened.clear)  # nothing of them lives there


def ask(
    connection: Connection,
    question: Callable[[Cluster], Awaitable[T]],
    *,
    patience: float = PATIENCE,
) -> T:
    """Ask a cluster and wait for the answer: `ask(connection, lambda c: c.bounds(queues))`.

    Connections stay open for the next question, and end with the process; a forked child makes
    its own.
    """

    async def answer() -> T:
        return await question(await open_cluster(connection, patience))

    return LoopThread.get().wait(answer())


async def open_cluster(connection: Connection, patience: float = PATIENCE) -> Cluster:
    """The cluster of a connection in this process; to be called on the thread of `LoopThread`.

    Raises:
        ConfigError: the connection cannot be used.
    """
    if connection not in _opened or _has_failed(_opened[connection]):
        opening = Cluster(connection).__aenter__()
        _opened[connection] = asyncio.create_task(opening)  # two may want it at once
    return (await asyncio.shield(_opened[connection])).patient(patience)


def _has_failed(opening: "asyncio.Task[Cluster]") -> bool:
    """What was wrong, such as a certificate that was not there, may be right by now."""
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
