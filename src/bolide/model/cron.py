"""Times that come again and again, as cron writes them."""

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final

from bolide.model.message_checks import InvalidMessage
from bolide.model.properties import PropertyName

_MOST_CHARACTERS: Final = 255


def checked_cron(expression: object, zone: object) -> dict[str, str]:
    """The properties of a message that recurs.

    Raises:
        InvalidMessage: it never comes, or cannot be read; names the field.
    """
    if zone and not expression:
        raise InvalidMessage("cron_zone", f"is {zone!r}, but there is no cron that it belongs to")
    if not isinstance(expression, str) or not expression:
        raise InvalidMessage("cron", f"{expression!r} is no text such as '*/5 * * * *'")
    if not isinstance(zone, str):
        raise InvalidMessage("cron_zone", f"must be text, not {type(zone).__name__}")
    if next_time(expression, zone, int(datetime.now(UTC).timestamp() * 1000)) is None:
        raise InvalidMessage("cron", f"{expression!r} never comes")
    held = {PropertyName.CRON: expression}
    return held | {PropertyName.CRON_ZONE: zone} if zone else held


def next_time(expression: str, zone: str, after: int) -> int | None:
    """The first time behind a moment, both in milliseconds since 1970; None if none comes.

    Five fields are minute, hour, day, month and weekday; a sixth in front of them are seconds.
    Where clocks are put forward or back, it is as with Debian's cron: what a skipped hour would
    have brought comes right behind it, and a repeated hour does not bring it twice.

    Raises:
        InvalidMessage: the expression or the zone cannot be read; names the field.
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
