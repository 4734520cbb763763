"""A client of the topic BOLIDE_PIPELINE_PROGRESS: what runs report, and requests to stop."""

import logging
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from bolide.arrow.cluster import Connection
from bolide.client.errors import RouteNotFound
from bolide.client.instance.settings import ClientArguments
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import PIPELINE_TOPIC, TOOLS_GROUP
from bolide.protocol.bodies.pipelines import (
    Report,
    RunState,
    StopRequest,
    StoredReport,
    encode,
    find_message,
    run_states,
    tag_of,
)
from bolide.sync import Producer, PullConsumer

log = logging.getLogger(__name__)
_GROUP = "BOLIDE_PIPELINES_PRODUCER"
_PULL_BATCH_SIZE = 32


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
            self._producer.fetch_publish_queues(PIPELINE_TOPIC)
        except RouteNotFound:
            self._producer.create_topic(PIPELINE_TOPIC, 1)

    def publish(self, message: Report | StopRequest) -> None:
        body, tag = encode(message), tag_of(message)
        self._producer.send(Message(PIPELINE_TOPIC, body, keys=message.pipeline, tags=tag))

    def reports_since(self, seconds: float) -> list[StoredReport]:
        """The reports of the last `seconds`; empty while there is no topic."""
        since = int((time.time() - seconds) * 1000)
        reports: list[StoredReport] = []
        for queue in self._queues():
            start = self._consumer.search_offset(queue, since)
            for message in self._read(queue, start)[0]:
                found = find_message(message.body)
                if isinstance(found, Report):
                    reports.append(StoredReport(found, message.store_timestamp))
        return reports

    def states(self, seconds: float) -> list[RunState]:
        """The states of runs that reported in the last `seconds`."""
        return run_states(self.reports_since(seconds), int(time.time() * 1000))

    def poll(self) -> list[StopRequest]:
        """The requests since the last call; the first call only records the end of the topic."""
        queues = self._queues()
        if not self._is_polling:
            self._next_offsets = {queue: self._consumer.max_offset(queue) for queue in queues}
            self._is_polling = True
            return []
        return [found for queue in queues for found in self._poll_queue(queue)]

    def _poll_queue(self, queue: MessageQueue) -> list[StopRequest]:
        """Failures are logged, so that an absent broker does not block the other queues."""
        try:
            read, self._next_offsets[queue] = self._read(queue, self._next_offsets.get(queue, 0))
        except BolideError as exc:
            log.debug("cannot poll %s: %s", queue, exc)
            return []
        found = (find_message(message.body) for message in read)
        return [each for each in found if isinstance(each, StopRequest)]

    def _queues(self) -> list[MessageQueue]:
        try:
            return sorted(self._consumer.fetch_subscribe_queues(PIPELINE_TOPIC))
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
