"""Filter functions: updateFilter, deleteFilter, listFilters; mqadmin of RocketMQ has none."""

from pathlib import Path
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.options import BrokerAddress, ClusterName, Json, NameServer, require_one
from bolide.cli.admin.session import run, targets
from bolide.cli.admin.tables import Table, print_json

Name = Annotated[str, typer.Option("-f", "--filterName", help="Name of the function.")]


def update_filter(
    name: Name,
    source: Annotated[
        Path,
        typer.Option(
            "-s",
            "--source",
            exists=True,
            dir_okay=False,
            help="Python file that defines accept(message).",
        ),
    ],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Register a filter function, or replace it.

    Brokers run it for consumers that subscribe with filter="NAME", if filterServerNums is set.
    """
    require_one(broker, cluster)
    text = _read(source)

    async def act(admin: AdminClient) -> None:
        addresses = await targets(admin, broker, cluster)
        for address in addresses:
            await admin.filters.update(address, name, text)
            if not as_json:
                print(f"update filter [{name}] of broker [{address}] success.")
        if as_json:
            print_json({"filter": name, "brokers": addresses})

    run(name_server, act)


def delete_filter(
    name: Name,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Delete a filter function; consumers that filter by it get nothing from then on."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        addresses = await targets(admin, broker, cluster)
        for address in addresses:
            await admin.filters.delete(address, name)
            if not as_json:
                print(f"delete filter [{name}] from broker [{address}] success.")
        if as_json:
            print_json({"filter": name, "brokers": addresses})

    run(name_server, act)


def list_filters(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Show the filter functions of brokers, and what they have done since these started."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        states = await admin.filters.states(await targets(admin, broker, cluster))
        if as_json:
            print_json(states)
            return
        table = Table("#Broker", "#Filter", "#Judged", "#Accepted", "#Failed", "#Last error")
        for address, functions in states.items():
            for each in functions:
                counts = (each.judged, each.accepted, each.failed)
                table.add(address, each.name, *counts, each.error)
        table.print()

    run(name_server, act)


def _read(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise typer.BadParameter(f"{source} cannot be read: {exc}") from exc
