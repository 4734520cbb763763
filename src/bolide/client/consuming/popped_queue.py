"""A queue, or all queues of a broker, as long as a consumer pops from it."""

from collections.abc import Callable, Iterable

from bolide.client.consuming.held_queue import HeldQueue
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import HeldPopQueue


class PoppedQueue(HeldQueue):
    """One tenure. It has no offsets: what was popped is ours until it is acknowledged or expires.

    Giving it up only ends the popping: messages under way are dealt with to their end.
    """

    def __init__(self, queue: MessageQueue, now: Callable[[], float]) -> None:
        super().__init__(queue, 0, now)
        self._leased: dict[int, tuple[StoredMessage, float]] = {}

    @property
    def held_count(self) -> int:
        """Messages that were popped, and neither acknowledged nor given back."""
        return len(self._leased)

    def lease(self, messages: Iterable[StoredMessage], until: float) -> None:
        """Note that messages are ours up to a time of the loop's clock."""
        self._leased |= {id(message): (message, until) for message in messages}

    def prolong(self, message: StoredMessage, until: float) -> None:
        if id(message) in self._leased:
            self._leased[id(message)] = message, until

    def ending(self, before: float) -> list[StoredMessage]:
        """Those that are ours only up to a time before this one."""
        return [message for message, until in self._leased.values() if until < before]

    def settle(self, messages: Iterable[StoredMessage]) -> None:
        """They are none of ours any more."""
        for message in messages:
            self._leased.pop(id(message), None)
        self.wake()

    def shown_pop(self) -> HeldPopQueue:
        """As `consumerStatus` of mqadmin shows it."""
        return HeldPopQueue(
            wait_ack_count=self.held_count,
            droped=self.is_dropped,
            last_pop_timestamp=int(self.last_pull * 1000),
        )
