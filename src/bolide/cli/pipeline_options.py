"""Options of the `bolide pipeline` commands and of `bolide sql`."""

from pathlib import Path
from typing import Annotated

import typer

FILE = "FILE"
"""Name of the command that runs a YAML file; any word that is no built-in pipeline selects it."""

NameServer = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--name-server",
        help="NameServers, host:port;host:port; by default from NAMESRV_ADDR.",
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "-o", "--option", metavar="KEY=VALUE",
        help="Option of the source or of the connection; repeatable.",
    ),
]  # fmt: skip
Name = Annotated[
    str | None, typer.Option("--name", help="Name of the pipeline in list, status and stop.")
]
Once = Annotated[
    bool, typer.Option("--once", help="Process the messages stored so far, then exit.")
]
Every = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="INTERVAL", help="Interval between batches, such as '10 seconds'."
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint", metavar="PATH",
        help="Checkpoint directory; by default ~/.bolide/pipelines/NAME/checkpoint.",
    ),
]  # fmt: skip
CommitGroup = Annotated[
    str | None,
    typer.Option(
        "--commit-group", metavar="GROUP",
        help="Consumer group for the committed offsets; by default bolide-pipeline-NAME.",
    ),
]  # fmt: skip
Master = Annotated[str, typer.Option("--master", help="Spark master.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; repeatable."),
]
Ship = Annotated[
    Path | None,
    typer.Option(
        "--ship", metavar="FILE",
        help="Bundle that Spark copies to its workers; see `bolide pipeline bundle`.",
    ),
]  # fmt: skip
Force = Annotated[
    bool, typer.Option("--force", help="Run even if another run of the same name is active.")
]
Report = Annotated[
    bool, typer.Option("--report/--no-report", help="Report the run to the cluster.")
]
ReportInterval = Annotated[
    float,
    typer.Option("--report-interval", min=0.1, max=60.0, help="Seconds between reports."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document per line.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of a pipeline.")]
Pipeline = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pipeline.")]
Since = Annotated[
    str, typer.Option("--since", metavar="SPAN", help="Look-back period, such as 7d.")
]
All = Annotated[bool, typer.Option("--all", help="All runs, not only the last of each pipeline.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds to wait for the end.")]
Run = Annotated[
    str,
    typer.Option("--run", metavar="ID", help="Only this run; by default any run of the pipeline."),
]
BundleFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Path of the .tar.gz file to write.")
]
