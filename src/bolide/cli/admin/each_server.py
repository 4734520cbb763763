"""Commands that ask several servers: what is known is shown, the rest is named."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, TypeVar

import typer

from bolide.cli.admin.session import not_applicable, pass_over
from bolide.errors import BolideError
from bolide.protocol.refusals import RequestCodeNotSupported

T = TypeVar("T")

_MAX_CONCURRENT = 16

Interval = Annotated[
    float | None,
    typer.Option("-i", "--interval", min=0.1, help="Repeat every so many seconds."),
]
"""RocketMQ's older form of --watch."""


async def ask_each(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[T]], *, changes: bool = False
) -> dict[str, T | None]:
    """The reply of each server, in the order given; None for each that fails, which is passed over.

    Args:
        changes: one server after the other, not several at the same time.
    """
    known = await answers_of(addresses := [*addresses], ask, changes=changes)
    return {address: known.get(address) for address in addresses}


async def answers_of(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[T]], *, changes: bool = False
) -> dict[str, T]:
    """The replies of the servers that answer; failures are passed over."""
    asked = [*dict.fromkeys(addresses)]
    limit = asyncio.Semaphore(1 if changes else _MAX_CONCURRENT)
    found: dict[str, T] = {}

    async def one(address: str) -> None:
        async with limit:
            try:
                found[address] = await ask(address)
            except BolideError as exc:
                pass_over(exc)

    await asyncio.gather(*map(one, asked))
    return {address: found[address] for address in asked if address in found}


async def applicable(request: Awaitable[T], reason: str) -> T:
    """Await a request; end the program if the server does not know requests of this kind."""
    try:
        return await request
    except RequestCodeNotSupported:
        not_applicable(reason)


async def repeated(interval: float | None, show: Callable[[], Awaitable[None]]) -> None:
    """Show once, or again and again for `-i`."""
    await show()
    while interval is not None:
        await asyncio.sleep(interval)
        await show()
