"""Plain sends and pulls served straight from the bytes received, ahead of frames and handlers.

What it does not know it leaves to the ordinary way, `handlers`, and so it does with all that goes
wrong: refusals are written in one place.
"""

import time

from bolide.broker.pull_lanes import PullLanes
from bolide.broker.send_lanes import SendLanes
from bolide.remoting.connection import Connection

_SEND = b'{"code":3'
"""How the header of a send begins, as clients write it: 310 and 320."""

_HEADER_AT = 8


class FastPath:
    """The broker's `remoting.connection.FastPath`."""

    def __init__(self, sends: SendLanes, pulls: PullLanes) -> None:
        self._sends = sends
        self._pulls = pulls

    def serve(self, data: bytes, position: int, connection: Connection, until: float) -> int:
        end = len(data)
        while True:
            served = self._serve_next(data, position, connection)
            if served is None:
                return position
            position, reply = served
            if reply:
                connection.put(reply)
            if position == end or connection.is_blocked or time.monotonic() > until:
                return position

    def _serve_next(
        self, data: bytes, position: int, connection: Connection
    ) -> tuple[int, bytes] | None:
        """Serve what lies there, if it is known: all sends in a row, or one pull."""
        if data.startswith(_SEND, position + _HEADER_AT):
            return self._sends.serve(data, position, connection) or self._pulls.serve(
                data, position, connection
            )
        return self._pulls.serve(data, position, connection) or self._sends.serve(
            data, position, connection
        )
