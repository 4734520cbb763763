"""Cron expressions of recurring messages."""

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final

from bolide.model.message_checks import InvalidMessage
from bolide.model.properties import PropertyName

_MOST_CHARACTERS: Final = 255


def checked_cron(expression: object, zone: object) -> dict[str, str]:
    """Return the properties of a recurring message.

    Raises:
        InvalidMessage: the expression never matches or is malformed; names the field.
    """
    if zone and not expression:
        raise InvalidMessage("cron_zone", f"is {zone!r}, but there is no cron that it belongs to")
    if not isinstance(expression, str) or not expression:
        raise InvalidMessage("cron", f"{expression!r} is no text such as '*/5 * * * *'")
    if not isinstance(zone, str):
        raise InvalidMessage("cron_zone", f"must be text, not {type(zone).__name__}")
    if next_time(expression, zone, int(datetime.now(UTC).timestamp() * 1000)) is None:
        raise InvalidMessage("cron", f"{expression!r} never comes")
    properties = {PropertyName.CRON: expression}
    return properties | {PropertyName.CRON_ZONE: zone} if zone else properties


def next_time(expression: str, zone: str, after: int) -> int | None:
    """Return the first match after a time, in milliseconds since 1970; None if there is none.

    Five fields are minute, hour, day, month and weekday; a sixth field in front is seconds. Around
    daylight saving changes it behaves like Debian's cron: matches in a skipped hour happen right
    after it, and those in a repeated hour happen once.

    Raises:
        InvalidMessage: the expression or the zone is malformed; names the field.
    """
    from cronsim import CronSim, CronSimError  # noqa: PLC0415  few need it

    if len(expression) > _MOST_CHARACTERS:
        raise InvalidMessage("cron", f"is over {_MOST_CHARACTERS} characters long")
    moment = datetime.fromtimestamp(after / 1000, _zone(zone))
    try:
        found = next(CronSim(expression, moment), None)
    except CronSimError as exc:
        raise InvalidMessage(
            "cron",
            f"{expression!r} cannot be read: {exc}. Write minute hour day month weekday, as in"
            " '*/5 * * * *'",
        ) from exc
    return None if found is None else int(found.timestamp()) * 1000


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415  few need it

    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError) as exc:
        raise InvalidMessage(
            "cron_zone", f"{name!r} is no time zone, as Europe/Berlin is one"
        ) from exc
