"""The group of admin commands, loaded when one of them is wanted: servers start faster so."""

from typing import Any

from typer.core import TyperGroup


class AdminGroup(TyperGroup):
    """Finds its commands in `bolide.cli.admin.commands`, whatever the case of their letters."""

    _loaded: dict[str, Any] | None = None

    @property
    def commands(self) -> dict[str, Any]:
        if self._loaded is None:
            from bolide.cli.admin.commands import load  # noqa: PLC0415

            self._loaded = load()
        return self._loaded

    @commands.setter
    def commands(self, _given: object) -> None:
        """What is registered here by others does not count."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        names = {name.lower(): name for name in self.commands}
        return super().get_command(ctx, names.get(cmd_name.lower(), cmd_name))
