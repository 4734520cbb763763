"""One call of a handler for messages of a queue: the call, its hooks, counters and log lines."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from bolide.client.consumer.counters import TopicCounters
from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import Handler, Outcome, Retry
from bolide.client.consumer.handlers.workers import HandlerCall, Workers
from bolide.client.consumer.send_back import SendBack
from bolide.logs import ThrottledLog
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue

log = logging.getLogger("bolide.client.consuming.consumption")  # documented name


@dataclass(slots=True)
class ConsumeContext:
    """What hooks see of one handler call; `state` is free for their own values."""

    group: str
    queue: MessageQueue
    messages: Sequence[StoredMessage]
    outcome: Outcome | None = None
    """None before the call."""
    state: dict[str, object] = field(default_factory=dict)


class ConsumeHook(Protocol):
    """Runs before and after each handler call; exceptions it raises are logged."""

    def before(self, context: ConsumeContext) -> None:
        """Runs where the handler runs: on the event loop or in a pool thread."""

    def after(self, context: ConsumeContext) -> None:
        """Runs on the event loop."""


class Hooks:
    """The hooks of one consumer."""

    def __init__(self, hooks: Sequence[ConsumeHook]) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before(self, context: ConsumeContext) -> None:
        for hook in self._hooks:
            _guarded(hook.before, context)

    def after(self, context: ConsumeContext) -> None:
        for hook in self._hooks:
            _guarded(hook.after, context)


def _guarded(call: Callable[[ConsumeContext], None], context: ConsumeContext) -> None:
    try:
        call(context)
    except Exception:
        log.exception("a consume hook failed")


@dataclass(frozen=True, slots=True)
class ConsumerRuntime:
    """What every kind of delivery needs from its consumer."""

    group: str
    handlers: Mapping[str, Handler]
    """By topic name without namespace."""
    workers: Workers
    send_back: SendBack | None
    """None if the group broadcasts: failed messages are dropped then."""
    counters: TopicCounters
    hooks: Hooks
    throttled: ThrottledLog = field(default_factory=lambda: ThrottledLog(log))

    def context(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> ConsumeContext:
        return ConsumeContext(self.group, held.queue, messages)

    def record(self, call: HandlerCall, held: HeldQueue, outcome: Outcome) -> None:
        """Count a call and log its error, if any."""
        seconds = time.monotonic() - (call.started or 0.0)
        failed = len(call.messages) - outcome.done
        self.counters[held.queue.topic].consumed(outcome.done, failed, seconds)
        if isinstance(outcome.error, Retry):
            log.debug("%s: a message of %s is retried: %s", self.group, held.queue, outcome.error)
        elif outcome.error is not None:
            self.throttled.warning(
                (held.queue.topic, type(outcome.error)),
                "%s: a handler failed with a message of %s: %r",
                self.group,
                held.queue,
                outcome.error,
                exc_info=outcome.error,
            )


Q = TypeVar("Q", bound=HeldQueue)


class CallOwner(Protocol):
    """Makes calls and receives their outcomes."""

    runtime: ConsumerRuntime

    def complete(self, call: Any, outcome: Outcome) -> None: ...


class DeliveryCall(Generic[Q]):
    """One call of a handler; reports its outcome to the owner."""

    __slots__ = ("_owner", "context", "handler", "held", "is_abandoned", "messages", "started")

    def __init__(
        self, owner: CallOwner, handler: Handler, messages: Sequence[StoredMessage], held: Q
    ) -> None:
        self._owner = owner
        self.handler = handler
        self.messages = messages
        self.held = held
        self.started: float | None = None
        self.is_abandoned = False
        self.context: ConsumeContext | None = None

    def invoke(self) -> Any:
        runtime = self._owner.runtime
        if runtime.hooks:
            self.context = runtime.context(self.held, self.messages)
            runtime.hooks.before(self.context)
        return self.handler.call(self.messages)

    def complete(self, outcome: Outcome) -> None:
        self._owner.complete(self, outcome)

    def is_older_than(self, time: float) -> bool:
        return self.started is not None and self.started < time and not self.is_abandoned
