"""Groups whose commands are loaded when one of them is wanted: servers start faster so."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup


class LateGroup(TyperGroup):
    """Has the commands that its `load` finds."""

    _loaded: dict[str, Any] | None = None

    def load(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def commands(self) -> dict[str, Any]:
        if self._loaded is None:
            self._loaded = self.load()
        return self._loaded

    @commands.setter
    def commands(self, _given: object) -> None:
        """What is registered here by others does not count."""


def commands_of(*verbs: Callable[..., None]) -> dict[str, Any]:
    """A command for each function, as a group has them."""
    app = typer.Typer(rich_markup_mode=None)
    for verb in verbs:
        app.command()(verb)
    return loaded_from(app)


def loaded_from(app: typer.Typer) -> dict[str, Any]:
    """The commands of an application, as a group has them."""
    return dict(typer.main.get_group(app).commands)
