"""Answers that are given when the disk has what they tell of."""

import asyncio
from collections.abc import Callable

from bolide.broker.durability import unavailable
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import ServerError
from bolide.remoting.dispatch import Later, Reply
from bolide.store.errors import StoreUnwritable


class Answer:
    """Gives an answer when so many have been told of.

    Args:
        even_late: it is the same when the disk takes long, and a crash might undo it.
    """

    def __init__(
        self,
        give: Callable[[Reply | Exception], None],
        *,
        awaited: int = 1,
        reply: Reply | None = None,
        then: Callable[[], None] = lambda: None,
        even_late: bool = False,
    ) -> None:
        self._even_late = even_late
        self._give = give
        self._awaited = awaited
        self._reply = reply or Reply()
        self._then = then
        self._failure: Exception | None = None

    def wait_for(self, more: int) -> None:
        self._awaited += more

    def tell(self, outcome: int | StoreUnwritable) -> None:
        if isinstance(outcome, StoreUnwritable):
            self._failure = unavailable(outcome)
        elif outcome != ResponseCode.SUCCESS and not self._even_late:
            name = ResponseCode(outcome).name
            self._failure = ServerError(f"{name}: the disk takes long; say it again")
        self._awaited -= 1
        if not self._awaited:
            self._give(self._failure or self._reply)
            self._then()


def promise_of(later: Later) -> Callable[[Reply | Exception], None]:
    def give(outcome: Reply | Exception) -> None:
        if isinstance(outcome, Exception):
            later.fail(outcome)
        else:
            later.answer(outcome)

    return give


def future_of(done: asyncio.Future[Reply]) -> Callable[[Reply | Exception], None]:
    def give(outcome: Reply | Exception) -> None:
        if done.done():
            return
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)

    return give
