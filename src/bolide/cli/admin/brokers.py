"""Broker commands: brokerStatus, getBrokerConfig, updateBrokerConfig, and the filter functions."""

from pathlib import Path
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.each_server import ask_each, changed_at
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    Switch,
    is_true,
    require_one,
    run,
    targets,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.logs import one_line
from bolide.protocol.bodies.routes import BrokerRoute

_MASTER = 0
Texts = dict[str, str]
Name = Annotated[str, typer.Option("-f", "--filterName", help="Name of the function.")]


def broker_status(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the runtime statistics of a broker."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> dict[str, Texts | None]:
        addresses = await targets(admin, broker, cluster, slaves=True)
        return await ask_each(addresses, admin.brokers.runtime)

    found = run(name_server, act)
    if as_document:
        print_document(found)
    else:
        for address, figures in found.items():
            prefix = f"{address:<24} " if cluster else ""
            for key, value in sorted((figures or {}).items()):
                print(f"{prefix}{key:<32}: {one_line(value)}")


def get_broker_config(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the settings of a broker."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> tuple[dict[str, str], dict[str, Texts | None]]:
        if broker is not None:
            titles = {broker: broker}
        else:
            assert cluster is not None
            titles = _titles(await admin.clusters.brokers(cluster))
        return titles, await ask_each(titles, admin.brokers.config)

    titles, found = run(name_server, act)
    if as_document:
        print_document(found)
    else:
        for address, settings in found.items():
            if settings is not None:
                print(f"============{titles[address]}============")
                for key, value in sorted(settings.items()):
                    print(f"{key:<50}=  {one_line(value)}")
                print()


def update_broker_config(
    key: Annotated[str, typer.Option("-k", "--key", help="Name of the setting.")],
    value: Annotated[str, typer.Option("-v", "--value", help="New value.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    slaves: Annotated[
        Switch, typer.Option("-a", "--updateAllBroker", help="With -c: whether to include slaves.")
    ] = "false",
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Change a setting of a running broker.

    The broker also saves it in its configuration file.
    """
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> dict[str, Texts | None]:
        addresses = await targets(admin, broker, cluster, slaves=is_true(slaves))

        async def update(address: str) -> Texts:
            await admin.brokers.update_config(address, {key: value})
            return {key: value}

        return await ask_each(addresses, update)

    found = run(name_server, act)
    if as_document:
        print_document(found)
    else:
        for address, changed in found.items():
            if changed is not None:
                print(f"update broker config success, {address}")


def _titles(brokers: list[BrokerRoute]) -> dict[str, str]:
    """Titles of masters and slaves, by address."""
    found = {}
    for broker in brokers:
        master = broker.broker_addrs.get(_MASTER, "NO_MASTER")
        for broker_id, address in sorted(broker.broker_addrs.items()):
            is_master = broker_id == _MASTER
            title = (
                f"Master: {master}" if is_master else f"My Master: {master}=====Slave: {address}"
            )
            found[address] = title
    return found


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
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Register or replace a filter function.

    Brokers run it for consumers that subscribe with filter="NAME", if filterServerNums is set.
    """
    require_one(broker, cluster)
    text = _read(source)

    async def act(admin: AdminClient) -> None:
        addresses = await changed_at(
            await targets(admin, broker, cluster),
            lambda address: admin.filters.update(address, name, text),
            None if as_document else f"update filter [{name}] of broker [{{}}] success.",
        )
        if as_document:
            print_document({"filter": name, "brokers": addresses})

    run(name_server, act)


def delete_filter(
    name: Name,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete a filter function; consumers that use it then receive no messages."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        addresses = await changed_at(
            await targets(admin, broker, cluster),
            lambda address: admin.filters.delete(address, name),
            None if as_document else f"delete filter [{name}] from broker [{{}}] success.",
        )
        if as_document:
            print_document({"filter": name, "brokers": addresses})

    run(name_server, act)


def list_filters(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the filter functions of brokers, with counters since the start of the broker."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        states = await admin.filters.states(await targets(admin, broker, cluster))
        if as_document:
            print_document(states)
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
