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

_MUCH = 256 * 1024
"""Bytes of responses at which the connection looks whether its peer reads them."""


class FastPath:
    """The broker's `remoting.connection.FastPath`."""

    def __init__(self, sends: SendLanes, pulls: PullLanes) -> None:
        self._sends = sends
        self._pulls = pulls

    def serve(
        self, data: bytes, position: int, connection: Connection, until: float
    ) -> tuple[int, bytes]:
        replies: list[bytes] = []
        size, end = 0, len(data)
        while position < end:
            is_send = data.startswith(_SEND, position + _HEADER_AT)
            likely, other = (self._sends, self._pulls) if is_send else (self._pulls, self._sends)
            served = likely.serve(data, position, connection) or other.serve(
                data, position, connection
            )
            if served is None:
                break
            position, reply = served
            if reply:
                replies.append(reply)
                size += len(reply)
            if size > _MUCH or time.monotonic() > until:
                break
        return position, replies[0] if len(replies) == 1 else b"".join(replies)
