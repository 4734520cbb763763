"""Tell listeners when the queues of a topic change."""

import inspect
import logging
from collections.abc import Awaitable, Callable

from bolide.client.instance import ClientInstance
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)

QueueListener = Callable[[str, frozenset[MessageQueue]], Awaitable[object] | object]
"""Called with a topic and all its queues."""


class QueueWatch:
    """Compares the queues of topics with what they were at the last look."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._listeners: dict[str, QueueListener] = {}
        self._seen: dict[str, frozenset[MessageQueue]] = {}

    def add(self, topic: str, listener: QueueListener) -> None:
        """One listener for each topic; it is told of the queues there are at the first look."""
        self._listeners[topic] = listener

    async def look(self) -> None:
        """Ask for the routes now and tell of changes."""
        for topic, listener in list(self._listeners.items()):
            try:
                await self._instance.routes.refresh(topic)
                queues = frozenset(await self._instance.routes.subscribe_queues(topic))
            except BolideError as exc:
                log.info("the queues of %s cannot be looked at: %s", topic, exc)
                continue
            if self._seen.get(topic) != queues:
                self._seen[topic] = queues
                heard = listener(topic, queues)
                if inspect.isawaitable(heard):
                    await heard
