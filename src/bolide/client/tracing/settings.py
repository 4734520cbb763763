"""Settings of message traces, and the interface of telemetry."""

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
    """The `trace=` argument of producers and push consumers; `trace=True` uses the defaults."""

    topic: str = TRACE_TOPIC
    """The trace topic; its own messages are not traced."""

    batch: int = 100
    """Maximal number of records in one message."""

    interval: float = 0.5
    """Seconds that a record may wait for a full batch."""

    most_waiting: int = 10_000
    """Records that may wait to be sent; further ones are dropped and counted."""

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
        """Interpret the `trace=` argument; None if tracing is off."""
        return given if isinstance(given, Trace) else cls() if given else None


class SendSpan(Protocol):
    """The span of one send."""

    messages: Sequence[Message]
    """The messages to send, with the trace context added."""

    def sent(self, results: Sequence[SendResult]) -> None: ...


class Telemetry(Protocol):
    """The `telemetry=` argument of producers and push consumers, such as `OpenTelemetry()`."""

    def sending(
        self, client_id: str, messages: Sequence[Message]
    ) -> AbstractContextManager[SendSpan]:
        """Surrounds a send; an exception of the block is the failure of the send."""
        ...

    def handling(self, handler: Handler, group: str, client_id: str) -> Handler:
        """Wrap a handler so that each call is surrounded by a span."""
        ...


class NoTelemetry:
    """Creates no spans."""

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
