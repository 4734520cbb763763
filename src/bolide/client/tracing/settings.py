"""How a client traces: message trace on a topic, and the telemetry interface."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from bolide.client.consumer.handlers.handler import Handler
from bolide.client.producer.results import SendResult
from bolide.errors import ConfigError
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage, check_topic
from bolide.model.names import TRACE_TOPIC, is_sendable


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Given as `trace=` to a producer or a push consumer; `trace=True` means all defaults."""

    topic: str = TRACE_TOPIC
    """Where the records go. Messages of this topic are not traced themselves."""

    batch: int = 100
    """Records that go out together at most, in one message."""

    interval: float = 0.5
    """Seconds that a record waits for others."""

    most_waiting: int = 10_000
    """Records that may wait to be sent; what comes on top of them is dropped and counted."""

    def __post_init__(self) -> None:
        try:
            check_topic(self.topic)
        except InvalidMessage as exc:
            raise ConfigError(f"trace: topic: {exc.reason}") from exc
        if not is_sendable(self.topic):
            raise ConfigError(f"trace: topic: {self.topic!r} belongs to the broker: choose another")
        for name in ("batch", "most_waiting"):
            if getattr(self, name) < 1:
                raise ConfigError(f"trace: {name}={getattr(self, name)}: must be at least 1")
        if self.interval <= 0:
            raise ConfigError(f"trace: interval={self.interval}: must be over 0 seconds")

    @classmethod
    def of(cls, given: "bool | Trace") -> "Trace | None":
        """What a setting means; None if nothing is traced."""
        return given if isinstance(given, Trace) else cls() if given else None


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
