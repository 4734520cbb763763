"""The cells of the matrix: what a client does, and what must then have been seen.

Each function takes what a player told; the players in Java and in Python do the same and tell it in
the same words. The docstring is the title of the cell in the table.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import msgspec

from tests.interop.matrix.facts import Message
from tests.interop.matrix.witness import Witness

T = TypeVar("T")
SECOND = 1000
PATIENCE = 5.0

Check = Callable[["Seen"], None]
ADDED: list["Cell"] = []

KNOWN = {
    ("4.9", "java5", "batch"): "clients of 5.x give a batch an id of its own, which brokers of 4.9 "
    "put in place of the ids of its messages",
    ("4.9", "java5", "trace"): "consumers of 5.x trace only messages that name a region, and "
    "brokers of 4.9 name none in them",
    ("4.9", "java5", "lite-pull"): "lite pull of 5.x has a request of its own, which brokers of "
    "4.9 do not know",
}
"""What does not work between releases of Apache's, by broker, client and cell."""


@dataclass(frozen=True)
class Seen:
    """What a player saw in a cell, and where."""

    facts: msgspec.Raw
    topic: str
    group: str
    broker: str
    witness: Witness

    def told(self, kind: type[T]) -> T:
        return msgspec.json.decode(self.facts, type=kind)

    def committed(self, awaited: Mapping[int, int]) -> dict[int, int]:
        """The group's offsets by queue, soon those awaited: commits have no answer to wait for."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self.witness.committed(self.group, self.topic, awaited.keys())
            if found == awaited or time.monotonic() > deadline:
                return found
            time.sleep(0.05)


@dataclass(frozen=True)
class Cell:
    name: str
    title: str
    check: Check
    queues: int
    """Of its topic; with 0 the topic comes into being with the first send."""

    aged: bool
    """Whether the first messages of the topic are there no more."""

    ordered_queues: int
    """As how many its order is laid down at the name server; 0: it is not."""

    lacking: Mapping[str, str]
    """Brokers and clients that have nothing of the kind, and what to say of them."""

    beside: str
    """What a second topic has behind the name of the first; if empty, there is none."""

    def topic(self, client: str) -> str:
        return f"{client}_{self.name}"

    def topics(self, client: str) -> dict[str, int]:
        """How many queues the topics have that must be there when it begins."""
        topic = self.topic(client)
        names = [topic, f"{topic}_{self.beside}"] if self.beside else [topic]
        return dict.fromkeys(names, self.queues) if self.queues else {}


def cell(
    name: str = "",
    *,
    queues: int = 4,
    aged: bool = False,
    ordered_queues: int = 0,
    lacking: Mapping[str, str] | None = None,
    beside: str = "",
) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        key = name or check.__name__.replace("_", "-")
        title = (check.__doc__ or key).rstrip(".")
        ADDED.append(Cell(key, title, check, queues, aged, ordered_queues, lacking or {}, beside))
        return check

    return add


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"message {n}" for n in range(start, start + count)]


def bodies(messages: Iterable[Message]) -> list[str]:
    return [message.body for message in messages]


def in_queues(messages: Iterable[Message]) -> dict[int, list[Message]]:
    ordered = sorted(messages, key=lambda message: message.queue)
    return {queue: list(part) for queue, part in groupby(ordered, lambda message: message.queue)}
