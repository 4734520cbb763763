"""The `bolide` program: its commands and groups, and the entry points.

Groups load their commands on first use, so that a server does not import the other commands.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from bolide.cli.agents import mcp
from bolide.cli.command_line import require_spark
from bolide.cli.console import console
from bolide.cli.doctor import doctor
from bolide.cli.local_servers import shutdown, status
from bolide.cli.pipeline_options import FILE
from bolide.cli.server_commands import broker, controller, namesrv, standalone
from bolide.cli.sql import sql
from bolide.cli.tls_options import TlsCommand
from bolide.version import __version__

_TYPER_OPTIONS: Any = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
_ANY_WORDS: Any = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}


class LazyGroup(TyperGroup):
    """A group that loads its commands on first access."""

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
        """Ignored: typer assigns the registered commands, of which there are none."""


class LazyCommand(TyperCommand):
    """A command of the program that is loaded when it runs or when its options are shown."""

    def __init__(self, name: str, text: str, load: Callable[[], dict[str, Any]]) -> None:
        self._load = load
        super().__init__(name, help=text, add_help_option=False)

    @property
    def loaded(self) -> Any:
        return self._load()[self.name or ""]

    @property
    def params(self) -> Any:
        return self.loaded.params

    @params.setter
    def params(self, _given: object) -> None:
        """Ignored: they are those of the command that is loaded."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        return self.loaded.make_context(*args, **more)


def commands_of(*verbs: Callable[..., None]) -> dict[str, Any]:
    """One command per function, as the commands of a group."""
    app = typer.Typer(rich_markup_mode=None)
    for verb in verbs:
        app.command()(verb)
    return commands_from(app)


def commands_from(app: typer.Typer) -> dict[str, Any]:
    """The commands of an application, as the commands of a group."""
    return dict(typer.main.get_group(app).commands)


class AdminGroup(LazyGroup):
    """The commands of `bolide.cli.admin.commands`; names are case-insensitive."""

    def load(self) -> dict[str, Any]:
        from bolide.cli.admin.commands import load  # noqa: PLC0415

        return load()

    def list_commands(self, ctx: Any) -> list[str]:
        from bolide.cli.admin.commands import COMMANDS  # noqa: PLC0415

        return [*COMMANDS, "help"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from bolide.cli.admin.commands import load_one  # noqa: PLC0415

        names = {name.lower(): name for name in self.list_commands(ctx)}
        name = names.get(cmd_name.lower())
        return None if name is None else load_one(name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        from bolide.cli.admin.commands import summaries  # noqa: PLC0415

        for title, section in summaries().items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()))


class PipelineVerbGroup(LazyGroup):
    """One command per built-in pipeline, from `bolide.cli.pipeline_run`, and FILE."""

    verb: ClassVar[str]

    def load(self) -> dict[str, Any]:
        with require_spark():
            from bolide.cli.pipeline_run import load  # noqa: PLC0415

            return load(self.verb)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            return FILE, self.commands[FILE], args
        return super().resolve_command(ctx, args)


class RunGroup(PipelineVerbGroup):
    verb = "run"


class ExplainGroup(PipelineVerbGroup):
    verb = "explain"


class PipelineGroup(LazyGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli import pipeline  # noqa: PLC0415

        app = typer.Typer(rich_markup_mode=None)
        for group, verb, text in (
            (RunGroup, "run", "Run a pipeline: one of these, or that of a YAML file."),
            (ExplainGroup, "explain", "Show what a pipeline would do, without running it."),
        ):
            app.add_typer(
                typer.Typer(cls=group, no_args_is_help=True, rich_markup_mode=None),
                name=verb, help=text, subcommand_metavar="NAME|FILE [OPTIONS]",
            )  # fmt: skip
        app.command("list")(pipeline.list_)
        for command in (pipeline.status, pipeline.stop, pipeline.bundle):
            app.command()(command)
        return commands_from(app)


class BenchGroup(LazyGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli import bench  # noqa: PLC0415
        from bolide.cli.tls_options import add_tls_options  # noqa: PLC0415

        commands = commands_of(
            bench.producer,
            bench.batch,
            bench.transaction,
            bench.timer,
            bench.consumer,
            bench.latency,
            bench.e2e,
        )
        return add_tls_options(commands)


class StoreGroup(LazyGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli.store import dump, verify  # noqa: PLC0415

        return commands_of(verify, dump)


class MetricsGroup(LazyGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli.metrics import alerts, dashboard  # noqa: PLC0415

        return commands_of(dashboard, alerts)


class ChaosGroup(LazyGroup):
    """`bolide chaos` alone, or with options only, is `bolide chaos run`."""

    def load(self) -> dict[str, Any]:
        from bolide.cli.chaos import failover, loss, run  # noqa: PLC0415

        return commands_of(run, failover, loss)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        is_command = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_command else ["run", *args])


class ClusterGroup(LazyGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli import cluster  # noqa: PLC0415

        return commands_of(
            cluster.up, cluster.status, cluster.kill, cluster.stop, cluster.start, cluster.pause,
            cluster.resume, cluster.cut, cluster.slow, cluster.heal, cluster.down,
        )  # fmt: skip


class ConfigGroup(LazyGroup):
    def load(self) -> dict[str, Any]:
        from bolide.cli.config import load  # noqa: PLC0415

        return load()


class ProgramGroup(TyperGroup):
    """The commands of `bolide`, with those that are loaded on first use."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, text in _DECLARING.items():
            self.commands[name] = LazyCommand(name, text, _load_declaring)


_DECLARING = {
    "export": "Write topics, groups, users and policies of a cluster as one YAML document.",
    "apply": "Make a cluster have the topics, groups, users and policies of a file.",
}


@cache
def _load_declaring() -> dict[str, Any]:
    from bolide.cli.declare import load  # noqa: PLC0415

    return load()


app = typer.Typer(
    cls=ProgramGroup,
    no_args_is_help=True,
    help="A RocketMQ-compatible messaging platform.",
    **_TYPER_OPTIONS,
)
app.command()(namesrv)
app.command()(controller)
app.command()(standalone)
app.command(**_ANY_WORDS)(broker)
app.command()(status)
app.command()(shutdown)
app.command(cls=TlsCommand)(doctor)
app.command(cls=TlsCommand)(mcp)
app.command(cls=TlsCommand)(console)

for _group, _name, _text in (
    (ClusterGroup, "cluster", "Run a cluster of processes on this machine."),
    (ChaosGroup, "chaos", "Inject faults under load, and check what was promised."),
    (StoreGroup, "store", "Inspect and repair a store directory."),
    (MetricsGroup, "metrics", "Print a dashboard for Grafana and alert rules for Prometheus."),
    (BenchGroup, "bench", "Benchmark a Bolide or RocketMQ cluster."),
    (PipelineGroup, "pipeline", "Process messages with Spark."),
    (ConfigGroup, "config", "Explain the settings of servers."),
):
    app.add_typer(
        typer.Typer(cls=_group, no_args_is_help=True, **_TYPER_OPTIONS), name=_name, help=_text
    )

app.command()(sql)

_admin = typer.Typer(cls=AdminGroup, no_args_is_help=True, **_TYPER_OPTIONS)
app.add_typer(_admin, name="admin")

# A single command in an application is run without its name: `mqnamesrv -c FILE`.
_mqnamesrv = typer.Typer(**_TYPER_OPTIONS)
_mqnamesrv.command()(namesrv)
_mqcontroller = typer.Typer(**_TYPER_OPTIONS)
_mqcontroller.command()(controller)
_mqbroker = typer.Typer(**_TYPER_OPTIONS)
_mqbroker.command(**_ANY_WORDS)(broker)
_mqshutdown = typer.Typer(**_TYPER_OPTIONS)
_mqshutdown.command()(shutdown)


@app.callback(invoke_without_command=True)
def bolide(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """A RocketMQ-compatible messaging platform."""
    if version:
        print(f"bolide {__version__}")
        raise typer.Exit


@_admin.callback()
def admin() -> None:
    """Administer a cluster, with the commands of RocketMQ's mqadmin.

    Requests are signed with BOLIDE_ACCESS_KEY and BOLIDE_SECRET_KEY of the environment, or with the
    keys in $ROCKETMQ_HOME/conf/tools.yml.
    """


def main() -> None:
    """Entry point of `bolide`."""
    app(prog_name="bolide")


def mqnamesrv() -> None:
    """Entry point of `mqnamesrv`: `bolide namesrv` under RocketMQ's name."""
    _mqnamesrv(prog_name="mqnamesrv")


def mqcontroller() -> None:
    """Entry point of `mqcontroller`: `bolide controller` under RocketMQ's name."""
    _mqcontroller(prog_name="mqcontroller")


def mqbroker() -> None:
    """Entry point of `mqbroker`: `bolide broker` under RocketMQ's name."""
    _mqbroker(prog_name="mqbroker")


def mqshutdown() -> None:
    """Entry point of `mqshutdown`: `bolide shutdown` under RocketMQ's name."""
    _mqshutdown(prog_name="mqshutdown")


def mqadmin() -> None:
    """Entry point of `mqadmin`: `bolide admin` under RocketMQ's name."""
    _admin(prog_name="mqadmin")
