"""Commands that ask several servers: what is known is shown, the rest is named.

A server that does not answer does not hide the others. The exit code then tells that something is
missing: 3 if a server could not be reached, else the code of the first failure.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

import typer

from bolide.cli.admin.session import exit_code_of, not_applicable, warn
from bolide.cli.command_line import UNREACHABLE
from bolide.errors import BolideError
from bolide.protocol.refusals import RequestCodeNotSupported

T = TypeVar("T")

_MAX_CONCURRENT = 16

Interval = Annotated[
    float | None,
    typer.Option("-i", "--interval", min=0.1, help="Repeat every so many seconds."),
]
"""RocketMQ's older form of --watch."""


@dataclass(slots=True)
class Answers(Generic[T]):
    """What servers answered, by address in the order asked, and the failures of the others."""

    found: dict[str, T] = field(default_factory=dict)
    failures: dict[str, BolideError] = field(default_factory=dict)

    def end(self) -> None:
        """End the command with an exit code if a server failed."""
        codes = [exit_code_of(exc) for exc in self.failures.values()]
        if codes:
            raise typer.Exit(UNREACHABLE if UNREACHABLE in codes else codes[0])


async def ask_each(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[T]], *, one_by_one: bool = False
) -> Answers[T]:
    """Ask every server, and print a line on standard error for each that fails.

    Args:
        one_by_one: in order and not at the same time, for changes.

    Raises:
        BolideError: the first failure, if no server answered.
    """
    asked = [*dict.fromkeys(addresses)]
    limit = asyncio.Semaphore(1 if one_by_one else _MAX_CONCURRENT)

    async def one(address: str) -> T | BolideError:
        async with limit:
            try:
                return await ask(address)
            except BolideError as exc:
                return exc

    results = await asyncio.gather(*map(one, asked))
    answers = Answers[T]()
    for address, result in zip(asked, results, strict=True):
        if isinstance(result, BolideError):
            answers.failures[address] = result
        else:
            answers.found[address] = result
    if answers.failures and not answers.found:
        first, *others = answers.failures.values()
        for exc in others:
            warn(exc)
        raise first
    for exc in answers.failures.values():
        warn(exc)
    return answers


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
