"""Hooks of a producer: code of users that sees every try of a send."""

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
    """One try of a send. `messages` has more than one item only for a batch."""

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
    """For the hooks: what `before` puts here, `after` finds."""


class SendHook(Protocol):
    """Sees each try before it leaves and after it ended. What a hook raises is only logged."""

    def before(self, context: SendContext) -> None: ...

    def after(self, context: SendContext) -> None: ...


class ForbiddenHook(Protocol):
    """Raises to forbid a send; the error reaches the sender, and nothing is sent."""

    def __call__(self, context: SendContext) -> None: ...


@dataclass(slots=True, kw_only=True)
class EndTransactionContext:
    """A transaction that its producer ends, by itself or because the broker asked."""

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
    """Why the broker could not be told, or did not take it."""


class EndTransactionHook(Protocol):
    """Sees each end once the broker was told. What a hook raises is only logged."""

    def ended(self, context: EndTransactionContext) -> None: ...
