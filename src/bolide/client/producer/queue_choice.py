"""The queue of a message: round robin past faulty brokers, and the queues of keys."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue

FAILURE = 30.0
"""Seconds of latency that a send counts with if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTable:
    """A send that took at least so long keeps its broker out for so long; seconds. RocketMQ 4.9's.

    The two lists belong together, item by item.
    """

    latencies: Sequence[float] = (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0)
    durations: Sequence[float] = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)

    def __post_init__(self) -> None:
        if len(self.latencies) != len(self.durations):
            raise ConfigError(
                f"latencies and durations differ in length:"
                f" {len(self.latencies)} and {len(self.durations)}"
            )
        if list(self.latencies) != sorted(self.latencies):
            raise ConfigError(f"latencies={self.latencies}: must ascend")

    def duration(self, latency: float) -> float:
        pairs = zip(self.latencies, self.durations, strict=True)
        return max(((least, out) for least, out in pairs if latency >= least), default=(0, 0.0))[1]


class _Fault(NamedTuple):
    latency: float
    until: float


class Faults:
    """What is known of brokers by name; one that nothing is known of is available."""

    def __init__(self, table: FaultTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        self._faults: dict[str, _Fault] = {}
        self._turn = count()

    def sent(self, broker_name: str, seconds: float) -> None:
        """A send to it took so long."""
        self._faults[broker_name] = _Fault(seconds, self._now() + self._table.duration(seconds))

    def failed(self, broker_name: str, seconds: float) -> None:
        """A send to it failed after so long."""
        self._faults[broker_name] = _Fault(seconds, self._now() + self._table.duration(FAILURE))

    def is_available(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or self._now() >= fault.until

    def best_of(self, broker_names: Sequence[str]) -> str:
        """When all are out: one of the better half, in turn."""
        ranked = sorted(set(broker_names), key=self._rank)
        return ranked[next(self._turn) % max(1, len(ranked) // 2)]

    def _rank(self, broker_name: str) -> tuple[bool, float, float]:
        fault = self._faults.get(broker_name, _Fault(0.0, 0.0))
        return not self.is_available(broker_name), fault.latency, fault.until


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
