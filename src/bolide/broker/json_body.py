"""The JSON bodies of requests."""

import asyncio
from typing import TypeVar

from bolide.protocol import fastjson
from bolide.protocol.errors import ProtocolError
from bolide.remoting.dispatch import H, Request

T = TypeVar("T")

MAX_BODY = 4 * 1024 * 1024
"""Longest body with JSON that handlers read: a few ten thousand queues or subscriptions."""

_SHORT = 64 * 1024


async def read_json(request: Request[H], shape: type[T]) -> T:
    """The body of a request; a long one is read on a thread, as fastjson's dialect takes time.

    Raises:
        ProtocolError: there is none, or not of that shape; says what is missing.
    """
    if not request.body:
        raise ProtocolError(
            f"request {request.frame.code} needs a body: the JSON of a {shape.__name__}"
        )
    if len(request.body) > _SHORT:
        return await asyncio.to_thread(fastjson.decode, request.body, shape)
    return fastjson.decode(request.body, shape)
