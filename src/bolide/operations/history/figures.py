"""The values that the history keeps. None is a figure that nobody told."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """What is known of a topic since it was last asked about."""

    sampled: float
    """When, in seconds since 1970; the figures of a large cluster are minutes old."""
    rate_in: float | None = None
    """Messages per second since the sample before; without one that compares, as of a topic that
    was created anew, what its brokers tell of the last minute. None if they tell nothing."""
    messages: int | None = None
    """Messages stored now, in all queues of all brokers."""
    end: int | None = None
    """The sum of the end offsets: messages ever stored."""
    queues: int | None = None
    """On all brokers."""
    last_write_ms: int | None = None
    """When the newest message was stored; None if none is stored."""
    bytes: int | None = None
    """Estimated: the messages stored, times the mean size of those of the last day that they were
    asked for; None until some are counted."""
    is_whole: bool = True
    """Whether all brokers of the topic answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """What is known of a consumer group since it was last asked about."""

    sampled: float
    """When, in seconds since 1970; the figures of a large cluster are minutes old."""
    lag: int | None = None
    """Messages not consumed, in all topics; its retry topic is one of them."""
    delay: float | None = None
    """Age in seconds of the oldest message that it has not consumed; 0 without lag."""
    rate_out: float | None = None
    """Messages delivered to it per second, over the last minute."""
    dead_letters: int | None = None
    """Messages stored in its topic of dead letters; 0 if there is no such topic."""
    members: int | None = None
    """Connected consumers."""
    topics: tuple[str, ...] = ()
    """Topics that it consumes, without its retry topics."""
    is_whole: bool = True
    """Whether all brokers answered; otherwise the lag is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFigures:
    """What one broker, master or slave, told in the last seconds."""

    name: str
    broker_id: int
    address: str
    cluster: str
    sampled: float
    """When it was asked last, in seconds since 1970."""
    is_up: bool | None
    """None before it was asked."""
    reason: str = ""
    """Why it is not up, or why it tells nothing."""
    rate_in: float | None = None
    """Messages stored per second; None for slaves, which only copy."""
    rate_out: float | None = None
    """Messages delivered to consumers per second."""
    disk: float | None = None
    """Part of its fullest disk that is in use, 0 to 1."""
    clients: int | None = None
    """Connected producers and consumers; None if the broker does not tell."""
    version: str = ""

    @property
    def key(self) -> str:
        """The name of its series: a master has its bare name."""
        return f"{self.name}#{self.broker_id}" if self.broker_id else self.name


class Measure(StrEnum):
    """What a series is of."""

    RATE_IN = "rate_in"
    """Messages stored per second, by broker; of the cluster without a name."""
    RATE_OUT = "rate_out"
    """Messages delivered per second, by broker; of the cluster without a name."""
    DISK = "disk"
    """Part of the disk in use, by broker."""
    CLIENTS = "clients"
    """Connected clients, by broker; of the cluster without a name."""
    BACKLOG = "backlog"
    """Lag of all groups."""
    DEAD_LETTERS = "dead_letters"
    """Dead letters of all groups."""
    TOPIC_RATE_IN = "topic_rate_in"
    GROUP_RATE_OUT = "group_rate_out"
    GROUP_LAG = "group_lag"
    GROUP_DELAY = "group_delay"
    """Age in seconds of the oldest message that is not consumed."""
    GROUP_DEAD_LETTERS = "group_dead_letters"


class Range(StrEnum):
    """How far a series goes back."""

    QUARTER = "15m"
    HOUR = "1h"
    SIX_HOURS = "6h"
    DAY = "24h"
    WEEK = "7d"

    @property
    def seconds(self) -> int:
        """Its length."""
        return {"15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The mean of the samples of one step."""

    time_ms: int
    """Beginning of the step."""
    value: float | None
    """None where nothing was sampled: a gap, not 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values over time, oldest first, one per step."""

    measure: Measure
    name: str
    """Of the broker, topic or group; empty for the cluster."""
    step: float
    """Seconds between two points."""
    points: list[Point] = field(default_factory=list)


class Total(NamedTuple):
    """A sum of figures."""

    known: float | None
    """Of those that are known; None if there are some, and none is known. 0 if there are none."""
    unknown: int
    """How many are not known."""

    @classmethod
    def of(cls, figures: Iterable[float | None]) -> Self:
        """Add them up."""
        found = [*figures]
        known = [each for each in found if each is not None]
        return cls(sum(known) if known or not found else None, len(found) - len(known))


def sum_of_known(figures: Iterable[float | None]) -> float | None:
    """The sum of what servers told; None if none of them did, or there are none."""
    known = [each for each in figures if each is not None]
    return sum(known) if known else None
