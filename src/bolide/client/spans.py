"""What a client tells a tracing library of its sends and its handlers."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from bolide.client.consuming.consume import Handler
from bolide.client.producing.results import SendResult
from bolide.model.message import Message


class SendSpan(Protocol):
    """One send under way."""

    messages: Sequence[Message]
    """What is to be sent: the messages with what their receivers need."""

    def sent(self, results: Sequence[SendResult]) -> None: ...


class Telemetry(Protocol):
    """Given as `telemetry=` to a producer or a push consumer, as `OpenTelemetry()` is."""

    def sending(
        self, client_id: str, messages: Sequence[Message]
    ) -> AbstractContextManager[SendSpan]:
        """Surrounds a send; what the block raises is why it failed."""
        ...

    def handling(self, handler: Handler, group: str, client_id: str) -> Handler:
        """The handler with what surrounds each call of it."""
        ...


class NoTelemetry:
    """Tells nobody."""

    def sending(self, client_id: str, messages: Sequence[Message]) -> "_NoSpan":
        return _NoSpan(messages)

    def handling(self, handler: Handler, group: str, client_id: str) -> Handler:
        return handler


class _NoSpan:
    __slots__ = ("messages",)

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def sent(self, results: Sequence[SendResult]) -> None: ...
