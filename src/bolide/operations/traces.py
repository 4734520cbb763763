"""Traces: what happened to a message, from its send to each attempt to consume it.

Clients write trace records if they are told to; a client without traces leaves a gap. Gaps are
None in the views, and `missing` names them.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from bolide.admin.errors import MessageNotFound
from bolide.admin.message_history import TraceEntry
from bolide.admin.messages import DEFAULT_LIMIT
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.names import TRACE_TOPIC
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput, NotFound
from bolide.operations.messages.finding import messages_of_id
from bolide.operations.messages.rows import row_of
from bolide.operations.messages.views import MessageRow
from bolide.operations.views import Failure, Page, failure_of, page_of, unknown_last
from bolide.protocol.refusals import TopicNotFound
from bolide.protocol.trace import (
    END_TRANSACTION,
    PUB,
    RECALL,
    SUB_AFTER,
    SUB_BEFORE,
    TraceRecord,
    read_records,
)

_LIMIT = 1024
"""Trace messages asked of each broker; RocketMQ's return no more than 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One thing that happened to a message, with its place on the time line."""

    kind: str
    """send, store, consume, transaction or recall."""
    began_ms: int | None
    """By the clock of the client; of a store by the one of the broker."""
    ended_ms: int | None
    took_ms: int | None
    group: str | None
    client: str | None
    """The host of the client, as far as it is told."""
    broker: str | None
    """The address of the broker that stored it."""
    status: str
    """success, failed, running or unknown; of a transaction its end: COMMIT_MESSAGE and so on."""
    detail: str | None
    """What else is known: how the attempt ended, the id of the transaction, who asked."""
    attempt: int | None
    """Of a consume attempt of its group: 0 is the first one."""
    since_begin_ms: int | None
    """From the first event of the message to the begin of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """The time line of one message."""

    message_id: str
    topic: str | None
    tags: str | None
    keys: list[str]
    message_type: str | None
    """Normal, TransHalf, TransCommit, Delay or Order."""
    began_ms: int | None
    ended_ms: int | None
    """The end of what is known."""
    events: list[TraceEvent]
    """In the order of their time."""
    message: MessageRow | None
    """The stored message; None if it is not found."""
    missing: list[str]
    """What the trace does not tell, and why."""
    is_cut: bool
    """Whether there may be more records than the brokers return."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """A traced message in a list."""

    message_id: str
    topic: str | None
    tags: str | None
    keys: list[str]
    sent_ms: int | None
    """None if its send was not traced."""
    attempts: int
    """Traced attempts to consume it."""
    failed_attempts: int
    groups: list[str]


@read("/traces")
async def find_traces(  # noqa: PLR0913  the options of a search
    cluster: Cluster,
    *,
    key: str,
    trace_topic: str = TRACE_TOPIC,
    topic: str = "",
    begin_ms: int = 0,
    end_ms: int | None = None,
    page: int = 1,
    size: int = 50,
) -> Page[TraceSummary]:
    """List the traced messages with a key or an id.

    Args:
        key: a key of the messages, or a unique id.
        trace_topic: where clients write their traces.
        topic: only messages of this topic.
        begin_ms: only traces stored at this time or later, in ms since 1970.
        end_ms: only traces stored at this time or before.
        page: from 1.
        size: messages on a page.
    """
    key = key.strip()
    if not key:
        raise BadInput("key", "give a key or an id of a message")
    failures: list[Failure] = []
    try:
        found = await cluster.admin.messages.by_key(
            trace_topic,
            key,
            limit=_LIMIT,
            begin=begin_ms,
            end=end_ms,
            on_failure=lambda error: failures.append(failure_of("broker", error)),
        )
    except MessageNotFound:
        found = []
    except TopicNotFound as exc:
        raise _no_trace_topic(trace_topic) from exc
    by_id: dict[str, list[TraceRecord]] = defaultdict(list)
    for record in _records(found):
        if key == record.message_id or key in (record.keys or "").split():
            for message_id in (record.message_id or "").split(","):
                by_id[message_id].append(record)
    rows = [_summary(message_id, records) for message_id, records in by_id.items() if message_id]
    rows = [each for each in rows if topic in {"", each.topic}]
    rows.sort(key=unknown_last(lambda each: each.sent_ms, descending=True), reverse=True)
    return page_of(rows, page=page, size=size, failures=failures)


@read("/traces/{message_id}")
async def view_trace(
    cluster: Cluster, message_id: str, *, topic: str = "", trace_topic: str = TRACE_TOPIC
) -> MessageTrace:
    """Show the time line of a message: send, store, attempts to consume it, ends of transactions.

    Args:
        message_id: the unique id, or with `topic` an id of either kind.
        topic: the topic of the message; without it, its trace has to tell.
        trace_topic: where clients write their traces.
    """
    message_id = message_id.strip()
    if not message_id:
        raise BadInput("message_id", "give the id of a message")
    failures: list[Failure] = []
    stored: list[StoredMessage] = []
    if topic:
        stored, failures = await _stored(cluster, topic, message_id)
        message_id = stored[0].message_id if stored else message_id
    cut: list[str] = []
    entries = await _entries(cluster, message_id, trace_topic, cut, failures)
    records = [each.record for each in entries]
    told_topic = topic or next((each.topic for each in records if each.topic), "")
    if told_topic and not topic:
        stored, failed = await _stored(cluster, told_topic, message_id)
        failures += failed
    if not entries and not stored:
        raise NotFound(
            f"no trace of message {message_id} is in topic {trace_topic}, and the message itself"
            " is not found: check the id, or whether its clients write traces"
        )
    events = _events(entries, stored)
    times = [at for each in events for at in (each.began_ms, each.ended_ms) if at is not None]
    sent = next((each for each in records if each.kind in {PUB, END_TRANSACTION}), None)
    message = stored[0] if stored else None
    return MessageTrace(
        message_id=message_id,
        topic=told_topic or None,
        tags=(sent.tags if sent else None) or (message.tags if message else None),
        keys=_keys(records) or (list(message.keys) if message else []),
        message_type=sent.message_type if sent else None,
        began_ms=min(times, default=None),
        ended_ms=max(times, default=None),
        events=events,
        message=row_of(message) if message else None,
        missing=_missing(records, stored),
        is_cut=bool(cut),
        failures=failures,
    )


async def _stored(
    cluster: Cluster, topic: str, message_id: str
) -> tuple[list[StoredMessage], list[Failure]]:
    try:
        return await messages_of_id(cluster, topic, message_id)
    except (NotFound, TopicNotFound):
        return [], []
    except BolideError as exc:
        return [], [failure_of(topic, exc)]


async def _entries(
    cluster: Cluster, message_id: str, trace_topic: str, cut: list[str], failures: list[Failure]
) -> list[TraceEntry]:
    try:
        return await cluster.admin.traces.of(
            message_id,
            topic=trace_topic,
            limit=DEFAULT_LIMIT,
            on_cut=cut.extend,
            on_failure=lambda error: failures.append(failure_of("broker", error)),
        )
    except MessageNotFound:
        return []
    except TopicNotFound as exc:
        raise _no_trace_topic(trace_topic) from exc


def _no_trace_topic(topic: str) -> NotFound:
    return NotFound(
        f"there is no trace topic {topic!r}: set traceTopicEnable=true at the brokers and have the"
        " clients write traces, or give the topic that they write to"
    )


def _events(entries: list[TraceEntry], stored: list[StoredMessage]) -> list[TraceEvent]:
    found = [*_sends(entries), *_stores(stored), *_attempts(entries), *_ends(entries)]
    begin = min((each.began_ms for each in found if each.began_ms is not None), default=None)
    found.sort(key=lambda each: (each.began_ms is None, each.began_ms or 0))
    return [_placed(each, begin) for each in found]


def _placed(event: TraceEvent, begin: int | None) -> TraceEvent:
    if event.began_ms is None or begin is None:
        return event
    return replace(event, since_begin_ms=event.began_ms - begin)


def _event(  # noqa: PLR0913  the fields of an event
    kind: str,
    record: TraceRecord | None,
    *,
    status: str,
    began_ms: int | None = None,
    took_ms: int | None = None,
    client: str | None = None,
    broker: str | None = None,
    detail: str | None = None,
) -> TraceEvent:
    ended = None if began_ms is None or took_ms is None else began_ms + took_ms
    return TraceEvent(
        kind=kind,
        began_ms=began_ms,
        ended_ms=ended,
        took_ms=took_ms,
        group=record.group if record else None,
        client=client,
        broker=broker,
        status=status,
        detail=detail,
        attempt=record.retry_times if record else None,
        since_begin_ms=None,
    )


def _sends(entries: Iterable[TraceEntry]) -> list[TraceEvent]:
    return [
        _event(
            "send",
            each.record,
            status=_status(each.record.success),
            began_ms=each.record.time_ms,
            took_ms=each.record.cost_ms,
            client=each.record.client_host or each.client_host,
            broker=each.record.store_host,
            detail=each.record.message_type,
        )
        for each in entries
        if each.record.kind == PUB
    ]


def _stores(stored: Iterable[StoredMessage]) -> list[TraceEvent]:
    return [
        _event(
            "store",
            None,
            status="success",
            began_ms=each.store_timestamp,
            took_ms=0,
            broker=str(each.store_host),
            detail=f"{each.broker_name} queue {each.queue_id} at {each.queue_offset}",
        )
        for each in stored
    ]


def _attempts(entries: Iterable[TraceEntry]) -> list[TraceEvent]:
    """The attempts to consume: records of begin and end belong together by their request id."""
    before: dict[str | None, TraceEntry] = {}
    after: dict[str | None, TraceEntry] = {}
    for each in entries:
        if each.record.kind == SUB_BEFORE:
            before[each.record.request_id] = each
        elif each.record.kind == SUB_AFTER:
            after[each.record.request_id] = each
    return [_attempt(before.get(name), after.get(name)) for name in {**before, **after}]


def _attempt(before: TraceEntry | None, after: TraceEntry | None) -> TraceEvent:
    told = before or after
    assert told is not None
    record = told.record
    end = after.record if after else None
    began = before.record.time_ms if before else None
    if began is None and end is not None and end.time_ms is not None and end.cost_ms is not None:
        began = end.time_ms - end.cost_ms
    group = record.group or (end.group if end else None)
    event = _event(
        "consume",
        record,
        status="running or unknown" if end is None else _status(end.success),
        began_ms=began,
        took_ms=end.cost_ms if end else None,
        client=told.client_host,
        detail=end.outcome if end else "its end was not traced",
    )
    return replace(event, group=group)


def _ends(entries: Iterable[TraceEntry]) -> list[TraceEvent]:
    found = []
    for each in entries:
        record = each.record
        if record.kind == END_TRANSACTION:
            asked = "the broker asked" if record.from_check else "the producer told"
            found.append(
                _event(
                    "transaction",
                    record,
                    status=record.transaction_state or "unknown",
                    began_ms=record.time_ms,
                    client=record.client_host or each.client_host,
                    broker=record.store_host,
                    detail=f"{asked}; transaction {record.transaction_id or 'unknown'}",
                )
            )
        elif record.kind == RECALL:
            found.append(
                _event(
                    "recall",
                    record,
                    status=_status(record.success),
                    began_ms=record.time_ms,
                    client=each.client_host,
                )
            )
    return found


def _status(success: bool | None) -> str:
    if success is None:
        return "unknown"
    return "success" if success else "failed"


def _missing(records: list[TraceRecord], stored: list[StoredMessage]) -> list[str]:
    kinds = {each.kind for each in records}
    missing = []
    if PUB not in kinds:
        missing.append("send: its producer writes no traces, or the trace was deleted")
    if not stored:
        missing.append("store: the message is not found; it may be deleted, or delayed")
    if not kinds & {SUB_BEFORE, SUB_AFTER}:
        missing.append("consume: nobody consumed it yet, or the consumers write no traces")
    return missing


def _records(messages: Iterable[StoredMessage]) -> Iterable[TraceRecord]:
    for message in messages:
        for record in read_records(message.body.decode("utf-8", "replace")):
            if isinstance(record, TraceRecord):
                yield record


def _keys(records: Iterable[TraceRecord]) -> list[str]:
    return next(((each.keys or "").split() for each in records if each.keys), [])


def _summary(message_id: str, records: list[TraceRecord]) -> TraceSummary:
    sent = next((each for each in records if each.kind == PUB), None)
    attempts = [each for each in records if each.kind == SUB_BEFORE]
    ends = [each for each in records if each.kind == SUB_AFTER]
    return TraceSummary(
        message_id=message_id,
        topic=next((each.topic for each in records if each.topic), None),
        tags=sent.tags if sent else None,
        keys=_keys(records),
        sent_ms=sent.time_ms if sent else None,
        attempts=max(len(attempts), len(ends)),
        failed_attempts=sum(each.success is False for each in ends),
        groups=sorted({each.group for each in attempts if each.group}),
    )
