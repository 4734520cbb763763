"""A process with consumers, one for each group it is told of, that notes all it gets.

Usage: python -m tests.soak.member NAME_SERVER TOPIC NOTES GROUP...
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bolide import PushConsumer
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.remoting import event_loop
from tests.soak.letters import number_of
from tests.soak.notes import Checkpointer, Kind

GROUPS = ("soak-concurrent", "soak-ordered")
"""The number of a group in the notes is its place here; only the last one is ordered."""

_SLOW = 97
_SLOW_SECONDS = 0.03


class Member:
    """A consumer of one group and its notes."""

    def __init__(self, group: str, notes: Checkpointer) -> None:
        self.is_ordered = group == GROUPS[-1]
        self._group = group
        self._number = GROUPS.index(group)
        self._notes = notes
        self._mine: frozenset[MessageQueue] = frozenset()

    async def run(self, name_server: str, topic: str, stopped: asyncio.Event) -> None:
        consumer = PushConsumer(
            self._group,
            name_server=name_server,
            consume_from="first",
            on_assignment=self._assigned,
        )
        handler: Callable[[Any], Any] = self._take if self.is_ordered else self._take_slowly
        async with consumer:
            await consumer.subscribe(
                topic, "*", handler, ordered=self.is_ordered, inline=self.is_ordered
            )
            sys.stdout.write(f"ready {self._group}\n")
            sys.stdout.flush()
            await stopped.wait()
        self._notes.write(Kind.ENDED, self._number)

    async def _take_slowly(self, message: StoredMessage) -> None:
        """Now and then one takes longer, so that those after it are done before it."""
        if message.queue_offset % _SLOW == 0:
            await asyncio.sleep(_SLOW_SECONDS)
        self._take(message)

    def _take(self, message: StoredMessage) -> None:
        self._notes.write(
            Kind.DELIVERED,
            self._number,
            queue=message.queue_id,
            number=number_of(message.body),
            offset=message.queue_offset,
        )

    def _assigned(
        self, topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]
    ) -> None:
        for queue in mine - self._mine:
            self._notes.write(Kind.GAINED, self._number, queue=queue.queue_id)
        for queue in self._mine - mine:
            self._notes.write(Kind.LOST, self._number, queue=queue.queue_id)
        self._mine = mine


async def main(name_server: str, topic: str, notes: Path, groups: list[str]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    book = Checkpointer(notes)
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            tasks.create_task(Member(group, book).run(name_server, topic, stopped))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    event_loop.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]))
