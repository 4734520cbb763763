"""What surrounds each call of a handler: counting, hooks, log lines."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bolide.client.consuming.consume import Handler, Outcome, Retry
from bolide.client.consuming.consume_counters import ConsumptionCounters
from bolide.client.consuming.held_queue import HeldQueue
from bolide.client.consuming.jobs import Job
from bolide.client.consuming.send_back import SendBack
from bolide.client.consuming.workers import Workers
from bolide.client.rare_log import RareLog
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)


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
    rare: RareLog = field(default_factory=lambda: RareLog(log))

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
