"""The topic BOLIDE_PIPELINES: events of runs, the run states they add up to, and a client for it.

A message has the pipeline's name as its key, the kind of event as its tag, and an `Event` as JSON.
Every event of a run repeats the description of the run, so the newest event alone gives its state.
"""

import logging
import time
from collections.abc import Iterable
from contextlib import ExitStack
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from bolide.arrow.cluster import Connection
from bolide.client.errors import RouteNotFound
from bolide.client.instance.settings import ClientArguments
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import TOOLS_GROUP
from bolide.sync import Producer, PullConsumer

TOPIC = "BOLIDE_PIPELINES"
LOST_AFTER = 3
"""Missed report intervals after which a run counts as lost."""
log = logging.getLogger(__name__)
_GROUP = "BOLIDE_PIPELINES_PRODUCER"
_PULL_BATCH_SIZE = 32


class Kind(StrEnum):
    STARTED = "started"
    PROGRESS = "progress"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    REQUEST_STOP = "request-stop"


class State(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"

    @property
    def is_live(self) -> bool:
        return self in {State.RUNNING, State.STOPPING}


class Progress(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Progress of a run."""

    rows: int = 0
    """Offsets of the source processed by this run, filtered ones included."""
    total: int | None = None
    """Total number of rows, if the run has an end."""
    rows_per_second: float = 0.0
    """Over the last batches."""
    batch: int | None = None
    behind: dict[str, int] | None = None
    """Unread messages per topic."""

    @property
    def backlog(self) -> int | None:
        return None if self.behind is None else sum(self.behind.values())


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    kind: Kind
    pipeline: str
    run: str = ""
    """In a stop request the run to stop; empty for any run of the pipeline."""
    text: str = ""
    once: bool = False
    host: str = ""
    pid: int = 0
    started: int = 0
    """Start of the run, in ms since 1970."""
    interval: float = 0.0
    """Seconds between two reports."""
    progress: Progress | None = None
    reason: str | None = None


class StoredEvent(NamedTuple):
    """An event with its store time, in ms since 1970."""

    event: Event
    stored: int


class RunState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a run, from its newest event."""

    pipeline: str
    run: str
    state: State
    text: str
    once: bool
    host: str
    pid: int
    started: int
    seen: int
    progress: Progress
    reason: str | None


_STATES = {
    Kind.STARTED: State.RUNNING,
    Kind.PROGRESS: State.RUNNING,
    Kind.STOPPING: State.STOPPING,
    Kind.STOPPED: State.STOPPED,
    Kind.FINISHED: State.FINISHED,
    Kind.FAILED: State.FAILED,
}


def encode(event: Event) -> bytes:
    return msgspec.json.encode(event)


def find_event(body: bytes) -> Event | None:
    """The event of a message; None if it is not one, as any client may write to the topic."""
    try:
        return msgspec.json.decode(body, type=Event)
    except msgspec.DecodeError:
        return None


def run_states(events: Iterable[StoredEvent], now: int) -> list[RunState]:
    """The state of every run, latest start first; `now` in ms since 1970."""
    newest: dict[str, StoredEvent] = {}
    for item in sorted(events, key=lambda item: item.stored):  # stable: keeps queue order
        if item.event.kind is not Kind.REQUEST_STOP:
            before = newest.get(item.event.run)
            newest[item.event.run] = _latest(before, item)
    states = [_state(item, now) for item in newest.values()]
    return sorted(states, key=lambda state: (-state.started, state.pipeline))


def _latest(before: StoredEvent | None, item: StoredEvent) -> StoredEvent:
    """A report that is stored after the final event does not revive the run."""
    ended = before is not None and _STATES[before.event.kind] not in {
        State.RUNNING,
        State.STOPPING,
    }
    return before if ended and before is not None else item


def _state(newest: StoredEvent, now: int) -> RunState:
    event = newest.event
    state = _STATES[event.kind]
    if state.is_live and now - newest.stored > LOST_AFTER * event.interval * 1000:
        state = State.LOST
    return RunState(
        pipeline=event.pipeline,
        run=event.run,
        state=state,
        text=event.text,
        once=event.once,
        host=event.host,
        pid=event.pid,
        started=event.started,
        seen=newest.stored,
        progress=event.progress or Progress(),
        reason=event.reason,
    )


class StatusTopic:
    """Client of the topic within its `with` block; not thread-safe.

    All methods raise BolideError if the cluster is unreachable or refuses.
    """

    def __init__(self, connection: Connection) -> None:
        arguments = _arguments(connection)
        self._producer = Producer(_GROUP, **arguments)
        self._consumer = PullConsumer(TOOLS_GROUP, **arguments)
        self._stack = ExitStack()
        self._next_offsets: dict[MessageQueue, int] = {}
        self._is_polling = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._producer)
            stack.enter_context(self._consumer)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def ensure_topic(self) -> None:
        """Create the topic with one queue per broker, unless it exists."""
        try:
            self._producer.fetch_publish_queues(TOPIC)
        except RouteNotFound:
            self._producer.create_topic(TOPIC, 1)

    def publish(self, event: Event) -> None:
        body = encode(event)
        self._producer.send(Message(TOPIC, body, keys=event.pipeline, tags=event.kind.value))

    def events_since(self, seconds: float) -> list[StoredEvent]:
        """The events of the last `seconds`; empty while there is no topic."""
        since = int((time.time() - seconds) * 1000)
        events: list[StoredEvent] = []
        for queue in self._queues():
            start = self._consumer.search_offset(queue, since)
            events += _stored_events(self._read(queue, start)[0])
        return events

    def states(self, seconds: float) -> list[RunState]:
        """The states of runs that reported in the last `seconds`."""
        return run_states(self.events_since(seconds), int(time.time() * 1000))

    def poll(self) -> list[Event]:
        """The events since the last call; the first call only records the end of the topic."""
        queues = self._queues()
        if not self._is_polling:
            self._next_offsets = {queue: self._consumer.max_offset(queue) for queue in queues}
            self._is_polling = True
            return []
        return [event for queue in queues for event in self._poll_queue(queue)]

    def _poll_queue(self, queue: MessageQueue) -> list[Event]:
        """Failures are logged, so that an absent broker does not block the other queues."""
        try:
            found, self._next_offsets[queue] = self._read(queue, self._next_offsets.get(queue, 0))
        except BolideError as exc:
            log.debug("cannot poll %s: %s", queue, exc)
            return []
        return [stored.event for stored in _stored_events(found)]

    def _queues(self) -> list[MessageQueue]:
        try:
            return sorted(self._consumer.fetch_subscribe_queues(TOPIC))
        except RouteNotFound:
            return []

    def _read(self, queue: MessageQueue, start: int) -> tuple[list[StoredMessage], int]:
        """The messages from an offset on, and the next offset."""
        messages: list[StoredMessage] = []
        at = start
        while True:
            found = self._consumer.pull(queue, "*", at, _PULL_BATCH_SIZE)
            messages += found.messages
            if found.next_offset == at:
                return messages, at
            at = found.next_offset


def _stored_events(messages: list[StoredMessage]) -> list[StoredEvent]:
    found = ((find_event(message.body), message.store_timestamp) for message in messages)
    return [StoredEvent(event, stored) for event, stored in found if event is not None]


def _arguments(connection: Connection) -> ClientArguments:
    return {
        "name_server": connection.name_server,
        "access_key": connection.access_key,
        "secret_key": connection.secret_key,
        "security_token": connection.security_token,
        "namespace": connection.namespace,
        "tls": connection.tls,
        "call_timeout": connection.call_timeout,
    }
