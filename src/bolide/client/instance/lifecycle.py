"""Lifecycle of clients (new, running, closed), and instances shared within a process."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import fields
from enum import Enum, auto
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from bolide.client.errors import WrongState
from bolide.client.instance.settings import ClientSettings
from bolide.errors import ConfigError


class Startable:
    """Base of clients that `async with` starts and closes."""

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
    NEW = auto()
    RUNNING = auto()
    CLOSED = auto()


class Lifecycle:
    """The state of a producer or consumer."""

    def __init__(self, kind: str, group: str) -> None:
        self._name = f"{kind} {group!r}"
        self._state = _State.NEW

    @property
    def is_new(self) -> bool:
        """Whether the client has not been started yet."""
        return self._state is _State.NEW

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
        """The start failed and may be repeated."""
        self._state = _State.NEW

    def require_running(self) -> None:
        """Raises WrongState before the start and after the close."""
        if self._state is _State.NEW:
            raise WrongState(
                f"{self._name} is not started: use it inside `async with`, or start it first"
            )
        if self._state is _State.CLOSED:
            raise WrongState(f"{self._name} is closed: make a new one to go on")

    def end(self) -> bool:
        """Enter the closed state; False if the client was not running."""
        was_running = self.is_running
        self._state = _State.CLOSED
        return was_running


class HasSettings(Protocol):
    settings: ClientSettings


I = TypeVar("I", bound=HasSettings)  # noqa: E741  I for instance


class SharedInstances(Generic[I]):
    """The instances of this process by client id, each with its event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # event loops may run in several threads
        self._instances: dict[str, tuple[asyncio.AbstractEventLoop, I]] = {}

    def get(self, settings: ClientSettings, make: Callable[[ClientSettings], I]) -> I:
        """The instance with these settings on this event loop; created if necessary.

        Raises:
            ConfigError: the client id is in use with other settings, or on another loop.
        """
        here = asyncio.get_running_loop()
        with self._lock:
            loop, instance = self._instances.get(settings.client_id, (here, None))
            if instance is None or loop.is_closed():  # an instance of a closed loop is unusable
                instance = make(settings)
                self._instances[settings.client_id] = here, instance
            elif loop is not here:
                raise _taken(settings, "on another event loop")
            elif differing := _differing(instance.settings, settings):
                raise _taken(settings, f"with another {', '.join(differing)}")
            return instance

    def remove(self, instance: I) -> None:
        with self._lock:
            _, known = self._instances.get(instance.settings.client_id, (None, None))
            if known is instance:
                del self._instances[instance.settings.client_id]

    def forget(self) -> None:
        """Reset in a forked child: its event loops do not run, and the lock may be held."""
        self._lock = threading.Lock()
        self._instances = {}


def _differing(one: ClientSettings, other: ClientSettings) -> list[str]:
    names = [field.name for field in fields(ClientSettings)]
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def _taken(settings: ClientSettings, how: str) -> ConfigError:
    return ConfigError(
        f"instance_name={settings.instance_name!r}: client {settings.client_id} runs in this"
        f" process already, {how}: brokers would take both for one. Give each its own name,"
        " or all the same settings"
    )
