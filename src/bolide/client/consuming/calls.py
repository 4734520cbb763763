"""One call of a handler for messages of a queue, from the workers' side."""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from bolide.client.consuming.consume import Handler, Outcome
from bolide.client.consuming.consumption import ConsumeContext, Consumption
from bolide.client.consuming.held_queue import HeldQueue
from bolide.model.message import StoredMessage

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
