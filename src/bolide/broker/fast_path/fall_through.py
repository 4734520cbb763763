"""Why a request falls through from the fast path to the handlers, counted by reason."""

import logging
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum

log = logging.getLogger(__name__)


class FallThrough(IntEnum):
    """A reason; the compiled code has the same numbers (`_sends.pyx`)."""

    SERVED = 0
    """No fall-through: the request was served, or is not complete yet."""
    OTHER_REQUEST = 1
    """The fast path has no way to serve this request code."""
    UNUSUAL_HEADER = 2
    """A field is missing, unknown or written in an unusual way."""
    UNPREPARED = 3
    """There is no prepared plan for this identity, kind of request and target."""
    INTERPRETED_PROPERTY = 4
    """The message has a property that the broker interprets."""
    QUEUE = 5
    """The queue does not exist, or its tail is not part of the plan yet."""
    TOO_LARGE = 6
    """The frame, the message or the batch is over a limit."""
    DEDUP_KEY = 7
    """The message has a dedup key and its topic a dedup window."""
    LOG_FILE_FULL = 8
    """The message does not fit into the current file of the log."""
    TRANSACTION = 9
    """The half message is not open, or not near the end of the log."""
    BAD_BATCH = 10
    """The lengths or properties of a batch do not add up."""
    ERROR = 11
    """An exception; logged once for each cause."""
    STORE = 12
    """The store is closed or takes no messages."""
    HOOK = 13
    """A hook wants to see every request of this kind."""
    OFFSET_RESET = 14
    """An administrator has moved the group, which a pull must report."""
    OUT_OF_RANGE = 15
    """The queue offset of a pull is before the first or behind the last message."""
    COLD_READ = 16
    """The messages of a pull are not in memory, or need a filter that is not compiled."""
    SIGNATURE = 17
    """The signature is missing or wrong, as far as compiled code can tell: the gate decides."""
    SLAVE = 18
    """The broker is a slave, whose replies to pulls differ."""


class FallThroughs:
    """How often requests were served, and how often they fell through, by reason."""

    def __init__(self) -> None:
        self.served_sends = 0
        self.served_pulls = 0
        self._counts: Counter[int] = Counter()
        self._logged: set[tuple[type[BaseException], str]] = set()

    def count(self, reason: int) -> None:
        self._counts[reason] += 1

    def failed(self, what: str, exc: BaseException) -> None:
        """Log an exception the first time that it occurs; the caller counts it."""
        cause = (type(exc), str(exc)[:200])
        if cause not in self._logged and len(self._logged) < 1000:
            self._logged.add(cause)
            log.error("the fast path failed at a %s; the handlers serve it", what, exc_info=exc)

    def figures(self) -> Mapping[str, str]:
        """For the runtime information (`brokerStatus`)."""
        by_reason = "; ".join(f"{name}={count}" for name, count in self.counts.items())
        return {
            "fastPathSends": str(self.served_sends),
            "fastPathPulls": str(self.served_pulls),
            "fastPathFallThroughs": by_reason or "none",
        }

    @property
    def counts(self) -> Mapping[str, int]:
        """Fall-throughs by the name of their reason, most frequent first."""
        return {FallThrough(reason).name: count for reason, count in self._counts.most_common()}
