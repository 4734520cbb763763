"""Expiry of messages: the property and its text form."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from bolide.model.message_checks import InvalidMessage
from bolide.model.properties import LONG_DIGITS, PropertyName, parse_number

"""Fits a signed 64-bit number."""


def expiry_text(expires_at: datetime | float | None, expire_after: timedelta | float | None) -> str:
    """Return the property of a message that expires at a time, or after a duration from now.

    Raises:
        InvalidMessage: both are given, or a value is not a time; names the field.
    """
    if expires_at is not None and expire_after is not None:
        raise InvalidMessage("expire_after", "is given beside expires_at: give one of them")
    if expires_at is not None:
        seconds = _seconds_since_1970(expires_at)
    else:
        seconds = datetime.now(UTC).timestamp() + _seconds_of(expire_after)
    return str(int(seconds * 1000))


def _seconds_since_1970(moment: object) -> float:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidMessage("expires_at", f"{moment} has no time zone: give it one")
        moment = moment.timestamp()
    return _positive("expires_at", moment)


def _seconds_of(duration: object) -> float:
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    return _positive("expire_after", duration)


def _positive(field: str, value: object) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not (good and 0 < float(value) < 10 ** (LONG_DIGITS - 3)):  # type: ignore[arg-type]
        raise InvalidMessage(field, f"{value!r} is not a number of seconds above 0")
    return float(value)  # type: ignore[arg-type]


def expiry_of(properties: Mapping[str, str]) -> int | None:
    """Expiry in milliseconds since 1970; None without one, or if it is malformed."""
    text = properties.get(PropertyName.EXPIRES_AT)
    return None if text is None else parse_expiry(text)


def parse_expiry(text: str) -> int | None:
    """Parse milliseconds; returns None if the text is not a number."""
    return parse_number(text)
