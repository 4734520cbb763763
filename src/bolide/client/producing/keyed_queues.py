"""The queues that keys are spread over: those of a broker that is away for now stay among them."""

from collections.abc import Sequence

from bolide.model.message_queue import MessageQueue


class KeyedQueues:
    """What a producer has seen of each topic.

    A broker that stops leaves the route. If its queues left the choice too, a message would go to
    another queue than the first time, which does not know it; so sends to it fail until it is back.
    How many queues a broker has is what its route says last.
    """

    def __init__(self) -> None:
        self._told: dict[str, Sequence[MessageQueue]] = {}
        self._known: dict[str, list[MessageQueue]] = {}

    def of(self, told: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """All queues of a topic, by those that its route names now; there is at least one."""
        topic = told[0].topic
        if self._told.get(topic) is not told:
            self._told[topic] = told
            here = {queue.broker_name for queue in told}
            away = [q for q in self._known.get(topic, ()) if q.broker_name not in here]
            self._known[topic] = sorted([*told, *away])
        return self._known[topic]
