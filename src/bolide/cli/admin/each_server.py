"""Commands that ask several servers: what is known is shown, the rest is named."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, TypeVar

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.session import not_applicable, pass_over, require_one, run, targets
from bolide.cli.admin.times import check_seconds
from bolide.errors import BolideError
from bolide.protocol.refusals import RequestCodeNotSupported

T = TypeVar("T")

_MAX_CONCURRENT = 16

Interval = Annotated[
    float | None,
    typer.Option("-i", "--interval", callback=check_seconds, help="Repeat every so many seconds."),
]
"""RocketMQ's older form of --watch."""


async def ask_each(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]
) -> dict[str, T | None]:
    """The reply of each server, in the order given; None for each failure, which is passed over."""
    asked = [*addresses]
    known, failures = await _ask(asked, ask, _MAX_CONCURRENT)
    for exc in failures:
        pass_over(exc)
    return {address: known.get(address) for address in asked}


async def answers_of(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[T]], *, changes: bool = False
) -> dict[str, T]:
    """The replies of the servers that answer, in the order given; failures are passed over.

    Args:
        changes: one server after the other, not several at the same time.

    Raises:
        BolideError: the first failure, if no server answered.
    """
    known, failures = await _ask([*addresses], ask, 1 if changes else _MAX_CONCURRENT)
    if failures and not known:
        raise failures[0]
    for exc in failures:
        pass_over(exc)
    return known


async def _ask(
    addresses: Sequence[str], ask: Callable[[str], Awaitable[T]], at_once: int
) -> tuple[dict[str, T], list[BolideError]]:
    limit = asyncio.Semaphore(at_once)
    found: dict[str, T] = {}
    failures: list[BolideError] = []

    async def one(address: str) -> None:
        async with limit:
            try:
                found[address] = await ask(address)
            except BolideError as exc:
                failures.append(exc)

    await asyncio.gather(*map(one, dict.fromkeys(addresses)))
    return {address: found[address] for address in addresses if address in found}, failures


async def changed_at(
    addresses: Iterable[str], change: Callable[[str], Awaitable[object]], done: str | None
) -> list[str]:
    """Change something at one server after the other; returns the addresses of those done.

    What fails is passed over.

    Args:
        done: printed for each server, with its address in place of the braces.

    Raises:
        BolideError: the first failure, if nothing was changed.
    """

    async def one(address: str) -> None:
        await change(address)
        if done is not None:
            print(done.replace("{}", address))

    return [*await answers_of(addresses, one, changes=True)]


def change_each(
    name_server: str | None,
    brokers: tuple[str | None, str | None],
    change: Callable[[AdminClient, str], Awaitable[object]],
    done: str | None,
) -> list[str]:
    """As `changed_at`, for the brokers of -b or -c, slaves included.

    Args:
        brokers: the values of -b and -c, of which exactly one must be given.
        done: printed for each broker, with its address in place of the braces.
    """
    broker, cluster = brokers
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> list[str]:
        addresses = await targets(admin, broker, cluster, slaves=True)
        return await changed_at(addresses, lambda address: change(admin, address), done)

    return run(name_server, act)


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
