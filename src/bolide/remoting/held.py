"""Memory held for the peers of an endpoint: what is not served yet, under way, or not read.

A frame may be 16 MiB long, and a peer may send all but its last byte, or many that take a while to
serve; or it may ask for a lot and not read it. One such peer is harmless; a thousand of them would
take 16 GiB. Past the limit the one that holds the most is closed.
"""

from collections.abc import Callable


class HeldBytes:
    """Counts the bytes and calls for relief when there are too many."""

    def __init__(self, limit: int, relieve: Callable[[], None]) -> None:
        self.total = 0
        self._limit = limit
        self._relieve = relieve

    def change(self, by: int) -> None:
        """A connection holds `by` bytes more, or less."""
        self.total += by
        if by > 0 and self.total > self._limit:
            self._relieve()
