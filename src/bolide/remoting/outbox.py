"""What is written waits for the end of the event loop's turn and then leaves in one go.

A send wakes up the peer. If each reply left at once, a peer that is quicker than we are would be
woken up for every single one, at a cost to both. Replies to one peer that come up in one turn are
joined besides.
"""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Outbox:
    """The senders of one endpoint that have something to send in this turn of the loop."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Call `send` once, when this turn of the loop is over."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(send)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for send in waiting:
            try:
                send()
            except Exception:  # one broken connection must not silence the others
                log.exception("could not send")
