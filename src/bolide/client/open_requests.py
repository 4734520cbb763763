"""Requests that wait for their replies, by the id that both carry."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bolide.model.message import StoredMessage
from bolide.model.properties import PropertyName

log = logging.getLogger(__name__)

Answer = asyncio.Future[StoredMessage]


class _Open(NamedTuple):
    owner: object
    answer: Answer


class OpenRequests:
    """Those of one client instance; belongs to one event loop."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def waiting(self, correlation_id: str, owner: object) -> Iterator[Answer]:
        """A future of the reply; what comes after the block is dropped."""
        answer: Answer = asyncio.get_running_loop().create_future()
        self._open[correlation_id] = _Open(owner, answer)
        try:
            yield answer
        finally:
            del self._open[correlation_id]
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, though nobody may have waited for it

    def answer(self, reply: StoredMessage) -> None:
        """Hand a reply to whoever asked; one that nobody waits for any more is dropped."""
        correlation_id = reply.properties.get(PropertyName.CORRELATION_ID, "")
        found = self._open.get(correlation_id)
        if found is None:
            log.debug("a reply came too late, or twice: request %s", correlation_id)
        elif not found.answer.done():
            found.answer.set_result(reply)

    def abandon(self, owner: object, reason: Exception) -> None:
        """End the waiting for all requests of one asker."""
        for each in self._open.values():
            if each.owner is owner and not each.answer.done():
                each.answer.set_exception(reason)
