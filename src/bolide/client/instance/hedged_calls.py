"""Queries of several servers that know the same: the next one is asked if one is slow to answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bolide.remoting.errors import RemotingError

T = TypeVar("T")

HEAD_START = 0.2
"""Seconds that a server has to answer before the next one is asked as well."""


async def first_answer(
    addresses: Sequence[str],
    call: Callable[[str], Awaitable[T]],
    head_start: float = HEAD_START,
) -> tuple[str, T]:
    """Call servers in order until one answers, each after a head start of those before it.

    Returns:
        The address of the server that answered, and its answer.

    Raises:
        RemotingError: no server answered; the error of the last one.
        Refusal: the first server that answered refused.
    """
    calls: dict[asyncio.Future[T], str] = {}
    failure: RemotingError | None = None
    left = list(addresses)
    try:
        while left or calls:
            if left:
                address = left.pop(0)
                calls[asyncio.ensure_future(call(address))] = address
            ended, _ = await asyncio.wait(
                calls,
                timeout=head_start if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for each in ended:
                address = calls.pop(each)
                try:
                    return address, each.result()
                except RemotingError as exc:
                    failure = exc
    finally:
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert failure is not None
    raise failure
