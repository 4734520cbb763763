"""The model of a metric: a family of series with the same name and the same label names.

A family is cheap to make and is read once, on a thread. Its series may be a generator, so that what
is counted at a scrape need not be in memory as a whole.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from bolide.distribution import Distribution


class Kind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


Value = float | Distribution
Labels = tuple[str, ...]
Series = tuple[Labels, Value]
"""The values of the labels of a family, in order, and what was measured."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Labels that all series of a family have in common."""

    labels: tuple[tuple[str, str], ...] = ()
    meter: str = ""
    """The name of RocketMQ's meter. Prometheus sees it as a label, as from a Java broker."""

    @property
    def shown(self) -> tuple[tuple[str, str], ...]:
        """All labels as Prometheus sees them."""
        named = tuple((label_name(name), value) for name, value in self.labels)
        return named + ((("otel_scope_name", self.meter),) if self.meter else ())


@dataclass(slots=True)
class Family:
    """Series of one metric.

    Args:
        name: without the suffix that Prometheus gets for the unit.
        unit: as RocketMQ names it for OpenTelemetry: bytes, milliseconds, seconds or none.
        labels: names of the labels of its own.
        limit: most series that are shown; None: no limit.
    """

    name: str
    kind: Kind
    help: str
    series: Iterable[Series]
    unit: str = ""
    labels: tuple[str, ...] = ()
    scope: Scope = field(default_factory=Scope)
    limit: int | None = None
    dropped: int = 0
    """Series over the limit, known once all were read."""

    @property
    def full_name(self) -> str:
        """The name that Prometheus sees: with the unit, if it does not end with it already."""
        if not self.unit or self.name.endswith(f"_{self.unit}"):
            return self.name
        return f"{self.name}_{self.unit}"

    def limited(self) -> Iterable[Series]:
        """The series up to the limit; the others are counted."""
        shown = 0
        for series in self.series:
            if self.limit is not None and shown >= self.limit:
                self.dropped += 1
                continue
            shown += 1
            yield series


def label_name(name: str) -> str:
    """A name as Prometheus can read it, made as OpenTelemetry's exporter makes it."""
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain


def truth(value: bool) -> str:
    """The value of a label that says yes or no."""
    return "true" if value else "false"
