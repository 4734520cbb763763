"""Properties of timer messages, which have a delivery time of their own."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from bolide.model.message_checks import InvalidMessage
from bolide.model.properties import PropertyName

_MOST_SECONDS: Final = 10**12


def delivery_property(
    deliver_at: datetime | float | None, delay: timedelta | float | None
) -> dict[str, str]:
    """Return the property for delivery at a time, or after a delay from the arrival at the broker.

    Raises:
        InvalidMessage: both are given, or a value is not a time; names the field.
    """
    if deliver_at is not None and delay is not None:
        raise InvalidMessage("delay", "is given beside deliver_at: give one of them")
    if deliver_at is not None:
        return {PropertyName.TIMER_DELIVER_MS: str(_milliseconds("deliver_at", deliver_at))}
    return {PropertyName.TIMER_DELAY_MS: str(_milliseconds("delay", delay))}


def is_timed(properties: Mapping[str, str]) -> bool:
    """Whether a message has a delivery time or delay."""
    return any(name in properties for name in _TIMER_PROPERTIES)


def _milliseconds(field: str, value: object) -> int:
    """Convert to milliseconds, rounded up."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidMessage(field, f"{value} has no time zone: give it one")
        value = value.timestamp()
    elif isinstance(value, timedelta):
        value = value.total_seconds()
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not (good and 0 <= float(value) < _MOST_SECONDS):  # type: ignore[arg-type]
        raise InvalidMessage(field, f"{value!r} is not a number of seconds")
    return math.ceil(round(float(value) * 1000, 3))  # type: ignore[arg-type]


_TIMER_PROPERTIES = (
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.TIMER_DELAY_SEC,
    PropertyName.START_DELIVER_TIME,
)
