"""All commands put together, and the entry points."""

from typing import Annotated, Any

import typer

from bolide.cli import bench, pipeline
from bolide.cli.admin.group import AdminGroup
from bolide.cli.broker import broker
from bolide.cli.namesrv import namesrv
from bolide.cli.pipeline_group import ExplainGroup, RunGroup
from bolide.cli.sql import sql
from bolide.cli.standalone import standalone
from bolide.cli.store import dump, verify
from bolide.version import __version__

_LOOK: Any = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
_ANY_WORDS: Any = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}

app = typer.Typer(no_args_is_help=True, help="A RocketMQ-compatible messaging platform.", **_LOOK)
app.command()(namesrv)
app.command()(standalone)
app.command(**_ANY_WORDS)(broker)

_store = typer.Typer(no_args_is_help=True, **_LOOK)
_store.command()(verify)
_store.command()(dump)
app.add_typer(_store, name="store", help="Look into a store directory, and mend it.")

_bench = typer.Typer(no_args_is_help=True, **_LOOK)
for _command in (
    bench.producer,
    bench.batch,
    bench.transaction,
    bench.timer,
    bench.consumer,
    bench.latency,
    bench.e2e,
):
    _bench.command()(_command)
app.add_typer(_bench, name="bench", help="Load a cluster and measure it, ours or Apache's.")

_pipeline = typer.Typer(no_args_is_help=True, **_LOOK)
for _group, _verb, _text in (
    (RunGroup, "run", "Run a pipeline: one of these, or that of a YAML file."),
    (ExplainGroup, "explain", "Tell what a pipeline would do, without running it."),
):
    _pipeline.add_typer(
        typer.Typer(cls=_group, no_args_is_help=True, **_LOOK),
        name=_verb, help=_text, subcommand_metavar="NAME|FILE [OPTIONS]",
    )  # fmt: skip
_pipeline.command("list")(pipeline.list_)
_pipeline.command()(pipeline.status)
_pipeline.command()(pipeline.stop)
_pipeline.command()(pipeline.bundle)
app.add_typer(_pipeline, name="pipeline", help="Move and look into messages with Spark.")

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
