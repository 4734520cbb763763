"""Handler invocations: one call for messages of a queue, with hooks, counters and log lines."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from bolide.client.consumer.counters import ConsumptionCounters
from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import Handler, Outcome, Retry
from bolide.client.consumer.handlers.workers import Job, Workers
from bolide.client.consumer.send_back import SendBack
from bolide.logs import ThrottledLog
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue

log = logging.getLogger("bolide.client.consuming.consumption")  # documented name


@dataclass(slots=True)
class ConsumeContext:
    """What hooks see of one call of a handler; `state` is theirs to keep things in."""

    group: str
    queue: MessageQueue
    messages: Sequence[StoredMessage]
    outcome: Outcome | None = None
    """None before the call."""
    state: dict[str, object] = field(default_factory=dict)


class ConsumeHook(Protocol):
    """Called around each call of a handler; what it raises is logged."""

    def before(self, context: ConsumeContext) -> None:
        """Called where the handler runs: in a thread, if it does."""

    def after(self, context: ConsumeContext) -> None:
        """Called on the event loop."""


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
class Consumption:
    """What both ways to consume work with."""

    group: str
    handlers: Mapping[str, Handler]
    """By topic, as users call it."""
    workers: Workers
    send_back: SendBack | None
    """None if the group broadcasts: what fails is not sent back then."""
    counters: ConsumptionCounters
    hooks: Hooks
    rare: ThrottledLog = field(default_factory=lambda: ThrottledLog(log))

    def context(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> ConsumeContext:
        return ConsumeContext(self.group, held.queue, messages)

    def note(self, job: Job, held: HeldQueue, outcome: Outcome) -> None:
        """Count a call, and say what went wrong with it."""
        seconds = time.monotonic() - (job.started or 0.0)
        failed = len(job.messages) - outcome.done
        self.counters[held.queue.topic].consumed(outcome.done, failed, seconds)
        if isinstance(outcome.error, Retry):
            log.debug("%s: a message of %s comes again: %s", self.group, held.queue, outcome.error)
        elif outcome.error is not None:
            self.rare.warning(
                (held.queue.topic, type(outcome.error)),
                "%s: a handler failed with a message of %s: %r",
                self.group,
                held.queue,
                outcome.error,
                exc_info=outcome.error,
            )


Q = TypeVar("Q", bound=HeldQueue)


class Owner(Protocol):
    common: Consumption

    def settle(self, job: Any, outcome: Outcome) -> None: ...


class Call(Generic[Q]):
    """Runs once; whoever made it is told the outcome."""

    __slots__ = ("_owner", "context", "handler", "held", "is_abandoned", "messages", "started")

    def __init__(
        self, owner: Owner, handler: Handler, messages: Sequence[StoredMessage], held: Q
    ) -> None:
        self._owner = owner
        self.handler = handler
        self.messages = messages
        self.held = held
        self.started: float | None = None
        self.is_abandoned = False
        self.context: ConsumeContext | None = None

    def call(self) -> Any:
        common = self._owner.common
        if common.hooks:
            self.context = common.context(self.held, self.messages)
            common.hooks.before(self.context)
        return self.handler.call(self.messages)

    def settle(self, outcome: Outcome) -> None:
        self._owner.settle(self, outcome)

    def is_older_than(self, time: float) -> bool:
        return self.started is not None and self.started < time and not self.is_abandoned
