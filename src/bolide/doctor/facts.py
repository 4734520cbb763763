"""The facts that the checks judge, as they were collected: values, or why there is none."""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

from bolide.doctor.clock import ClockDifference
from bolide.model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from bolide.protocol.bodies.consumers import Connection
from bolide.protocol.bodies.controller import Replicas
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.bodies.replication import HaStatus
from bolide.protocol.bodies.routes import ClusterInfo
from bolide.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")

MASTER = 0
IN_EFFECT = "bolideBeforeRestart"
"""A figure: the values in effect of the settings that have others after a restart."""


class Cause(Enum):
    """Why a question has no answer."""

    NOT_CONNECTED = auto()
    NO_ANSWER = auto()
    """Connected, and then silence or the end of the connection."""
    REFUSED = auto()
    NO_PERMISSION = auto()
    UNSUPPORTED = auto()
    NOT_ASKED = auto()
    """It could not be asked, or the examination had no time left for it."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No value, and why."""

    reason: str
    cause: Cause = Cause.NOT_ASKED
    host_is_silent: bool = False
    """Nothing came back from its host, not even a refusal to connect."""


NOT_ASKED = Unanswered("not asked")


def is_known(value: T | Unanswered) -> "TypeIs[T]":
    return not isinstance(value, Unanswered)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerFacts:
    address: str
    info: ClusterInfo | Unanswered
    seconds: float = 0.0
    """How long the answer took."""
    topics: frozenset[str] | Unanswered = NOT_ASKED
    config: Mapping[str, str] | Unanswered = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    cluster: str
    name: str
    broker_id: int
    address: str
    """As it is registered."""
    is_acting: bool = False
    """Whether a slave of the group may act as master."""
    connected: float | Unanswered = NOT_ASKED
    """Seconds to connect to the address."""
    vip: float | Unanswered = NOT_ASKED
    ha_address: str = ""
    ha: float | Unanswered = NOT_ASKED
    found_at: str = ""
    """Where the broker answers, if not at its address."""
    runtime: Mapping[str, str] | Unanswered = NOT_ASKED
    config: Mapping[str, str] | Unanswered = NOT_ASKED
    """Its settings as they are in effect, as far as it tells."""
    pending: Mapping[str, str] = field(default_factory=dict)
    """Values that settings have after a restart only."""
    config_changes: int | Unanswered = NOT_ASKED
    """Requests that changed settings since it started; asked of those that do not tell what waits
    for a restart."""
    clock: ClockDifference | Unanswered = NOT_ASKED
    topics: Mapping[str, TopicConfig] | Unanswered = NOT_ASKED
    ha_status: HaStatus | Unanswered = NOT_ASKED
    lags: Mapping[str, int] | Unanswered = NOT_ASKED
    """Messages that each group has not consumed."""
    dead_letters: Mapping[str, int] | Unanswered = NOT_ASKED
    """Messages in the dead-letter topic of each group."""

    @property
    def label(self) -> str:
        return f"{self.name} (id {self.broker_id}) at {self.address}"

    @property
    def option(self) -> str:
        """`-b …` for the commands of findings."""
        return f"-b {shlex.quote(self.address)}"

    @property
    def is_ours(self) -> bool | None:
        """Whether it is a broker of Bolide, not of RocketMQ; None if unknown."""
        return "bolideVersion" in self.runtime if is_known(self.runtime) else None

    @property
    def tells_pending(self) -> bool:
        """Whether it tells what waits for a restart, so that `config` is in effect."""
        return is_known(self.runtime) and IN_EFFECT in self.runtime

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER

    @property
    def silence(self) -> Unanswered | None:
        """Why it is not worth asking more: it answered nothing, not even with a refusal."""
        if not is_known(self.connected):
            return self.connected
        if not is_known(self.runtime) and self.runtime.cause in {
            Cause.NOT_CONNECTED, Cause.NO_ANSWER,
        }:  # fmt: skip
            return self.runtime
        return None

    def setting(self, key: str) -> str | None:
        """A setting, None if unknown."""
        return self.config.get(key) if is_known(self.config) else None

    def figure(self, key: str) -> float | None:
        """A runtime figure that is a number, None if unknown."""
        if not is_known(self.runtime):
            return None
        return number_in(self.runtime.get(key, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A consumer group that has members now, or that could not be asked."""

    name: str
    members: tuple[Connection, ...] | Unanswered
    subscriptions: Mapping[str, tuple[Subscription, ...] | Unanswered] = field(default_factory=dict)
    """What each member says that it subscribes to, by client id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Everything that was collected of a cluster."""

    name_servers: tuple[NameServerFacts, ...]
    brokers: tuple[BrokerFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    unexamined_groups: int = 0
    """Groups for which no time was left."""
    replicas: Mapping[str, Replicas] | Unanswered = NOT_ASKED
    """What the controllers say of each broker group; not asked without controllers."""
    controllers: tuple[str, ...] = ()

    @property
    def answering(self) -> list[NameServerFacts]:
        return [each for each in self.name_servers if is_known(each.info)]

    @property
    def option(self) -> str:
        """`-n …` for the commands of findings."""
        addresses = ";".join(each.address for each in self.answering or self.name_servers)
        return f"-n {shlex.quote(addresses)}"

    @property
    def broker_groups(self) -> dict[str, list[BrokerFacts]]:
        """The members of each broker group, the master first."""
        found: dict[str, list[BrokerFacts]] = {}
        for each in sorted(self.brokers, key=lambda broker: (broker.name, broker.broker_id)):
            found.setdefault(each.name, []).append(each)
        return found

    @property
    def masters(self) -> list[BrokerFacts]:
        return [each for each in self.brokers if each.is_master]

    def unasked_masters(self) -> Iterator[tuple[str, Unanswered]]:
        """The masters that do not answer, and the groups that have none, each with the reason."""
        for name, members in self.broker_groups.items():
            masters = [each for each in members if each.is_master]
            if not masters:
                yield name, Unanswered("the broker group has no master")
            for each in masters:
                if (silence := each.silence) is not None:
                    yield each.label, silence

    def topic_tables(self) -> Iterator[tuple[BrokerFacts, Mapping[str, TopicConfig]]]:
        """The masters that told their topics, and these."""
        for each in self.masters:
            if is_known(each.topics):
                yield each, each.topics

    def user_topics(self) -> list[str]:
        """The names of all topics that neither brokers nor groups have for themselves."""
        reserved = {each.name for each in self.brokers} | {each.cluster for each in self.brokers}
        names = {name for _, table in self.topic_tables() for name in table}
        return sorted(name for name in names - reserved if is_user_topic(name))


def is_user_topic(name: str) -> bool:
    """Whether a topic is none of the system, of a group or of the broker's own replies."""
    prefixes = (RETRY_PREFIX, DEAD_LETTER_PREFIX, SYSTEM_TOPIC_PREFIX, "%", "RMQ_SYS_")
    return (
        name not in SYSTEM_TOPICS
        and not name.startswith(prefixes)
        and not name.endswith("_REPLY_TOPIC")
    )


def number_in(text: str | None) -> float | None:
    """A finite number, None if a text is none: peers may send anything."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def named(names: Iterable[str], most: int = 5) -> str:
    """Some names in a sentence: the first ones, and how many more."""
    found = list(names)
    shown = ", ".join(found[:most])
    return shown if len(found) <= most else f"{shown} and {len(found) - most} more"
