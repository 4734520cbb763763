"""Message traces: queryMsgTraceById."""

from collections.abc import Iterable
from typing import Annotated

import typer
from msgspec import structs

from bolide.admin import AdminClient
from bolide.admin.message_history import TraceEntry
from bolide.admin.messages import DEFAULT_LIMIT
from bolide.cli.admin.output import java_text, time_text
from bolide.cli.admin.progress import print_cut
from bolide.cli.admin.session import AsDocument, NameServer, pass_over, run
from bolide.cli.admin.times import TIME_FORMATS, parse_time
from bolide.cli.documents import print_document
from bolide.logs import one_line
from bolide.model.names import TRACE_TOPIC
from bolide.protocol.trace import END_TRANSACTION, PUB, RECALL, SUB_AFTER, SUB_BEFORE

_WIDTHS = (10, 20, 20, 20, 10, 10)
_PUB_TITLES = ("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status")
_SUB_TITLES = ("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status")
_END_TITLES = ("#Type", "#ProducerGroup", "#ClientHost", "#EndTime", "#FromCheck", "#State")


def query_msg_trace_by_id(
    message_id: Annotated[str, typer.Option("-i", "--msgId", help="Unique id of the message.")],
    topic: Annotated[str, typer.Option("-t", "--traceTopic", help="Trace topic.")] = TRACE_TOPIC,
    begin: Annotated[
        str,
        typer.Option("-b", "--beginTimestamp", help=f"First store time of traces: {TIME_FORMATS}."),
    ] = "0",
    end: Annotated[
        str | None, typer.Option("-e", "--endTimestamp", help="Last store time, likewise.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "-c", "-num", "--maxNum", min=1, help="Maximum number of trace messages per broker."
        ),
    ] = DEFAULT_LIMIT,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Only the brokers of this cluster.")
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the trace of a message: its sender, its consumers, times and durations.

    Clients record traces only if tracing is enabled.
    """
    first, last = parse_time(begin), None if end is None else parse_time(end)

    cut: list[str] = []

    async def act(admin: AdminClient) -> None:
        traced = await admin.traces.of(
            message_id,
            topic=topic,
            begin=first,
            end=last,
            limit=limit,
            cluster=cluster,
            on_cut=cut.extend,
            on_failure=pass_over,
        )
        if as_document:
            print_document([_document(each) for each in traced])
        else:
            _print_tables(traced)
        if cut:
            of = f"trace messages from {', '.join(cut)}, which may have more"
            print_cut(limit, of, f"-c {limit * 2} shows more, -b and -e another time")

    run(name_server, act)


def _print_tables(traced: list[TraceEntry]) -> None:
    """Print, like RocketMQ's tool, one table per send and one per consumer group."""
    for each in traced:
        if each.record.kind == PUB:
            _print_table(_PUB_TITLES, [_row("Pub", each)])
    for each in traced:
        if each.record.kind == END_TRANSACTION:
            _print_table(_END_TITLES, [_end_row(each)])
        elif each.record.kind == RECALL:
            _print_table(_PUB_TITLES, [_row("Recall", each)])
    groups = dict.fromkeys(each.record.group for each in traced if each.record.kind == SUB_AFTER)
    for group in groups:
        ended = [each for each in traced if each.record.kind == SUB_AFTER]
        rows = [_row("Sub", each) for each in ended if each.record.group == group]
        _print_table(_SUB_TITLES, rows)
    if running := _running(traced):
        _print_table(_SUB_TITLES, [_row("SubBefore", each) for each in running])


def _running(traced: list[TraceEntry]) -> list[TraceEntry]:
    """Consumptions without a record of their end."""
    ended = {each.record.request_id for each in traced if each.record.kind == SUB_AFTER}
    began = (each for each in traced if each.record.kind == SUB_BEFORE)
    return [each for each in began if each.record.request_id not in ended]


def _print_table(titles: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    for row in (titles, *rows):
        texts = map(one_line, map(java_text, row))
        cells = (f"{text:<{width}}" for text, width in zip(texts, _WIDTHS, strict=True))
        print(" ".join(cells).rstrip())
    print()


def _row(title: str, entry: TraceEntry) -> tuple[object, ...]:
    record = entry.record
    duration = "-" if record.cost_ms is None else f"{record.cost_ms}ms"
    status = {True: "success", False: "failed", None: "running"}[record.success]
    return title, record.group, entry.client_host, _time(entry), duration, status


def _end_row(entry: TraceEntry) -> tuple[object, ...]:
    record = entry.record
    end = (record.from_check, record.transaction_state)
    return "EndTrans", record.group, entry.client_host, _time(entry), *end


def _time(entry: TraceEntry) -> str:
    return time_text(entry.time_ms, millis=False)


def _document(entry: TraceEntry) -> dict[str, object]:
    fields = structs.asdict(entry.record)
    present = {name: value for name, value in fields.items() if value is not None}
    return present | {"client_host": entry.client_host, "stored_ms": entry.stored_ms}
