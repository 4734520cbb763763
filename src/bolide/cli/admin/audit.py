"""The command audit: who administered the brokers, and what changed."""

import asyncio
import re
import time
from typing import Annotated, Any

import typer

from bolide.admin import AdminClient
from bolide.admin.audit import matches
from bolide.cli.admin.output import time_text
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    require_one,
    run,
    targets,
    warn,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.bodies.audit import AuditRecord
from bolide.protocol.codes import ResponseCode
from bolide.remoting.errors import RemotingError

_SPAN = re.compile(r"([0-9]+)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_POLL_INTERVAL = 1.0
_MAX_CELL = 60
_TITLES = ("#Time", "Broker", "User", "Peer", "Request", "Target", "Outcome", "Change")


def audit(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    since: Annotated[
        str, typer.Option("--since", help="Only records of the last 30m, 1h or 7d, for example.")
    ] = "",
    user: Annotated[str | None, typer.Option("--user", help="Only this access key.")] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Only records about this topic, group, setting or user."),
    ] = None,
    as_document: AsDocument = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for further records and print them, too.")
    ] = False,
    name_server: NameServer = None,
) -> None:
    """Show who administered the brokers: requests, outcomes, state before and after."""
    require_one(broker, cluster)
    since_ms = int((time.time() - _seconds(since)) * 1000) if since else 0

    async def act(admin: AdminClient) -> None:
        positions = dict.fromkeys(await targets(admin, broker, cluster), -1)
        shown = await _read_new(admin, positions, since_ms, user, target)
        _show(shown, as_document=as_document)
        problem = ""
        while follow:
            await asyncio.sleep(_POLL_INTERVAL)
            try:
                shown = await _read_new(admin, positions, since_ms, user, target)
            except RemotingError as exc:  # a broker that restarts
                if str(exc) != problem:
                    warn(exc)
                problem = str(exc)
                continue
            problem = ""
            _show(shown, as_document=as_document, titles=False)

    try:
        run(name_server, act)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _read_new(
    admin: AdminClient,
    positions: dict[str, int],
    since_ms: int,
    user: str | None,
    target: str | None,
) -> list[AuditRecord]:
    """Read what the brokers have from these positions on, sorted by time; advances them."""
    found: list[AuditRecord] = []
    for address, begin in positions.items():
        async for entry in admin.audit.each(address, begin=begin, since_ms=since_ms):
            positions[address] = entry.offset + 1
            if matches(entry.record, user=user, target=target):
                found.append(entry.record)
    return sorted(found, key=lambda record: record.time)


def _show(records: list[AuditRecord], *, as_document: bool, titles: bool = True) -> None:
    if as_document:
        for record in records:
            print_document(record)
        return
    if not (records or titles):
        return
    table = Table(*_TITLES)
    for record in records:
        table.add(
            time_text(record.time, millis=False),
            record.server,
            _cell(record.user or ""),  # a denied request claims any name
            record.peer,
            record.request,
            _cell(", ".join(f"{key}={_text(value)}" for key, value in record.target.items())),
            _outcome(record),
            _cell(_change(record)),
        )
    table.print()


def _outcome(record: AuditRecord) -> str:
    if record.denied:
        return f"denied ({record.count} times)" if record.count > 1 else "denied"
    if record.code == ResponseCode.SUCCESS:
        return "done"
    return f"code {record.code}" if record.code >= 0 else "connection lost"


def _change(record: AuditRecord) -> str:
    """`perm: 6 -> 4`, for each thing that changed."""
    names = {**record.before, **record.after}
    changes = [
        f"{name}: {_text(record.before.get(name))} -> {_text(record.after.get(name))}"
        for name in names
    ]
    return "; ".join(changes) or _cell(record.remark or "")


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value)


def _cell(text: str) -> str:
    plain = "".join(char if char.isprintable() else "?" for char in text)
    return (plain if len(plain) <= _MAX_CELL else f"{plain[: _MAX_CELL - 1]}…") or "-"


def _seconds(span: str) -> int:
    found = _SPAN.fullmatch(span)
    if found is None:
        raise typer.BadParameter(f"--since {span}: give a number with s, m, h or d, such as 30m")
    return int(found[1]) * _UNITS[found[2]]
