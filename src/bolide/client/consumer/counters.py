"""Pull and consume rates per topic, shown by `mqadmin consumerStatus`."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bolide.protocol.bodies.consumers import TopicConsumption

SAMPLE_INTERVAL = 10.0
_MINUTE = 7  # samples at both ends of a minute, as in RocketMQ
_HOUR = 360  # samples


class _Sample(NamedTuple):
    time: float
    pulls: int
    pull_seconds: float
    pulled: int
    calls: int
    call_seconds: float
    done: int
    failed: int


class TopicCounter:
    """Sums for one topic, sampled every ten seconds; rates cover the last minute."""

    def __init__(self, now: float) -> None:
        self._pulls = self._pulled = self._calls = self._done = self._failed = 0
        self._pull_seconds = self._call_seconds = 0.0
        self._samples: deque[_Sample] = deque(maxlen=_HOUR)
        self.sample(now)

    def pulled(self, count: int, seconds: float) -> None:
        self._pulls += 1
        self._pulled += count
        self._pull_seconds += seconds

    def consumed(self, done: int, failed: int, seconds: float, calls: int = 1) -> None:
        self._calls += calls
        self._done += done
        self._failed += failed
        self._call_seconds += seconds

    def sample(self, now: float) -> None:
        self._samples.append(
            _Sample(
                now,
                self._pulls,
                self._pull_seconds,
                self._pulled,
                self._calls,
                self._call_seconds,
                self._done,
                self._failed,
            )
        )

    def status(self) -> TopicConsumption:
        first = self._samples[-min(_MINUTE, len(self._samples))]
        last = self._samples[-1]
        seconds = last.time - first.time
        pulls, calls = last.pulls - first.pulls, last.calls - first.calls
        return TopicConsumption(
            pull_rt=_ratio(1000 * (last.pull_seconds - first.pull_seconds), pulls),
            pull_tps=_ratio(last.pulled - first.pulled, seconds),
            consume_rt=_ratio(1000 * (last.call_seconds - first.call_seconds), calls),
            consume_ok_tps=_ratio(last.done - first.done, seconds),
            consume_failed_tps=_ratio(last.failed - first.failed, seconds),
            consume_failed_msgs=last.failed - self._samples[0].failed,
        )


class TopicCounters:
    """One counter for each topic."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._topics: dict[str, TopicCounter] = {}

    def __getitem__(self, topic: str) -> TopicCounter:
        counter = self._topics.get(topic)
        if counter is None:
            counter = self._topics[topic] = TopicCounter(self._now())
        return counter

    def sample(self) -> None:
        now = self._now()
        for counter in self._topics.values():
            counter.sample(now)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
