"""`bolide metrics dashboard` and `bolide metrics alerts`: what Grafana and Prometheus load."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bolide.cli.command_line import ExitOnError


def _printable(job: str) -> str:
    if not job.isprintable():
        raise typer.BadParameter(f"{job!r} has characters that cannot be printed in a file")
    return job


Job = Annotated[
    str,
    typer.Option(
        help="Name of the cluster's servers in the scrape configuration of Prometheus.",
        callback=_printable,
    ),
]
Into = Annotated[
    Path | None, typer.Option("--into", metavar="FILE", help="Write to this file, not to stdout.")
]


def dashboard(job: Job = "bolide", into: Into = None) -> None:
    """Print the dashboard of a cluster, to be imported into Grafana."""
    from bolide.cli.monitoring import boards  # noqa: PLC0415

    _give(json.dumps(boards.dashboard(job), indent=2) + "\n", into)


def alerts(job: Job = "bolide", into: Into = None) -> None:
    """Print alert rules, to be named under rule_files of Prometheus."""
    from bolide.cli.monitoring import boards  # noqa: PLC0415

    _give(boards.alert_rules(job), into)


def _give(text: str, into: Path | None) -> None:
    if into is None:
        typer.echo(text, nl=False)
        return
    with ExitOnError(OSError):
        into.write_text(text, encoding="utf-8")
