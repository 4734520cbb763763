"""The topic BOLIDE_PIPELINES as programs use it: tell, look back, listen."""

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
from bolide.model.names import TOOLS_GROUP
from bolide.spark.pipelines.events import (
    TOPIC,
    Event,
    RunState,
    Told,
    encode,
    find_event,
    run_states,
)
from bolide.sync import Producer, PullConsumer

log = logging.getLogger(__name__)

_GROUP = "BOLIDE_PIPELINES_PRODUCER"
_AT_ONCE = 32


class Channel:
    """Reaches the topic while its `with` block runs; from one thread.

    Everything raises BolideError where the cluster cannot be asked or refuses.
    """

    def __init__(self, connection: Connection) -> None:
        arguments = _arguments(connection)
        self._producer = Producer(_GROUP, **arguments)
        self._consumer = PullConsumer(TOOLS_GROUP, **arguments)
        self._stack = ExitStack()
        self._heard: dict[MessageQueue, int] = {}
        self._listening = False

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
        """Make the topic, one queue on each broker, if nobody has it."""
        try:
            self._producer.fetch_publish_queues(TOPIC)
        except RouteNotFound:
            self._producer.create_topic(TOPIC, 1)

    def tell(self, event: Event) -> None:
        body = encode(event)
        self._producer.send(Message(TOPIC, body, keys=event.pipeline, tags=event.kind.value))

    def look_back(self, seconds: float) -> list[Told]:
        """The events of the last so many seconds; none while there is no topic."""
        since = int((time.time() - seconds) * 1000)
        told: list[Told] = []
        for queue in self._queues():
            start = self._consumer.search_offset(queue, since)
            told += _told(self._read(queue, start)[0])
        return told

    def states(self, seconds: float) -> list[RunState]:
        """The runs that told something in the last so many seconds."""
        return run_states(self.look_back(seconds), int(time.time() * 1000))

    def listen(self) -> list[Event]:
        """The events since the last call; the first call only notes where the topic ends."""
        queues = self._queues()
        if not self._listening:
            self._heard = {queue: self._consumer.max_offset(queue) for queue in queues}
            self._listening = True
            return []
        return [event for queue in queues for event in self._new_in(queue)]

    def _new_in(self, queue: MessageQueue) -> list[Event]:
        """A broker that is away does not keep the others from being heard."""
        try:
            found, self._heard[queue] = self._read(queue, self._heard.get(queue, 0))
        except BolideError as exc:
            log.debug("%s cannot be heard: %s", queue, exc)
            return []
        return [told.event for told in _told(found)]

    def _queues(self) -> list[MessageQueue]:
        try:
            return sorted(self._consumer.fetch_subscribe_queues(TOPIC))
        except RouteNotFound:
            return []

    def _read(self, queue: MessageQueue, start: int) -> tuple[list[StoredMessage], int]:
        """What is there from an offset on, and where to go on next time."""
        messages: list[StoredMessage] = []
        at = start
        while True:
            found = self._consumer.pull(queue, "*", at, _AT_ONCE)
            messages += found.messages
            if found.next_offset == at:
                return messages, at
            at = found.next_offset


def _told(messages: list[StoredMessage]) -> list[Told]:
    found = ((find_event(message.body), message.store_timestamp) for message in messages)
    return [Told(event, stored) for event, stored in found if event is not None]


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
