"""All commands put together, and the entry points."""

from typing import Annotated, Any

import typer

from bolide.cli.admin.group import AdminGroup
from bolide.cli.broker import broker
from bolide.cli.late_group import LateGroup, commands_of
from bolide.cli.namesrv import namesrv
from bolide.cli.pipeline_group import PipelineGroup
from bolide.cli.sql import sql
from bolide.cli.standalone import standalone
from bolide.version import __version__

_LOOK: Any = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
_ANY_WORDS: Any = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}


class BenchGroup(LateGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli import bench  # noqa: PLC0415

        return commands_of(
            bench.producer,
            bench.batch,
            bench.transaction,
            bench.timer,
            bench.consumer,
            bench.latency,
            bench.e2e,
        )


class StoreGroup(LateGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli.store import dump, verify  # noqa: PLC0415

        return commands_of(verify, dump)


app = typer.Typer(no_args_is_help=True, help="A RocketMQ-compatible messaging platform.", **_LOOK)
app.command()(namesrv)
app.command()(standalone)
app.command(**_ANY_WORDS)(broker)

for _group, _name, _text in (
    (StoreGroup, "store", "Look into a store directory, and mend it."),
    (BenchGroup, "bench", "Load a cluster and measure it, ours or Apache's."),
    (PipelineGroup, "pipeline", "Move and look into messages with Spark."),
):
    app.add_typer(typer.Typer(cls=_group, no_args_is_help=True, **_LOOK), name=_name, help=_text)

app.command()(sql)

_admin = typer.Typer(cls=AdminGroup, no_args_is_help=True, **_LOOK)
app.add_typer(_admin, name="admin")

# A command alone in its application needs no name: `mqnamesrv -c FILE`.
_mqnamesrv = typer.Typer(**_LOOK)
_mqnamesrv.command()(namesrv)
_mqbroker = typer.Typer(**_LOOK)
_mqbroker.command(**_ANY_WORDS)(broker)


@app.callback(invoke_without_command=True)
def bolide(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)
    ] = False,
) -> None:
    """A RocketMQ-compatible messaging platform."""
    if version:
        print(f"bolide {__version__}")
        raise typer.Exit


@_admin.callback()
def admin() -> None:
    """Look after a cluster, with the commands of RocketMQ's mqadmin."""


def main() -> None:
    """Entry point of `bolide`."""
    app(prog_name="bolide")


def mqnamesrv() -> None:
    """Entry point of `mqnamesrv`: `bolide namesrv` under RocketMQ's name."""
    _mqnamesrv(prog_name="mqnamesrv")


def mqbroker() -> None:
    """Entry point of `mqbroker`: `bolide broker` under RocketMQ's name."""
    _mqbroker(prog_name="mqbroker")


def mqadmin() -> None:
    """Entry point of `mqadmin`: `bolide admin` under RocketMQ's name."""
    _admin(prog_name="mqadmin")
