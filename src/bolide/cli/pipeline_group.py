"""The commands `pipeline run` and `pipeline explain`: one for each pipeline, loaded when wanted."""

from typing import Any, ClassVar

from typer.core import TyperGroup

from bolide.cli.spark_needed import spark_needed

FILE = "FILE"
"""The command that takes a file; whatever is no built-in name is one."""


class WorkGroup(TyperGroup):
    """Finds its commands in `bolide.cli.pipeline_commands`: other commands start faster so."""

    verb: ClassVar[str]
    _loaded: dict[str, Any] | None = None

    @property
    def commands(self) -> dict[str, Any]:
        if self._loaded is None:
            with spark_needed():
                from bolide.cli.pipeline_commands import load  # noqa: PLC0415

                self._loaded = load(self.verb)
        return self._loaded

    @commands.setter
    def commands(self, _given: object) -> None:
        """What is registered here by others does not count."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            return FILE, self.commands[FILE], args
        return super().resolve_command(ctx, args)


class RunGroup(WorkGroup):
    verb = "run"


class ExplainGroup(WorkGroup):
    verb = "explain"
