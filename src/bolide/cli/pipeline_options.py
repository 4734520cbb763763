"""Options that the commands of pipelines have, and what is made of them."""

from pathlib import Path
from typing import Annotated

import typer

FILE = "FILE"
"""Name of the command that runs a YAML file; any word that is no built-in pipeline selects it."""

NameServer = Annotated[
    str | None,
    typer.Option(
        "-n", "--name-server", help="NameServers, host:port;host:port; else from NAMESRV_ADDR."
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "-o", "--option", metavar="KEY=VALUE",
        help="An option of the source or of the connection; may be given often.",
    ),
]  # fmt: skip
Name = Annotated[
    str | None, typer.Option("--name", help="How the pipeline is called in list, status and stop.")
]
Once = Annotated[bool, typer.Option("--once", help="Read what is there now, and end.")]
Every = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="INTERVAL", help="Take a batch so often, such as '10 seconds'."
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint", metavar="PATH",
        help="Where the position is kept; ~/.bolide/pipelines/NAME/checkpoint unless given.",
    ),
]  # fmt: skip
CommitGroup = Annotated[
    str | None,
    typer.Option(
        "--commit-group", metavar="GROUP",
        help="Consumer group that shows the position; bolide-pipeline-NAME unless given.",
    ),
]  # fmt: skip
Master = Annotated[str, typer.Option("--master", help="Spark master.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be given often."),
]
Ship = Annotated[
    Path | None,
    typer.Option(
        "--ship", metavar="FILE",
        help="Have Spark carry this bundle to its workers; see `bolide pipeline bundle`.",
    ),
]  # fmt: skip
Force = Annotated[
    bool, typer.Option("--force", help="Run even if another run of that name reports.")
]
ReportInterval = Annotated[
    float,
    typer.Option("--report-interval", min=0.1, max=60.0, help="Seconds between two reports."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of a pipeline.")]
Pipeline = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pipeline.")]
Since = Annotated[
    str, typer.Option("--since", metavar="SPAN", help="How far to look back, such as 7d.")
]
All = Annotated[bool, typer.Option("--all", help="Every run, not only the last of a pipeline.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.0, help="Seconds to wait for it to stop.")
]
Run = Annotated[
    str, typer.Option("--run", metavar="ID", help="Only this run; else any of the pipeline.")
]
BundleFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Where to write it: a .tar.gz file.")
]
