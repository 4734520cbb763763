"""Bodies that access control reads to learn what a request is about.

The gate reads them on the event loop, so what it reads is limited: a request may take it some
milliseconds, not seconds. Handlers take larger bodies, on threads; those are left to users who may
do everything, for whom the gate reads no body.
"""

from typing import TypeVar

import msgspec

from bolide.protocol import fastjson
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame

T = TypeVar("T")

MAX_JSON = 512 * 1024
"""Bytes of a body in standard JSON."""
MAX_DIALECT = 64 * 1024
"""Bytes of a body in fastjson's dialect, which takes long to decode."""


class UnreadableBody(Exception):
    """The body does not say what the request is about; the text says why."""


def read_body(request: Frame, shape: type[T]) -> T:
    """Decode a body exactly as its handler does, so that both see the same groups and topics.

    Raises:
        UnreadableBody: it is too large, or has another shape.
    """
    size = len(request.body)
    if size > MAX_JSON:
        raise UnreadableBody(
            f"its body has {size} bytes, over the limit of {MAX_JSON}; send several requests"
        )
    try:
        return msgspec.json.decode(request.body, type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    if size > MAX_DIALECT:
        raise UnreadableBody(
            f"its body has {size} bytes; over {MAX_DIALECT}, it must be standard JSON of the"
            " expected shape"
        )
    try:
        return fastjson.decode(request.body, shape)
    except ProtocolError as exc:
        raise UnreadableBody(f"its body cannot be read: {exc}") from exc
