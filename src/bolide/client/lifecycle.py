"""The three states of everything that users start: made, running, closed."""

from enum import Enum, auto
from types import TracebackType
from typing import Self

from bolide.client.errors import WrongState


class Startable:
    """What `async with` starts and closes."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class _State(Enum):
    MADE = auto()
    RUNNING = auto()
    CLOSED = auto()


class Lifecycle:
    """Which state a producer or consumer is in; every wrong step says what to do instead."""

    def __init__(self, kind: str, group: str) -> None:
        self._name = f"{kind} {group!r}"
        self._state = _State.MADE

    @property
    def is_made(self) -> bool:
        """Whether it has not been started yet."""
        return self._state is _State.MADE

    @property
    def is_running(self) -> bool:
        return self._state is _State.RUNNING

    def begin(self) -> None:
        """Raises WrongState at a second start."""
        if self._state is _State.RUNNING:
            raise WrongState(f"{self._name} is started already: start it once")
        if self._state is _State.CLOSED:
            raise WrongState(f"{self._name} is closed: make a new one to go on")
        self._state = _State.RUNNING

    def fail(self) -> None:
        """The start did not succeed; it may be tried again."""
        self._state = _State.MADE

    def require_running(self) -> None:
        """Raises WrongState before the start and after the end."""
        if self._state is _State.MADE:
            raise WrongState(
                f"{self._name} is not started: use it inside `async with`, or start it first"
            )
        if self._state is _State.CLOSED:
            raise WrongState(f"{self._name} is closed: make a new one to go on")

    def end(self) -> bool:
        """Close it; False if there is nothing to stop."""
        was_running = self.is_running
        self._state = _State.CLOSED
        return was_running
