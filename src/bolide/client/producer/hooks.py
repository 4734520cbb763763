"""Hooks of a producer: user code called for every try of a send."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from bolide.client.producer.results import SendResult, TransactionState
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue


class SendKind(Enum):
    NORMAL = auto()
    DELAYED = auto()
    BATCH = auto()
    HALF = auto()
    """The first half of a transaction."""


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One try of a send; `messages` has several items only for a batch."""

    group: str
    messages: tuple[Message, ...]
    unique_ids: tuple[str, ...]
    queue: MessageQueue
    broker_address: str
    client_id: str
    namespace: str
    kind: SendKind
    one_way: bool
    result: SendResult | None = None
    error: Exception | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """Free for values that hooks pass from `before` to `after`."""


class SendHook(Protocol):
    """Called before and after each try; exceptions are logged."""

    def before(self, context: SendContext) -> None: ...

    def after(self, context: SendContext) -> None: ...


class ForbiddenHook(Protocol):
    """Raises to forbid a send; the exception reaches the caller of `send`."""

    def __call__(self, context: SendContext) -> None: ...


@dataclass(slots=True, kw_only=True)
class EndTransactionContext:
    """The end of a transaction, reported by its producer or in reply to a broker's check."""

    group: str
    message: Message | StoredMessage
    unique_id: str
    transaction_id: str | None
    broker_name: str
    broker_address: str
    client_id: str
    namespace: str
    state: TransactionState
    from_check: bool
    error: Exception | None = None
    """Why the report failed, if it did."""


class EndTransactionHook(Protocol):
    """Called after each end was reported to the broker; exceptions are logged."""

    def ended(self, context: EndTransactionContext) -> None: ...
