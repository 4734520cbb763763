"""Plain sends and pulls served straight from the bytes received, ahead of frames and handlers.

What it does not know it leaves to the ordinary way, `handlers`, and so it does with all that goes
wrong: refusals are written in one place.
"""

import time

from bolide.broker.fast_path.pulls import PullLanes
from bolide.broker.fast_path.sends import SendLanes
from bolide.remoting.connection import Connection

_SEND = (b'{"code":3', b"\x01\x36", b"\x01\x40", b"\x00\x25")
"""How the headers of sends and ends of transactions begin, as clients write them: 310, 320, 37."""

_HEADER_AT = 8


class FastPath:
    """The broker's `remoting.connection.FastPath`."""

    def __init__(self, sends: SendLanes, pulls: PullLanes) -> None:
        self._sends = sends
        self._pulls = pulls

    def serve(self, data: bytes, position: int, connection: Connection, until: float) -> int:
        sends, pulls, end = self._sends.serve, self._pulls.serve, len(data)
        while True:
            if data.startswith(_SEND, position + _HEADER_AT):
                served = sends(data, position, connection) or pulls(data, position, connection)
            else:
                served = pulls(data, position, connection) or sends(data, position, connection)
            if served is None:
                return position
            position, reply = served
            if reply:
                connection.put(reply)
            if position == end or connection.is_blocked or time.monotonic() > until:
                return position
