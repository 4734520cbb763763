"""`bolide sql`: a query whose tables are topics.

Spark is loaded when it runs: other commands start faster without it.
"""

from enum import StrEnum
from typing import Annotated

import typer

from bolide.cli import pipeline_options as opt
from bolide.cli.command_line import FAILED, Refusing, fail, settings_of, spark_needed

DEFAULT_LIMIT = 100


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="In Spark's SQL; tables are topics.")
    ],
    name_server: opt.NameServer = None,
    archive: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="An archive, whose messages come before the log's."),
    ] = None,
    output: Annotated[
        Format, typer.Option("-f", "--format", help="json is one document a line.")
    ] = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1,
            help=f"Rows to print; {DEFAULT_LIMIT} for a table and all for the rest unless given.",
        ),
    ] = None,
    value_schema: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC=COLUMNS",
            help="Columns of a topic's JSON bodies, such as orders='id bigint, name string';"
            " they become `value`. May be given often.",
        ),
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option("--allow-gaps", help="Messages may be missing between archive and log."),
    ] = False,
    option: opt.SourceOption = None,
    master: opt.Master = "local[*]",
    conf: opt.Conf = None,
) -> None:  # fmt: skip
    """Ask topics by SQL, and the archive before them: select count(*) from orders.

    Names with a hyphen or a percent sign are quoted: from `my-topic`. A body is bytes;
    cast(body as string) makes it text, get_json_object takes it apart.
    """
    with spark_needed(), Refusing():
        from bolide.cli.sql_run import Asked, run  # noqa: PLC0415

        asked = Asked(
            text=query,
            name_server=name_server,
            archive=archive,
            limit=limit or (DEFAULT_LIMIT if output is Format.TABLE else None),
            output=output,
            value_schemas=settings_of(value_schema),
            allow_gaps=allow_gaps,
            options=settings_of(option),
            master=master,
            conf=settings_of(conf),
        )
        failure = run(asked)
    if failure:
        fail(failure, FAILED)
