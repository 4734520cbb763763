"""Takes messages into the store, and does once for a burst of them what need not be done for each.

All that arrives in one turn of the event loop is a burst: at its end the store writes its index
entries or begins its flush, and the pulls that wait for the queues touched are woken.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from bolide.broker.consume.long_polling import LongPolling, QueueKey
from bolide.broker.listeners import Listeners
from bolide.broker.produce.durability import Durability
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended
from bolide.store.contract import Store


class Intake:
    """The one way by which messages come into the store; belongs to one event loop."""

    def __init__(self, store: Store, durability: Durability, long_polling: LongPolling) -> None:
        self._store = store
        self._durability = durability
        self._long_polling = long_polling
        self._touched: dict[QueueKey, int] = {}
        """How far the log reached after the last message of a queue."""
        self._watchers: dict[str, Callable[[], None]] = {}
        self.ending: asyncio.Handle | None = None
        """What will end the burst that has begun, see `expect_end`."""
        self.on_burst_end: Listeners[[]] = Listeners()
        """A burst ends, and long polls are woken next: the last time for `touch`."""

    @property
    def is_awaited(self) -> bool:
        """Somebody waits for messages of some queue."""
        return self._long_polling.is_awaited

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        if self.ending is not None:
            self.ending.cancel()
            self._finish_burst()

    def watch(self, topic: str, arrived: Callable[[], None]) -> None:
        """Have `arrived` called after bursts that brought messages of a topic."""
        self._watchers[topic] = arrived

    def append(self, draft: RecordDraft) -> Appended:
        """As `Store.append`."""
        appended = self._store.append(draft)
        self.touch(draft.topic.decode(), draft.queue_id, appended.end)
        return appended

    def append_batch(self, drafts: Sequence[RecordDraft]) -> list[Appended]:
        """As `Store.append_batch`."""
        appended = self._store.append_batch(drafts)
        self.touch(drafts[0].topic.decode(), drafts[0].queue_id, appended[-1].end)
        return appended

    def touch(self, topic: str, queue_id: int, end: int) -> None:
        """Say that a message of this queue was appended, and where it ends in the log."""
        self._touched[topic, queue_id] = end
        self.expect_end()

    def expect_end(self) -> None:
        """See that the burst ends when this turn of the loop is over."""
        if self.ending is None:
            self.ending = self._loop.call_soon(self._end_burst)

    def _end_burst(self) -> None:
        if self._durability.is_growing():  # what comes in the next turn joins the group
            self.ending = self._loop.call_soon(self._end_burst)
        else:
            self._finish_burst()

    def _finish_burst(self) -> None:
        try:
            self.on_burst_end()
        finally:
            self.ending = None  # or no burst would end again
            self._store.end_burst()
        if not self._durability.waits:
            touched, self._touched = self._touched, {}
            self._wake(touched)

    def wake_up_to(self, position: int) -> None:
        """Wake long polls on messages before a log position, which SYNC_FLUSH has made readable."""
        self.on_burst_end()  # the flusher may be quicker than the end of the burst
        touched = self._touched
        self._touched = {key: end for key, end in touched.items() if end > position}
        self._wake(touched)

    def _wake(self, touched: Mapping[QueueKey, int]) -> None:
        self._long_polling.arrived(touched)
        for topic, arrived in self._watchers.items():
            if any(name == topic for name, _ in touched):
                arrived()
