"""Which queue a message goes to if nobody says: in turn, and on a retry to another broker."""

import random
from collections.abc import Sequence

from bolide.client.producing.faults import Faults
from bolide.model.message_queue import MessageQueue


class QueueChoice:
    """Round robin over the queues of each topic; with `faults` unavailable brokers are left out."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults
        self._turns: dict[str, int] = {}

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], avoid: str | None = None
    ) -> MessageQueue:
        """The next of these queues, at another broker than `avoid` if there is one."""
        turn = self.turn(topic, len(queues))
        self.took(topic)
        if avoid is None and self._faults is None:
            return queues[turn % len(queues)]
        return self._choose_with_care(queues, turn, avoid)

    def turn(self, topic: str, queues: int) -> int:
        """Whose turn it is, by a number that goes on over all queues; it stays so until `took`."""
        turn = self._turns.get(topic)
        if turn is None:  # producers begin at different queues
            turn = self._turns[topic] = random.randrange(queues)  # noqa: S311  to spread load
        return turn

    def took(self, topic: str) -> None:
        """The turn was used."""
        self._turns[topic] += 1

    def _choose_with_care(
        self, queues: Sequence[MessageQueue], turn: int, avoid: str | None
    ) -> MessageQueue:
        start = turn % len(queues)
        in_order = [*queues[start:], *queues[:start]]
        others = [queue for queue in in_order if queue.broker_name != avoid] or in_order
        if self._faults is None:
            return others[0]
        for queue in others:
            if self._faults.is_available(queue.broker_name):
                return queue
        best = self._faults.best_of([queue.broker_name for queue in others])
        return next(queue for queue in others if queue.broker_name == best)
