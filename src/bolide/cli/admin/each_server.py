"""Questions to several servers of which some may be down: the answers, and who did not answer."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import typer

from bolide.admin.servers import gather_by_key
from bolide.cli.admin.session import exit_code_of, warn
from bolide.errors import BolideError

S = TypeVar("S")
T = TypeVar("T")


@dataclass(slots=True)
class Answers(Generic[S, T]):
    """What each server answered, in the order of the servers, and why others did not."""

    known: list[tuple[S, T]] = field(default_factory=list)
    failures: list[tuple[S, BolideError]] = field(default_factory=list)

    def end(self) -> None:
        """Name the servers that failed on standard error; exit with the code of the last one."""
        for _, exc in self.failures:
            warn(exc)
        if self.failures:
            raise typer.Exit(exit_code_of(self.failures[-1][1]))


async def ask_each(
    servers: Iterable[S], ask: Callable[[S], Awaitable[T]], *, name: Callable[[S], str]
) -> Answers[S, T]:
    """Ask all servers, some at a time.

    Args:
        servers: the servers.
        ask: asks one of them.
        name: a different text for each server.
    """
    by_name = {name(server): server for server in servers}

    async def answer(key: str) -> T | BolideError:
        try:
            return await ask(by_name[key])
        except BolideError as exc:
            return exc

    answers: Answers[S, T] = Answers()
    for key, found in (await gather_by_key(by_name, answer)).items():
        if isinstance(found, BolideError):
            answers.failures.append((by_name[key], found))
        else:
            answers.known.append((by_name[key], found))
    return answers
