"""OpenTelemetry spans for sends and handler calls, linked through message properties.

A message carries the context of the sender's span in the properties `traceparent` and `tracestate`
(W3C Trace Context), which consumers in any language can continue. Names and attributes follow
OpenTelemetry's semantic conventions for messaging.
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

_CONTEXT_PROPERTIES = (PropertyName.TRACE_PARENT, PropertyName.TRACE_STATE)


class OpenTelemetry:
    """The `telemetry=` argument of producers and push consumers.

    A send is a span of kind PRODUCER below the current span. A handler call is a span of kind
    CONSUMER: for one message it is a child of the send's span, for a batch it is linked to all of
    them. It is the current span while the handler runs, so sends of the handler join the trace.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Use this provider, by default OpenTelemetry's global one."""
        self._tracer = _get_tracer("bolide", __version__, tracer_provider)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def sending(self, client_id: str, messages: Sequence[Message]) -> Iterator["_SendSpan"]:
        attributes = _attributes("send", client_id, messages)
        # A context set by the user stays in the message; the span links to it.
        links = self._links(messages)
        with self._tracer.start_as_current_span(
            _title("send", messages), kind=SpanKind.PRODUCER, attributes=attributes, links=links
        ) as span:
            yield _SendSpan([self._with_context(message) for message in messages], span)

    def handling(self, handler: Handler, group: str, client_id: str) -> Handler:
        function = handler.function

        @wraps(function)
        def call(given: Any) -> Any:
            with self._processing(_as_list(given), group, client_id):
                return function(given)

        @wraps(function)
        async def call_async(given: Any) -> Any:
            with self._processing(_as_list(given), group, client_id):
                return await function(given)

        return replace(handler, function=call_async if handler.runs_on is RunsOn.LOOP else call)

    @contextmanager
    def _processing(
        self, messages: Sequence[StoredMessage], group: str, client_id: str
    ) -> Iterator[None]:
        attributes = _attributes("process", client_id, messages)
        attributes["messaging.consumer.group.name"] = group
        is_single = len(messages) == 1
        # Not the current span: a worker task inherits that of whatever code started it.
        parent = self._context_of(messages[0]) if is_single else Context()
        links = [] if is_single else self._links(messages)
        if is_single:
            attributes["messaging.message.id"] = messages[0].message_id
            attributes["messaging.rocketmq.message.reconsume_times"] = messages[0].reconsume_times
        with self._tracer.start_as_current_span(
            _title("process", messages),
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        ):
            yield

    def _with_context(self, message: Message) -> Message:
        if PropertyName.TRACE_PARENT in message.properties:
            return message
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return message.with_properties(carrier) if carrier else message

    def _links(self, messages: Sequence[Message] | Sequence[StoredMessage]) -> list[Link]:
        contexts = map(self._context_of, messages)
        spans = [get_current_span(context).get_span_context() for context in contexts]
        by_id = {span.span_id: span for span in spans if span.is_valid}
        return [Link(span) for span in by_id.values()]

    def _context_of(self, message: Message | StoredMessage) -> Context:
        """The context that a message carries; empty if there is none."""
        carrier = {
            name: message.properties[name]
            for name in _CONTEXT_PROPERTIES
            if name in message.properties
        }
        return self._propagator.extract(carrier, Context())


@dataclass(slots=True)
class _SendSpan:
    messages: Sequence[Message]
    _span: Span

    def sent(self, results: Sequence[SendResult]) -> None:
        if len(results) != 1:
            return
        (result,) = results
        self._span.set_attribute("messaging.message.id", result.message_id)
        self._span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        self._span.set_attribute("messaging.rocketmq.broker.name", result.queue.broker_name)


def _attributes(
    operation: str, client_id: str, messages: Sequence[Message] | Sequence[StoredMessage]
) -> dict[str, Any]:
    """The attributes of both kinds of spans."""
    attributes: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.client.id": client_id,
        "messaging.destination.name": _topic(messages),
        "messaging.message.body.size": sum(len(message.body) for message in messages),
    }
    if len(messages) != 1:
        return attributes | {"messaging.batch.message_count": len(messages)}
    return attributes | _message_attributes(messages[0].properties, messages[0].keys)


def _message_attributes(properties: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, Any]:
    attributes: dict[str, Any] = {"messaging.rocketmq.message.type": _type(properties)}
    if tags := properties.get(PropertyName.TAGS):
        attributes["messaging.rocketmq.message.tag"] = tags
    if keys:
        attributes["messaging.rocketmq.message.keys"] = keys
    if group := properties.get(PropertyName.SHARDING_KEY):
        attributes["messaging.rocketmq.message.group"] = group
    return attributes


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
    return messages[0].topic if messages else "?"  # an empty batch is rejected later


def _as_list(given: StoredMessage | Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    return [given] if isinstance(given, StoredMessage) else given


__all__ = ["OpenTelemetry"]
