"""The commands of `pipeline`; those of `run` and `explain` are one for each pipeline."""

from typing import Any, ClassVar

import typer

from bolide.cli.late_group import LateGroup, loaded_from
from bolide.cli.spark_needed import spark_needed

FILE = "FILE"
"""The command that takes a file; whatever is no built-in name is one."""


class WorkGroup(LateGroup):
    """Finds its commands in `bolide.cli.pipeline_commands`."""

    verb: ClassVar[str]

    def load(self) -> dict[str, Any]:
        with spark_needed():
            from bolide.cli.pipeline_commands import load  # noqa: PLC0415

            return load(self.verb)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            return FILE, self.commands[FILE], args
        return super().resolve_command(ctx, args)


class RunGroup(WorkGroup):
    verb = "run"


class ExplainGroup(WorkGroup):
    verb = "explain"


class PipelineGroup(LateGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli import pipeline  # noqa: PLC0415

        app = typer.Typer(rich_markup_mode=None)
        for group, verb, text in (
            (RunGroup, "run", "Run a pipeline: one of these, or that of a YAML file."),
            (ExplainGroup, "explain", "Tell what a pipeline would do, without running it."),
        ):
            app.add_typer(
                typer.Typer(cls=group, no_args_is_help=True, rich_markup_mode=None),
                name=verb, help=text, subcommand_metavar="NAME|FILE [OPTIONS]",
            )  # fmt: skip
        app.command("list")(pipeline.list_)
        for command in (pipeline.status, pipeline.stop, pipeline.bundle):
            app.command()(command)
        return loaded_from(app)
