"""What of a log is wanted, and how it is read."""

import logging
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from bolide.arrow.errors import BadPosition
from bolide.arrow.log_errors import LogLost
from bolide.arrow.log_planning import SPLIT_SIZE
from bolide.arrow.offsets import At, parse_position, to_ms
from bolide.arrow.schema import message_schema
from bolide.arrow.value_schema import parse_ddl
from bolide.kernel.column_buffers import END_LONG, FIRST_LONG

log = logging.getLogger(__name__)

When = str | int | datetime
"""A store time: an ISO time (UTC if it names no zone), `-10m`, ms since 1970, or a datetime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Plain values that travel to workers."""

    topics: tuple[str, ...] = ()
    """None: all but the broker's own."""
    since: int = FIRST_LONG
    until: int = END_LONG
    """Store times in ms; `until` itself is not wanted."""
    split_size: int = SPLIT_SIZE
    """Bytes; 0 makes each file one split."""
    broker: str | None = None
    """What the column says: the log does not know the name of its broker."""
    include_internal: bool = False
    """Whether the broker's own topics, half and rolled-back messages are wanted too."""
    include_properties: bool = True
    value_schema: str | None = None
    """Columns of JSON bodies, such as `id bigint, name string`; they become `value`."""
    verify_crc: bool = True
    fail_on_data_loss: bool = True

    @property
    def value(self) -> pa.StructType | None:
        return None if self.value_schema is None else parse_ddl(self.value_schema)

    @property
    def schema(self) -> pa.Schema:
        """That of every batch. Raises BadValueSchema."""
        return message_schema(include_properties=self.include_properties, value=self.value)

    def lose(self, loss: LogLost) -> None:
        """Raises it, unless that is allowed: then it is logged."""
        if self.fail_on_data_loss:
            raise loss
        log.warning("%s, physical offset %s: %s; reading goes on", loss.path, loss.at, loss.reason)


def time_of(when: When, *, option: str) -> int:
    """Milliseconds since 1970.

    Raises:
        BadPosition: it is no time; names the option.
    """
    if isinstance(when, int):
        return when
    if isinstance(when, datetime):
        return to_ms(when)
    if when.strip().isdecimal():
        return int(when)
    position = parse_position(when, option=option)
    if not isinstance(position, At):
        raise BadPosition(f"{option}={when!r}: must be a time, such as 2024-05-01T08:00:00 or -10m")
    return position.timestamp_ms
