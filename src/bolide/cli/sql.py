"""`bolide sql`: SQL queries over topics.

Spark is imported when the command runs, so that other commands start faster.
"""

from enum import StrEnum
from typing import Annotated

import typer

from bolide.cli import pipeline_options as opt
from bolide.cli.command_line import FAILED, ExitOnError, fail, parse_settings, require_spark

DEFAULT_LIMIT = 100


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Query in Spark SQL; tables are topics.")
    ],
    name_server: opt.NameServer = None,
    archive: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Archive with the messages before those of the log."),
    ] = None,
    output: Annotated[
        Format, typer.Option("-f", "--format", help="json: one document per line.")
    ] = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1,
            help=f"Rows to print; by default {DEFAULT_LIMIT} for a table, otherwise all.",
        ),
    ] = None,
    value_schema: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC=COLUMNS",
            help="Columns of a topic's JSON bodies, such as orders='id bigint, name string';"
            " they form the column `value`. Repeatable.",
        ),
    ] = None,
    allow_gaps: Annotated[
        bool,
        typer.Option("--allow-gaps", help="Allow missing messages between archive and log."),
    ] = False,
    option: opt.SourceOption = None,
    master: opt.Master = "local[*]",
    conf: opt.Conf = None,
) -> None:  # fmt: skip
    """Query topics, and optionally their archive, with SQL: select count(*) from orders.

    Names with a hyphen or a percent sign are quoted: from `my-topic`. A body is bytes;
    cast(body as string) makes it text, get_json_object takes it apart.
    """
    with require_spark(), ExitOnError():
        from bolide.cli.sql_run import SqlRequest, run  # noqa: PLC0415

        request = SqlRequest(
            text=query,
            name_server=name_server,
            archive=archive,
            limit=limit or (DEFAULT_LIMIT if output is Format.TABLE else None),
            output=output,
            value_schemas=parse_settings(value_schema),
            allow_gaps=allow_gaps,
            options=parse_settings(option),
            master=master,
            conf=parse_settings(conf),
        )
        failure = run(request)
    if failure:
        fail(failure, FAILED)
