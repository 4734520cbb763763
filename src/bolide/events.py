"""Events between the parts of a broker.

A part has a `Listeners` for each kind of event and calls it when the event occurs. Who listens is
decided in one place, `assembly`: no part assigns a callback of another one.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Listeners(Generic[P]):
    """Functions to be called with the arguments of an event, in the order they were added.

    Calling it calls all of them. An exception of a listener reaches whoever reports the event.
    """

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, object], ...] = ()

    def add(self, listener: Callable[P, object]) -> None:
        self._listeners += (listener,)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Listeners that are added inside the block are removed at its end."""
        before = self._listeners
        try:
            yield
        finally:
            self._listeners = before

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)


class AwaitedListeners(Generic[P]):
    """As `Listeners`, for coroutine functions: whoever reports the event waits for all of them."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, Awaitable[object]], ...] = ()

    def add(self, listener: Callable[P, Awaitable[object]]) -> None:
        self._listeners += (listener,)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            await listener(*args, **kwargs)
