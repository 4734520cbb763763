"""The group of admin commands."""

from typing import Any

from bolide.cli.late_group import LateGroup


class AdminGroup(LateGroup):
    """Finds its commands in `bolide.cli.admin.commands`, whatever the case of their letters."""

    def load(self) -> dict[str, Any]:
        from bolide.cli.admin.commands import load  # noqa: PLC0415

        return load()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        names = {name.lower(): name for name in self.commands}
        return super().get_command(ctx, names.get(cmd_name.lower(), cmd_name))
