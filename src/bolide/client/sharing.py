"""Which clients of this process share an instance: brokers tell clients apart by their ids."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Generic, Protocol, TypeVar

from bolide.client.settings import ClientSettings
from bolide.errors import ConfigError


class Shared(Protocol):
    """What is shared."""

    settings: ClientSettings


I = TypeVar("I", bound=Shared)  # noqa: E741  an instance


class Sharing(Generic[I]):
    """The instances of this process by client id, each with the event loop that it lives on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for a moment only, by loops in several threads
        self._instances: dict[str, tuple[asyncio.AbstractEventLoop, I]] = {}

    def get(self, settings: ClientSettings, make: Callable[[ClientSettings], I]) -> I:
        """The instance with these settings on this event loop; it is made if there is none.

        Raises:
            ConfigError: the client id belongs to one with other settings, or on another loop.
        """
        here = asyncio.get_running_loop()
        with self._lock:
            loop, instance = self._instances.get(settings.client_id, (here, None))
            if instance is None or loop.is_closed():  # that one nobody can use or end any more
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
        """In a forked child nothing of it lives, and the lock may be anybody's."""
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
