"""Settings of the consumers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from bolide.client.consumer.group.assignment import STRATEGY_NAMES, Strategy, average
from bolide.client.consumer.group.held_queue import FlowLimits
from bolide.client.consumer.group.offsets import OffsetStore
from bolide.client.consumer.group.rebalance import AssignmentListener
from bolide.client.consumer.group.start_position import ConsumeFrom, StartPosition, Timestamp
from bolide.client.consumer.handlers.invocation import ConsumeHook
from bolide.client.consumer.pull.pull_request import FilterHook
from bolide.client.consumer.send_back import DEFAULT_MAX_RECONSUME_TIMES
from bolide.client.instance.settings import ClientArguments, ClientSettings
from bolide.client.tracing.settings import Telemetry, Trace
from bolide.errors import ConfigError
from bolide.protocol.bodies.heartbeat import MessageModel

S = TypeVar("S", bound="ConsumerSettings")

_MODELS = {"clustering": MessageModel.CLUSTERING, "broadcasting": MessageModel.BROADCASTING}
_MAX_PULL = 1024
MAX_POP = 32
"""Largest batch of one pop that brokers accept."""
_MIN_INVISIBLE, _MAX_INVISIBLE = 5.0, 300.0
_REBALANCES = ("client", "broker")


class ConsumerArguments(ClientArguments, total=False):
    """The keyword arguments of every consumer; see `ConsumerSettings`."""

    consume_from: str
    consume_timestamp: Timestamp | None
    model: str
    allocate: Strategy
    commit_interval: float
    suspend: float
    max_reconsume_times: int | None
    offset_store: OffsetStore | None
    offset_directory: str | Path | None
    filter_hooks: Sequence[FilterHook]
    on_assignment: AssignmentListener | None


class LitePullArguments(ConsumerArguments, total=False):
    """The keyword arguments of a lite pull consumer; see `LitePullSettings`."""

    auto_commit: bool
    pull_batch_size: int
    flow_limits: FlowLimits
    most_held: int
    topic_check_interval: float


class PushArguments(ConsumerArguments, total=False):
    """The keyword arguments of a push consumer; see `PushSettings`."""

    concurrency: int
    pull_batch_size: int
    pull_batch_bytes: int
    pull_interval: float
    flow_limits: FlowLimits
    consume_timeout: float
    ordered_suspend: float
    close_timeout: float
    post_subscription_when_pull: bool
    consume_hooks: Sequence[ConsumeHook]
    trace: bool | Trace
    telemetry: Telemetry | None
    rebalance: str
    pop_invisible: float
    pop_batch_size: int
    pop_threshold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Settings of every consumer; durations are in seconds."""

    consume_from: str = "last"
    """Where a group without committed offsets begins: "last", "first" or "timestamp"."""

    consume_timestamp: Timestamp | None = None
    """`"20131223171201"` in local time, a datetime or seconds since 1970; None means half an hour
    before the start."""

    model: str = "clustering"
    """With "clustering" a message goes to one member, with "broadcasting" to every member."""

    allocate: Strategy = average
    """The strategy that assigns queues: a function of `bolide.assignment`, or your own."""

    commit_interval: float = 5.0
    """Time between two commits of offsets."""

    suspend: float = 20.0
    """How long a broker may suspend a pull that finds no message (long polling)."""

    max_reconsume_times: int | None = None
    """Retries before a message becomes a dead letter. None means 16, and no limit for ordered
    handlers."""

    offset_store: OffsetStore | None = None
    """A custom store of offsets, instead of the brokers or, when broadcasting, a file."""

    offset_directory: str | Path | None = None
    """Directory of a broadcasting consumer's offset file; ~/.rocketmq_offsets by default."""

    filter_hooks: Sequence[FilterHook] = ()
    """Predicates; a message is delivered if all of them return True."""

    on_assignment: AssignmentListener | None = None
    """Called when the queues assigned to this consumer change."""

    def __post_init__(self) -> None:
        if self.model not in _MODELS:
            raise ConfigError(f"model={self.model!r}: must be one of {', '.join(_MODELS)}")
        self.start(0.0)
        self._require_over(0, "commit_interval")
        self._require_least(0, "suspend")
        if self.max_reconsume_times is not None:
            self._require_least(0, "max_reconsume_times")

    def start(self, now: float) -> StartPosition:
        """Raises ConfigError."""
        return StartPosition.of(self.consume_from, self.consume_timestamp, now)

    @property
    def message_model(self) -> MessageModel:
        return _MODELS[self.model]

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    @property
    def sent_back_times(self) -> int:
        """How often a message is sent back before it becomes a dead letter."""
        times = self.max_reconsume_times
        return DEFAULT_MAX_RECONSUME_TIMES if times is None else times

    def _require_over(self, bound: float, *names: str) -> None:
        for name in names:
            if getattr(self, name) <= bound:
                raise ConfigError(f"{name}={getattr(self, name)}: must be over {bound}")

    def _require_least(self, bound: float, *names: str) -> None:
        for name in names:
            if getattr(self, name) < bound:
                raise ConfigError(f"{name}={getattr(self, name)}: must be at least {bound}")

    def _require_pull_size(self, size: int) -> None:
        if not 1 <= size <= _MAX_PULL:
            raise ConfigError(f"pull_batch_size={size}: must be 1 to {_MAX_PULL}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSettings(ConsumerSettings):
    """Settings of a lite pull consumer."""

    auto_commit: bool = True
    """Whether `poll` commits the messages of earlier polls every `commit_interval`."""

    pull_batch_size: int = 10
    flow_limits: FlowLimits = field(default_factory=FlowLimits)
    """How much of each queue is buffered before pulling stops."""

    most_held: int = 10_000
    """Messages of all queues together that may be buffered."""

    topic_check_interval: float = 30.0
    """Time between two checks for `listen_for_queues`."""

    def __post_init__(self) -> None:
        ConsumerSettings.__post_init__(self)
        self._require_pull_size(self.pull_batch_size)
        self._require_over(0, "most_held", "topic_check_interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings(ConsumerSettings):
    """Settings of a push consumer."""

    suspend: float = 15.0
    concurrency: int = 20
    """How many handlers run at a time; applies to tasks and to threads separately."""

    pull_batch_size: int = 256
    """Messages to request with one pull; brokers may return fewer (RocketMQ's return 32)."""

    pull_batch_bytes: int = 256 * 1024
    pull_interval: float = 0.0
    """Pause before the next pull of a queue after messages were found."""

    flow_limits: FlowLimits = field(default_factory=FlowLimits)
    """How much of each queue is buffered before pulling stops."""

    consume_timeout: float = 15 * 60.0
    """A message whose handler runs longer is sent back."""

    ordered_suspend: float = 1.0
    """How long a queue waits after its ordered handler fails."""

    close_timeout: float = 15.0
    """How long closing waits for running handlers."""

    post_subscription_when_pull: bool = False
    """Send the expression with every pull, for members whose subscriptions differ."""

    consume_hooks: Sequence[ConsumeHook] = ()
    """Called before and after each handler call."""

    trace: bool | Trace = False
    """Whether to send a trace of every handler call to the trace topic; see `Trace`."""

    telemetry: Telemetry | None = None
    """Creates spans around handler calls, such as `tracing.opentelemetry.OpenTelemetry()`."""

    rebalance: str = "client"
    """Who assigns the queues: "client", each member by itself, or "broker", which may have them
    popped instead of pulled (`mqadmin setConsumeMode`). Topics with ordered handlers are always
    assigned by the members."""

    pop_invisible: float = 60.0
    """Lease of a popped message, 5 to 300; renewed while the message is in process."""

    pop_batch_size: int = 32
    pop_threshold: int = 96
    """Popped messages of one queue, or of one broker, in process before popping stops."""

    def __post_init__(self) -> None:
        ConsumerSettings.__post_init__(self)
        self._require_pull_size(self.pull_batch_size)
        self._require_pops()
        self._require_least(1, "concurrency", "pull_batch_bytes")
        self._require_least(0, "pull_interval", "ordered_suspend", "close_timeout")
        self._require_over(0, "consume_timeout")

    @property
    def is_balanced_by_broker(self) -> bool:
        """Whether the brokers assign the queues."""
        return self.rebalance == "broker" and not self.is_broadcasting

    def _require_pops(self) -> None:
        if self.rebalance not in _REBALANCES:
            words = ", ".join(_REBALANCES)
            raise ConfigError(f"rebalance={self.rebalance!r}: must be one of {words}")
        if self.is_balanced_by_broker and self.allocate not in STRATEGY_NAMES:
            raise ConfigError(
                "allocate: brokers assign queues by average or average_by_circle only;"
                ' use one of these, or rebalance="client"'
            )
        if not 1 <= self.pop_batch_size <= MAX_POP:
            raise ConfigError(f"pop_batch_size={self.pop_batch_size}: must be 1 to {MAX_POP}")
        if not _MIN_INVISIBLE <= self.pop_invisible <= _MAX_INVISIBLE:
            raise ConfigError(
                f"pop_invisible={self.pop_invisible:g}: must be"
                f" {_MIN_INVISIBLE:g} to {_MAX_INVISIBLE:g} seconds"
            )
        self._require_least(1, "pop_threshold")


def split_arguments(kind: type[S], arguments: Mapping[str, Any]) -> tuple[S, ClientSettings]:
    """Split keyword arguments into those of the consumer and those of its client.

    Raises:
        ConfigError: a setting is invalid.
        TypeError: an argument is unknown.
    """
    names = {each.name for each in fields(kind)}
    own = {name: value for name, value in arguments.items() if name in names}
    rest = {name: value for name, value in arguments.items() if name not in names}
    settings, client = kind(**own), ClientSettings.of(**rest)
    # A broadcasting consumer finds its offset file by client id, which must not change.
    return settings, client if settings.is_broadcasting else client.with_own_name()


class PopArguments(ClientArguments, total=False):
    """The keyword arguments of a pop consumer; see `PopSettings`."""

    consume_from: str
    invisible: float
    ordered: bool
    max_reconsume_times: int | None
    filter_hooks: Sequence[FilterHook]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopSettings(ConsumerSettings):
    """Settings of a pop consumer."""

    invisible: float = 30.0
    """Lease of a received message, unless `receive` sets another."""

    ordered: bool = False
    """Keep queue order: a queue is blocked until its received messages are acknowledged."""

    def __post_init__(self) -> None:
        ConsumerSettings.__post_init__(self)
        self._require_over(0, "invisible")
        if self.is_broadcasting:
            raise ConfigError('model="broadcasting": a pop consumer cannot broadcast')
        if self.consume_from == ConsumeFrom.TIMESTAMP:
            raise ConfigError(
                'consume_from="timestamp": a pop consumer begins "first" or "last";'
                " its offsets can be reset by time afterwards"
            )
