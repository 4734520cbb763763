"""`bolide config`: what settings mean, and what they are in a cluster.

Exit codes: 0 done, 2 an unknown key, 3 a server did not answer.
"""

import os
from typing import Annotated, Any

import typer

from bolide.admin import AdminClient
from bolide.admin.settings import Place, Server, Setting, all_settings, find, near, read_places
from bolide.cli.admin.common_options import add_common_options
from bolide.cli.admin.session import AsDocument, NameServer, run, warn
from bolide.cli.command_line import UNREACHABLE
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.cli.tls_options import add_tls_options
from bolide.errors import BolideError
from bolide.logs import one_line

_TITLE_WIDTH = 14
OfOneCluster = Annotated[
    str | None, typer.Option("-c", "--clusterName", help="Only the brokers of this cluster.")
]
OfServer = Annotated[
    Server | None, typer.Option("--server", help="Only the settings of this kind of server.")
]
_CHANGES = {
    "at once": "at once, by a request",
    "after a restart": "a request writes it to the file; it takes effect after a restart",
    "fixed": "only in the file, the environment or the command line, at a restart; no request",
    "never": "",
}


def explain(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Names of settings.")],
    server: OfServer = None,
    cluster: OfOneCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Say what settings mean, when changes take effect, and what they are in a cluster.

    Without a NameServer only what is known without a cluster is shown.
    """
    settings = [each for key in keys for each in _found(key, server)]
    places, complete = _places(name_server, cluster)
    if as_document:
        print_document([row for each in settings for row in _rows(each, places)])
    else:
        for at, each in enumerate(settings):
            if at:
                print()
            _print(each, places)
    _end(complete)


def list_(
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that differ from their default.")
    ] = False,
    server: OfServer = None,
    cluster: OfOneCluster = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List the settings of servers, with --changed those that a cluster has changed."""
    if changed and not _is_named(name_server):
        raise typer.BadParameter("--changed needs the NameServer of a cluster: give -n")
    places, complete = _places(name_server, cluster)
    rows = [
        row
        for each in all_settings()
        if server in {None, each.server}
        for row in _rows(each, places)
        if row["differs"] or not changed
    ]
    if as_document:
        print_document(rows)
    else:
        table = Table("#Key", "#Server", "#Default", "#Unit", "#In effect", "#Place", "#Value")
        for row in rows:
            table.add(
                row["key"], row["server"], row["default"], row["unit"], row["inEffect"],
                row["place"] or "", "" if row["value"] is None else row["value"],
            )  # fmt: skip
        table.print()
    _end(complete)


def load() -> dict[str, Any]:
    """The commands of the group, by name."""
    app = typer.Typer(rich_markup_mode=None)
    example = "\b\nExample: bolide config {} -n 127.0.0.1:9876"
    app.command("explain", epilog=example.format("explain fileReservedTime"))(explain)
    app.command("list", epilog=example.format("list --changed"))(list_)
    found = dict(typer.main.get_group(app).commands)
    for command in found.values():
        add_common_options(command, repeats=True)
    return add_tls_options(found)


def _found(key: str, server: Server | None) -> list[Setting]:
    found = [each for each in find(key) if server in {None, each.server}]
    if found:
        return found
    names = near(key)
    hint = f"; did you mean {' or '.join(names)}?" if names else ""
    of = f" of the {server}" if server is not None and find(key) else ""
    raise typer.BadParameter(f"{key} is not a setting{of}{hint if not of else ''}")


def _is_named(name_server: str | None) -> bool:
    return bool(name_server or os.environ.get("NAMESRV_ADDR"))


def _places(name_server: str | None, cluster: str | None) -> tuple[list[Place], bool]:
    """The servers of the cluster; whether all of them answered."""
    if not _is_named(name_server):
        if cluster is not None:
            raise typer.BadParameter("-c needs the NameServer of the cluster: give -n")
        return [], True

    async def act(admin: AdminClient) -> tuple[list[Place], list[BolideError]]:
        return await read_places(admin, cluster)

    places, failures = run(name_server, act)
    for exc in failures:
        warn(exc)
    return places, not failures


def _end(complete: bool) -> None:
    if not complete:
        raise typer.Exit(UNREACHABLE)


def _rows(setting: Setting, places: list[Place]) -> list[dict[str, Any]]:
    """A row for each server that tells a value; one without a place if none does."""
    facts = {
        "key": setting.key,
        "server": setting.server.value,
        "meaning": setting.meaning,
        "default": setting.default,
        "unit": setting.unit,
        "values": setting.values,
        "inEffect": setting.in_effect,
        "noEffect": setting.no_effect,
        "aliases": ",".join(setting.aliases),
        "variable": setting.variable,
        "ours": setting.is_ours,
    }
    told = [(each, value) for each in places if (value := each.value_of(setting)) is not None]
    found: list[dict[str, Any]] = [
        {
            "place": place.name,
            "address": place.address,
            "value": value,
            "differs": setting.differs(value),
        }
        for place, value in told
    ]
    nobody: dict[str, Any] = {"place": None, "address": None, "value": None, "differs": False}
    return [facts | each for each in found or [nobody]]


def _print(setting: Setting, places: list[Place]) -> None:
    print(f"{setting.key} ({setting.server}, in {setting.server.file})")
    unit = f" {setting.unit}" if setting.unit else ""
    change = _CHANGES[setting.in_effect]
    lines = {
        "meaning": setting.meaning,
        "no effect": setting.no_effect,
        "default": f"{setting.default}{unit}" if setting.default else "none",
        "values": setting.values,
        "changes": change,
        "also spelt": ", ".join(setting.aliases),
        "environment": setting.variable,
        "RocketMQ": "has no such setting" if setting.is_ours else "",
    }
    if setting.no_effect:
        lines["default"] += ", in RocketMQ"
    for title, text in lines.items():
        if text:
            print(f"  {title:<{_TITLE_WIDTH}}{text}")
    for row in _rows(setting, places):
        if row["place"] is not None:
            mark = "  (not the default)" if row["differs"] else ""
            name = f"{row['place']} {row['address']}"
            print(one_line(f"  {'value':<{_TITLE_WIDTH}}{row['value']}{unit} at {name}{mark}"))
        elif places:
            print(f"  {'value':<{_TITLE_WIDTH}}no server of this cluster tells one{_why(setting)}")


def _why(setting: Setting) -> str:
    if setting.is_secret:
        return ": secrets are never shown"
    if setting.is_ours:
        return ": Bolide's servers list their own settings only if they differ from the default"
    return ""
