"""When a stream takes its next batch."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bolide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_INTERVAL = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]+)")
_AVAILABLE = {"once", "available-now", "availablenow", "available now"}


@dataclass(frozen=True, slots=True)
class Trigger:
    """`interval` in seconds; None: what is there now, in as many batches as it takes, then end."""

    interval: float | None

    @property
    def once(self) -> bool:
        return self.interval is None

    @property
    def text(self) -> str:
        return "once" if self.interval is None else f"every {self.interval:g} s"

    def on(self, writer: "DataStreamWriter") -> "DataStreamWriter":
        if self.interval is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(self.interval * 1000)} milliseconds")


ONCE = Trigger(None)


def parse_trigger(text: str) -> Trigger:
    """`once` (or `available-now`), or an interval such as `10 seconds`, `10s`, `500ms`, `1 min`.

    Raises:
        ConfigError: it is neither.
    """
    wanted = text.strip().lower()
    if wanted in _AVAILABLE:
        return ONCE
    found = _INTERVAL.fullmatch(wanted)
    if found is None or found[2] not in _UNITS:
        raise ConfigError(f"trigger {text!r}: say 'once', or an interval such as '10 seconds'")
    return Trigger(float(found[1]) * _UNITS[found[2]])
