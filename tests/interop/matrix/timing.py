"""Cells of messages for a certain time, and of those that are taken back before it."""

import msgspec

from tests.interop.matrix.cell import SECOND, Seen, bodies, cell
from tests.interop.matrix.facts import Message

NO_TIMERS = {"4.9": "brokers of 4.9 have no timers"}
LATEST = 10 * SECOND


class Timed(msgspec.Struct):
    due: dict[str, int]
    """Milliseconds since 1970, by body."""
    deliveries: list[Message]


@cell(lacking=NO_TIMERS)
def timer(seen: Seen) -> None:
    """Timers: at a time, after seconds, after milliseconds, in the past."""
    told = seen.told(Timed)
    assert sorted(bodies(told.deliveries)) == sorted(told.due)
    # Apache's take the start of the second in which a message is due.
    early = 0 if seen.broker == "ours" else SECOND
    for message in told.deliveries:
        due = told.due[message.body]
        assert due - early <= message.stored <= due + LATEST
        assert message.topic == seen.topic
        assert message.tags == "tag"


class Recalled(msgspec.Struct):
    id: str
    told: str
    deliveries: list[Message]


@cell(lacking=NO_TIMERS)
def recall(seen: Seen) -> None:
    """Recall of a timer by its handle."""
    told = seen.told(Recalled)
    assert told.told == told.id
    assert bodies(told.deliveries) == ["kept"]
