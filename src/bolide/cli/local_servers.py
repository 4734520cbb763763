"""`bolide status` and `bolide shutdown`, RocketMQ's mqshutdown: the servers of this machine."""

import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.cli.command_line import FAILED, NOT_APPLICABLE, fail
from bolide.cli.documents import JsonFlag, Output, chosen_format, documents_in, print_document

if TYPE_CHECKING:
    from bolide.cli.run_records import RunningServer

_POLL = 0.05
_REPORT_EVERY = 5.0
_TITLE_WIDTH = 11
_LONGEST_WAIT = 7 * 86_400.0


class Kind(StrEnum):
    NAMESRV = "namesrv"
    BROKER = "broker"
    CONTROLLER = "controller"
    PROXY = "proxy"
    STANDALONE = "standalone"
    CLUSTER = "cluster"
    CONSOLE = "console"
    ALL = "all"


_STOP_ORDER = (
    Kind.CONSOLE,
    Kind.CLUSTER,
    Kind.STANDALONE,
    Kind.BROKER,
    Kind.CONTROLLER,
    Kind.NAMESRV,
)
"""Brokers unregister when they stop, so NameServers stop last."""

_RESTARTED = {
    "workers": "is a worker, which would be started again: stop the process that runs the workers",
    "standalone": "belongs to bolide standalone, which would start it again: stop that, or start it"
    " with --no-console",
}
"""Why a process is not stopped by itself, by what it is a member of."""


def status(output: Output = None, as_json: JsonFlag = False) -> None:
    """Show the servers that run on this machine."""
    from bolide.cli.run_records import running_servers  # noqa: PLC0415

    wanted = chosen_format(output, as_json)
    servers = running_servers()
    if wanted is not None:
        with documents_in(wanted):
            print_document([_document(each) for each in servers])
    elif servers:
        _print_table(servers)
    else:
        print("No Bolide server of this user runs on this machine.")


def _check_finite(value: float) -> float:
    """Click takes `nan` for a number in any range."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number of seconds")
    return value


def shutdown(
    kind: Annotated[Kind, typer.Argument(help="The servers to stop.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Only the broker or controller of this name.")
    ] = None,
    pid: Annotated[int | None, typer.Option("--pid", help="Only this process.")] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0,
            max=_LONGEST_WAIT,
            callback=_check_finite,
            help="Seconds to wait until they have stopped.",
        ),
    ] = 60.0,
) -> None:
    """Stop servers of this user on this machine in order, and wait until they are gone.

    Exit codes: 0 all have stopped, 1 none runs or one did not stop in time, 2 usage error, 4 there
    is no such server in Bolide.
    """
    from bolide.cli.run_records import running_servers  # noqa: PLC0415

    if kind is Kind.PROXY:
        fail(
            "Bolide has no proxy: its clients, and RocketMQ's remoting clients, connect to the"
            " brokers; stop RocketMQ's proxy with RocketMQ's own mqshutdown",
            NOT_APPLICABLE,
        )
    chosen, advice = _choose(running_servers(), kind, name, pid)
    if not chosen:
        what = "server" if kind is Kind.ALL else _program(kind)
        print(f"No {what} running{_restriction(name, pid)}.")
        for line in advice:
            print(line, file=sys.stderr)
        raise typer.Exit(FAILED)
    deadline = time.monotonic() + timeout
    has_ended = [
        _stop([each for each in chosen if each.record.kind == step], deadline)
        for step in _STOP_ORDER
    ]
    if not all(has_ended):
        raise typer.Exit(FAILED)


def _choose(
    servers: Sequence["RunningServer"], kind: Kind, name: str | None, pid: int | None
) -> tuple[list["RunningServer"], list[str]]:
    """The servers to stop, and a sentence on each other one that the caller may mean."""
    from bolide.cli.run_records import CLUSTER  # noqa: PLC0415

    chosen, advice = [], []
    for each in servers:
        record = each.record
        is_meant = (name is None or record.name == name) and pid in {None, record.pid}
        if not is_meant:
            continue
        if kind is not Kind.ALL and record.kind != kind:
            if kind in {Kind.NAMESRV, Kind.BROKER} and record.kind == Kind.STANDALONE:
                advice.append(f"{each.label} has both servers: mqshutdown standalone")
        elif not each.is_own:
            where = each.state if each.state == "elsewhere" else f"that of user {each.user}"
            advice.append(f"{each.label} is {where}: it can be stopped only there, or by its user")
        elif record.member_of in _RESTARTED:
            if kind is not Kind.ALL:
                advice.append(f"{each.label} {_RESTARTED[record.member_of]}")
        elif record.member_of == CLUSTER and name is None and pid is None:
            if kind is not Kind.ALL:
                advice.append(
                    f"{each.label} is a member of a local cluster: mqshutdown cluster, or choose"
                    " it with --pid"
                )
        else:
            chosen.append(each)
    return chosen, advice


def _stop(servers: Sequence["RunningServer"], deadline: float) -> bool:
    """Stop servers side by side; False if one was still there at the deadline."""
    from bolide.cli.run_records import PAUSED, is_running, terminate  # noqa: PLC0415

    for each in servers:
        shown = f"{_program(each.record.kind)}({each.record.pid})"
        print(f"The {shown} is running...")
        if not terminate(each):
            continue
        print(f"Send shutdown request to {shown} OK", flush=True)
        if each.state == PAUSED:
            with suppress(ProcessLookupError):
                os.kill(each.record.pid, signal.SIGCONT)
    begun = reported = time.monotonic()
    waiting = list(servers)
    while waiting:
        for each in [each for each in waiting if not is_running(each.record)]:
            waiting.remove(each)
            took = time.monotonic() - begun
            print(f"{_named(each)} stopped after {took:.1f} s.", flush=True)
        if not waiting or (now := time.monotonic()) >= deadline:
            break
        if now - reported >= _REPORT_EVERY:
            reported = now
            labels = ", ".join(each.label for each in waiting)
            print(f"waiting for {labels}: {now - begun:.0f} s", file=sys.stderr, flush=True)
        time.sleep(_POLL)
    for each in waiting:
        print(
            f"{_named(each)} still runs; it ends by itself when it has written everything. See its"
            f" log, or wait longer with --timeout. kill -9 {each.record.pid} ends it as a crash"
            " does.",
            file=sys.stderr,
        )
    return not waiting


def _program(kind: str) -> str:
    """What RocketMQ's mqshutdown calls a server, where it has that server."""
    return f"mq{kind}" if kind in {Kind.NAMESRV, Kind.BROKER, Kind.CONTROLLER} else kind


def _named(server: "RunningServer") -> str:
    return server.label[0].upper() + server.label[1:]


def _restriction(name: str | None, pid: int | None) -> str:
    parts = [f" with the name {name}"] if name is not None else []
    return "".join(parts + ([f" as process {pid}"] if pid is not None else []))


def _document(server: "RunningServer") -> dict[str, object]:
    record = server.record
    return {
        "kind": record.kind,
        "name": record.name,
        "pid": record.pid,
        "state": server.state,
        "since": datetime.fromtimestamp(record.started_at).astimezone().isoformat(" ", "seconds"),
        "uptime": round(max(time.time() - record.started_at, 0.0)),
        "addresses": list(record.addresses),
        "data": record.data,
        "version": record.version,
        "user": server.user,
        "host": record.host,
        "memberOf": record.member_of or None,
    }


def _print_table(servers: Collection["RunningServer"]) -> None:
    from bolide.cli.tables import Table  # noqa: PLC0415

    table = Table(
        "Kind", "Name", "Pid", "State", "Since", "Addresses", "Version", "Of", "Directory"
    )
    for each in servers:
        row, record = _document(each), each.record
        table.add(
            record.kind, record.name or "-", record.pid, each.state, row["since"],
            " ".join(record.addresses) or "-", record.version, record.member_of or "-",
            record.data,
        )  # fmt: skip
    if sys.stdout.isatty() and table.width > shutil.get_terminal_size().columns:
        _print_blocks(servers)
    else:
        table.print()


def _print_blocks(servers: Iterable["RunningServer"]) -> None:
    """For narrow terminals, on which a table would break addresses and dates over lines."""
    from bolide.logs import one_line  # noqa: PLC0415

    for at, each in enumerate(servers):
        record = each.record
        facts = {
            "since": [str(_document(each)["since"])],
            "addresses": record.addresses,
            "version": [record.version],
            "of": [record.member_of] if record.member_of else [],
            "directory": [record.data] if record.data else [],
        }
        if at:
            print()
        print(one_line(f"{_named(each)}: {each.state}"))
        for title, values in facts.items():
            for number, value in enumerate(values):
                print(one_line(f"  {'' if number else title:<{_TITLE_WIDTH}}{value}"))
