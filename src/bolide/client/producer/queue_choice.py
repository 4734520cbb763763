"""Queue selection: round robin, avoidance of slow or failing brokers, queues of keyed messages."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue

FAILURE_LATENCY = 30.0
"""Seconds of latency assumed for a failed send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTable:
    """For how long a broker is avoided after a send of at least a given latency; in seconds.

    `latencies` and `durations` correspond item by item. The defaults are those of RocketMQ 4.9.
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
        reached = (pair for pair in pairs if latency >= pair[0])
        return max(reached, default=(0, 0.0))[1]


class _Fault(NamedTuple):
    latency: float
    until: float


class BrokerFaults:
    """Latencies and failures of brokers, by name; unknown brokers are available."""

    def __init__(self, table: FaultTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        self._faults: dict[str, _Fault] = {}
        self._next_index = count()

    def sent(self, broker_name: str, seconds: float) -> None:
        """Record a successful send."""
        self._faults[broker_name] = _Fault(seconds, self._now() + self._table.duration(seconds))

    def failed(self, broker_name: str, seconds: float) -> None:
        """Record a failed send."""
        self._faults[broker_name] = _Fault(
            seconds, self._now() + self._table.duration(FAILURE_LATENCY)
        )

    def is_available(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or self._now() >= fault.until

    def best_of(self, broker_names: Sequence[str]) -> str:
        """Round robin over the better half, for when no broker is available."""
        ranked = sorted(set(broker_names), key=self._rank)
        return ranked[next(self._next_index) % max(1, len(ranked) // 2)]

    def _rank(self, broker_name: str) -> tuple[bool, float, float]:
        fault = self._faults.get(broker_name, _Fault(0.0, 0.0))
        return not self.is_available(broker_name), fault.latency, fault.until


class SuspectMasters(Protocol):
    """Masters that did not answer; false if there are none."""

    def __bool__(self) -> bool: ...

    def leads(self, queue: MessageQueue) -> bool:
        """Whether the master of a queue is one of them."""
        ...


class QueueChoice:
    """Round robin over the queues of each topic, if possible past brokers that do not answer.

    With `faults`, unavailable brokers are skipped too.
    """

    def __init__(
        self, faults: BrokerFaults | None = None, suspects: SuspectMasters | None = None
    ) -> None:
        self._faults = faults
        self._suspects = suspects
        self._indexes: dict[str, int] = {}

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], avoid: str | None = None
    ) -> MessageQueue:
        """The next of these queues, if possible at another broker than `avoid`."""
        index = self.next_index(topic, len(queues))
        self.advance(topic)
        if avoid is None and self._faults is None and not self._suspects:
            return queues[index % len(queues)]
        return self._choose_avoiding(queues, index, avoid)

    def next_index(self, topic: str, queues: int) -> int:
        """The index of the next queue, to be taken modulo their number; `advance` increments it."""
        index = self._indexes.get(topic)
        if index is None:  # producers begin at different queues
            index = self._indexes[topic] = random.randrange(queues)  # noqa: S311  to spread load
        return index

    def skip_suspects(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Advance to a queue whose master answers, if there is one."""
        for _ in queues if self._suspects else ():
            if self.answers(queues[self.next_index(topic, len(queues)) % len(queues)]):
                return
            self.advance(topic)

    def answers(self, queue: MessageQueue) -> bool:
        """Whether the master of a queue is not suspected."""
        return not self._suspects or not self._suspects.leads(queue)

    def advance(self, topic: str) -> None:
        self._indexes[topic] += 1

    def _choose_avoiding(
        self, queues: Sequence[MessageQueue], index: int, avoid: str | None
    ) -> MessageQueue:
        start = index % len(queues)
        in_order = [*queues[start:], *queues[:start]]
        usable = [queue for queue in in_order if self.answers(queue)] or in_order
        others = [queue for queue in usable if queue.broker_name != avoid] or usable
        if self._faults is None:
            return others[0]
        for queue in others:
            if self._faults.is_available(queue.broker_name):
                return queue
        best = self._faults.best_of([queue.broker_name for queue in others])
        return next(queue for queue in others if queue.broker_name == best)


class KeyedQueues:
    """The queues that keyed messages of each topic are hashed to.

    A broker that stops disappears from the route. Its queues stay here, because otherwise a repeat
    would be hashed to another queue, where it is not recognized as a duplicate; sends to them fail
    until the broker is back. The number of queues of a broker is that of its latest route.
    """

    def __init__(self) -> None:
        self._routed: dict[str, Sequence[MessageQueue]] = {}
        self._known: dict[str, list[MessageQueue]] = {}

    def of(self, routed: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """All known queues of a topic; `routed`, the queues of its route, must not be empty."""
        topic = routed[0].topic
        if self._routed.get(topic) is not routed:
            self._routed[topic] = routed
            present = {queue.broker_name for queue in routed}
            absent = [q for q in self._known.get(topic, ()) if q.broker_name not in present]
            self._known[topic] = sorted([*routed, *absent])
        return self._known[topic]
