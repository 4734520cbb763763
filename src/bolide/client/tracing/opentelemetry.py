"""OpenTelemetry: a span for each send and each call of a handler, joined through the messages.

The sender's span stands in the messages as W3C says, in the properties `traceparent` and
`tracestate`; whoever consumes goes on from there, in any language. Names and attributes are those
of OpenTelemetry's conventions for messaging.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from bolide.client.consumer.handlers.handler import Handler, RunsOn
from bolide.client.producer.results import SendResult
from bolide.errors import ConfigError
from bolide.model.message import Message, StoredMessage
from bolide.model.properties import PropertyName
from bolide.version import __version__

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, TracerProvider, get_current_span
    from opentelemetry.trace import get_tracer as _get_tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as exc:
    raise ConfigError("spans need OpenTelemetry: pip install 'bolide[otel]'") from exc

_CARRIED = (PropertyName.TRACE_PARENT, PropertyName.TRACE_STATE)


class OpenTelemetry:
    """Given as `telemetry=` to producers and push consumers.

    A send is a span of kind PRODUCER under the current one. A handler's call is a span of kind
    CONSUMER: of one message it is a child of the send's span, of a batch it has links to all of
    them. It is the current span while the handler runs, so what that sends joins the same trace.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Take the provider of spans, OpenTelemetry's global one by default."""
        self._tracer = _get_tracer("bolide", __version__, tracer_provider)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def sending(self, client_id: str, messages: Sequence[Message]) -> Iterator["_Sending"]:
        said = _said("send", client_id, messages)
        # A context of the user's own stays in the message; the span points to it.
        links = self._links(messages)
        with self._tracer.start_as_current_span(
            _title("send", messages), kind=SpanKind.PRODUCER, attributes=said, links=links
        ) as span:
            yield _Sending([self._carrying(message) for message in messages], span)

    def handling(self, handler: Handler, group: str, client_id: str) -> Handler:
        function = handler.function

        @wraps(function)
        def call(given: Any) -> Any:
            with self._processing(_listed(given), group, client_id):
                return function(given)

        @wraps(function)
        async def call_soon(given: Any) -> Any:
            with self._processing(_listed(given), group, client_id):
                return await function(given)

        return replace(handler, function=call_soon if handler.runs_on is RunsOn.LOOP else call)

    @contextmanager
    def _processing(
        self, messages: Sequence[StoredMessage], group: str, client_id: str
    ) -> Iterator[None]:
        said = _said("process", client_id, messages) | {"messaging.consumer.group.name": group}
        alone = len(messages) == 1
        # Never the current one: a worker's task has that of whoever happened to start it.
        parent = self._extracted(messages[0]) if alone else Context()
        links = [] if alone else self._links(messages)
        if alone:
            said["messaging.message.id"] = messages[0].message_id
            said["messaging.rocketmq.message.reconsume_times"] = messages[0].reconsume_times
        with self._tracer.start_as_current_span(
            _title("process", messages),
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=said,
            links=links,
        ):
            yield

    def _carrying(self, message: Message) -> Message:
        if PropertyName.TRACE_PARENT in message.properties:
            return message
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return message.with_properties(carrier) if carrier else message

    def _links(self, messages: Sequence[Message] | Sequence[StoredMessage]) -> list[Link]:
        contexts = map(self._extracted, messages)
        spans = [get_current_span(context).get_span_context() for context in contexts]
        by_id = {span.span_id: span for span in spans if span.is_valid}
        return [Link(span) for span in by_id.values()]

    def _extracted(self, message: Message | StoredMessage) -> Context:
        """The context that a message carries; an empty one if there is none."""
        carrier = {
            name: message.properties[name] for name in _CARRIED if name in message.properties
        }
        return self._propagator.extract(carrier, Context())


@dataclass(slots=True)
class _Sending:
    messages: Sequence[Message]
    _span: Span

    def sent(self, results: Sequence[SendResult]) -> None:
        if len(results) != 1:
            return
        (result,) = results
        self._span.set_attribute("messaging.message.id", result.message_id)
        self._span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        self._span.set_attribute("messaging.rocketmq.broker.name", result.queue.broker_name)


def _said(
    operation: str, client_id: str, messages: Sequence[Message] | Sequence[StoredMessage]
) -> dict[str, Any]:
    """The attributes that both kinds of spans have."""
    said: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.client.id": client_id,
        "messaging.destination.name": _topic(messages),
        "messaging.message.body.size": sum(len(message.body) for message in messages),
    }
    if len(messages) != 1:
        return said | {"messaging.batch.message_count": len(messages)}
    return said | _said_of(messages[0].properties, messages[0].keys)


def _said_of(properties: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, Any]:
    said: dict[str, Any] = {"messaging.rocketmq.message.type": _type(properties)}
    if tags := properties.get(PropertyName.TAGS):
        said["messaging.rocketmq.message.tag"] = tags
    if keys:
        said["messaging.rocketmq.message.keys"] = keys
    if group := properties.get(PropertyName.SHARDING_KEY):
        said["messaging.rocketmq.message.group"] = group
    return said


def _type(properties: Mapping[str, str]) -> str:
    if PropertyName.TRANSACTION_PREPARED in properties:
        return "transaction"
    timed = (
        PropertyName.DELAY_LEVEL,
        PropertyName.START_DELIVER_TIME,
        PropertyName.TIMER_DELIVER_MS,
        PropertyName.TIMER_DELAY_MS,
        PropertyName.TIMER_DELAY_SEC,
    )
    if any(name in properties for name in timed):
        return "delay"
    return "fifo" if PropertyName.SHARDING_KEY in properties else "normal"


def _title(operation: str, messages: Sequence[Message] | Sequence[StoredMessage]) -> str:
    return f"{operation} {_topic(messages)}"


def _topic(messages: Sequence[Message] | Sequence[StoredMessage]) -> str:
    return messages[0].topic if messages else "?"  # an empty batch is about to be refused


def _listed(given: StoredMessage | Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    return [given] if isinstance(given, StoredMessage) else given


__all__ = ["OpenTelemetry"]
