"""`MeanSizes`: how large the messages of each topic are, asked about seldom."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import monotonic

from bolide.admin import AdminClient
from bolide.admin.traffic import messages_of_day
from bolide.errors import BolideError
from bolide.operations.history.figures import TopicFigures

EVERY = 600.0
"""Seconds for which a mean counts: messages of a topic seldom change their size."""
_AGAIN = 60.0
"""Seconds after which a topic is asked about again whose brokers told nothing."""
_CREDIT = 0.5
"""Requests per sample of a topic that may be spent on sizes."""
_MAX_CREDIT = 20.0
_COST = 2.0
"""Requests for one mean: the bytes and the number of the messages of a day."""


@dataclass(slots=True)
class _Mean:
    size: float | None
    due: float


class MeanSizes:
    """Means of the last day, as one broker counted them.

    Brokers do not tell the size of a topic. The mean times the number of stored messages is an
    estimate of it. To ask for a mean takes two requests; they are spread so that the samples of all
    topics together take only half as many more.
    """

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._means: dict[str, _Mean] = {}
        self._credit = 0.0

    def remember(self, topics: Mapping[str, TopicFigures]) -> None:
        """Begin with the sizes that were known before this start."""
        for topic, each in topics.items():
            if each.bytes and each.messages:
                self._means[topic] = _Mean(each.bytes / each.messages, monotonic())

    def estimate(self, topic: str, messages: int | None) -> int | None:
        """Bytes of so many messages; None if their mean is not known."""
        if not messages:
            return messages
        known = self._means.get(topic)
        return None if known is None or known.size is None else round(known.size * messages)

    def is_due(self, topic: str) -> bool:
        """Whether to ask now; to be called once per sample of a topic with messages."""
        self._credit = min(self._credit + _CREDIT, _MAX_CREDIT)
        known = self._means.get(topic)
        if self._credit < _COST or (known is not None and known.due > monotonic()):
            return False
        self._credit -= _COST
        return True

    async def ask(self, topic: str, address: str) -> None:
        """Ask a broker of the topic for the mean; what it does not tell stays as it was."""
        known = self._means.setdefault(topic, _Mean(None, 0.0))
        known.due = monotonic() + _AGAIN
        stats = self._admin.brokers.stats
        try:
            size = messages_of_day(await stats(address, "TOPIC_PUT_SIZE", topic))
            count = messages_of_day(await stats(address, "TOPIC_PUT_NUMS", topic))
        except BolideError:  # nothing was counted there, or it does not tell this user
            return
        if size > 0 and count > 0:
            known.size, known.due = size / count, monotonic() + EVERY

    def keep_only(self, topics: Collection[str]) -> None:
        """Forget topics that are gone."""
        for topic in self._means.keys() - {*topics}:
            del self._means[topic]
