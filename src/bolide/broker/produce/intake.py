"""Appends messages to the store in bursts, so that per-append work is done once per burst.

A burst is all messages appended in one iteration of the event loop. At its end the store writes
index entries or begins its flush, and long polls on the touched queues are woken.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from bolide.broker.consume.long_polling import LongPolling, QueueKey
from bolide.broker.produce.durability import Durability
from bolide.events import Listeners
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import StoreUnwritable


class Intake:
    """The only path by which messages enter the store; not thread-safe, one event loop."""

    def __init__(self, store: Store, durability: Durability, long_polling: LongPolling) -> None:
        self._store = store
        self._durability = durability
        self._long_polling = long_polling
        self._touched: dict[QueueKey, int] = {}
        """Log position behind the newest message of each queue touched by the burst."""
        self._watchers: dict[str, Callable[[], None]] = {}
        self._is_stopped = False
        self.ending: asyncio.Handle | None = None
        """Handle of the scheduled end of the current burst, see `expect_end`."""
        self.on_burst_end: Listeners[[]] = Listeners()
        """Emitted at the end of a burst, before long polls wake; listeners may `touch`."""
        self.on_appended: Listeners[[]] = Listeners()
        """Emitted when the messages of a burst are in the log."""

    @property
    def is_awaited(self) -> bool:
        """Whether any long poll is waiting."""
        return self._long_polling.is_awaited

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """End the burst; requests that are still under way append nothing any more."""
        self._is_stopped = True
        if self.ending is not None:
            self.ending.cancel()
            self._finish_burst()

    def watch(self, topic: str, arrived: Callable[[], None]) -> None:
        """Call `arrived` after each burst that appended messages of a topic."""
        self._watchers[topic] = arrived

    def append(self, draft: RecordDraft) -> Appended:
        """As `Store.append`."""
        self._refuse_if_stopped()
        appended = self._store.append(draft)
        self.touch(draft.topic.decode(), draft.queue_id, appended.end)
        return appended

    def append_batch(self, drafts: Sequence[RecordDraft]) -> list[Appended]:
        """As `Store.append_batch`."""
        self._refuse_if_stopped()
        appended = self._store.append_batch(drafts)
        self.touch(drafts[0].topic.decode(), drafts[0].queue_id, appended[-1].end)
        return appended

    def _refuse_if_stopped(self) -> None:
        if self._is_stopped:
            raise StoreUnwritable("this broker stops or changes its role")

    def touch(self, topic: str, queue_id: int, end: int) -> None:
        """Record that a message of this queue was appended and ends at log position `end`."""
        self._touched[topic, queue_id] = end
        self.expect_end()

    def expect_end(self) -> None:
        """Schedule the end of the burst for the next iteration of the event loop."""
        if self.ending is None:
            self.ending = self._loop.call_soon(self._end_burst)

    def _end_burst(self) -> None:
        if self._durability.is_growing():  # appends of the next iteration join the group
            self.ending = self._loop.call_soon(self._end_burst)
        else:
            self._finish_burst()

    def _finish_burst(self) -> None:
        try:
            self.on_burst_end()
        finally:
            self.ending = None  # even if a listener fails, or no later burst would end
            self._store.end_burst()
            self.on_appended()
        if self._touched and not self._durability.waits:
            touched, self._touched = self._touched, {}
            self._wake(touched)

    def wake_up_to(self, position: int) -> None:
        """Wake long polls on messages before a log position, which SYNC_FLUSH has made readable."""
        self.on_burst_end()  # the flush may finish before the burst ends
        touched = self._touched
        self._touched = {key: end for key, end in touched.items() if end > position}
        self._wake(touched)

    def _wake(self, touched: Mapping[QueueKey, int]) -> None:
        self._long_polling.arrived(touched)
        for topic, arrived in self._watchers.items():
            if any(name == topic for name, _ in touched):
                arrived()
