"""NameServers: getNamesrvConfig, updateNamesrvConfig, updateKvConfig, deleteKvConfig,
wipeWritePerm, addWritePerm.

Every NameServer of -n is asked: they do not synchronize.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from bolide.admin import AdminClient, BrokerUnknown
from bolide.cli.admin.each_server import answers_of
from bolide.cli.admin.session import AsDocument, NameServer, run
from bolide.cli.documents import print_document
from bolide.logs import one_line

T = TypeVar("T")

Namespace = Annotated[str, typer.Option("-s", "--namespace", help="Namespace of the key.")]
Key = Annotated[str, typer.Option("-k", "--key", help="Name of the key.")]
BrokerName = Annotated[
    str, typer.Option("-b", "--brokerName", help="Name of the broker, such as broker-a.")
]
Ask = Callable[[AdminClient, str], Awaitable[T]]


def get_namesrv_config(as_document: AsDocument = False, name_server: NameServer = None) -> None:
    """Show the settings of every NameServer."""

    async def ask(admin: AdminClient, address: str) -> dict[str, str]:
        return (await admin.name_servers.config(address))[address]

    answers = _ask_each(name_server, ask)
    if as_document:
        print_document(answers)
    else:
        for address, settings in answers.items():
            print(f"============{address}============")
            print_settings(settings)


def print_settings(settings: dict[str, str]) -> None:
    for key, value in sorted(settings.items()):
        print(f"{key:<50}=  {one_line(value)}")


def update_namesrv_config(
    key: Annotated[str, typer.Option("-k", "--key", help="Name of the setting.")],
    value: Annotated[str, typer.Option("-v", "--value", help="New value.")],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Change a setting of every NameServer while it runs.

    A NameServer also saves it in its configuration file.
    """

    async def ask(admin: AdminClient, address: str) -> None:
        await admin.name_servers.update_config({key: value}, at=address)

    answers = _ask_each(name_server, ask)
    if as_document:
        print_document({"nameServers": [*answers], key: value})
    else:
        print(f"update name server config success![{', '.join(answers)}]")
        print(one_line(f"{key} : {value}"))


def update_kv_config(
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Option("-v", "--value", help="New value.")],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Set a value of the key-value configuration at every NameServer."""

    async def ask(admin: AdminClient, address: str) -> None:
        await admin.name_servers.put_value(namespace, key, value, at=address)

    answers = _ask_each(name_server, ask)
    if as_document:
        entry = {"namespace": namespace, "key": key, "value": value}
        print_document({"nameServers": [*answers]} | entry)
    else:
        print("create or update kv config to namespace success.")


def delete_kv_config(
    namespace: Namespace,
    key: Key,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete a value of the key-value configuration at every NameServer.

    A key that does not exist is no error.
    """

    async def ask(admin: AdminClient, address: str) -> None:
        await admin.name_servers.delete_value(namespace, key, at=address)

    answers = _ask_each(name_server, ask)
    if as_document:
        print_document({"nameServers": [*answers], "namespace": namespace, "key": key})
    else:
        print("delete kv config from namespace success.")


def wipe_write_perm(
    broker_name: BrokerName,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have producers leave a broker; consumers go on reading.

    Removes the write permission of the broker from all routes. A NameServer gives it back when it
    restarts and when a topic of the broker changes; `drain` wipes it again then, and says when the
    broker can be stopped.
    """

    async def ask(admin: AdminClient, address: str) -> int:
        return (await admin.name_servers.wipe_write_perm(broker_name, at=address))[address]

    _change_perm(name_server, broker_name, ("wipe", ask), as_document=as_document)


def add_write_perm(
    broker_name: BrokerName,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have producers return to a broker: undoes wipeWritePerm.

    All topics of the broker can be read and written then, also those that could not before, until
    a topic of the broker changes.
    """

    async def ask(admin: AdminClient, address: str) -> int:
        return (await admin.name_servers.add_write_perm(broker_name, at=address))[address]

    _change_perm(name_server, broker_name, ("add", ask), as_document=as_document)


def _change_perm(
    name_server: str | None,
    broker_name: str,
    change: tuple[str, Ask[int]],
    *,
    as_document: bool,
) -> None:
    verb, ask = change

    async def act(admin: AdminClient) -> dict[str, int | None]:
        addresses = admin.name_servers.require_addresses()
        counts = await answers_of(addresses, lambda at: ask(admin, at), changes=True)
        if not any(counts.values()):
            known = (await admin.clusters.info()).broker_addr_table
            if broker_name not in known:
                raise BrokerUnknown(broker_name, known)
        return {address: counts.get(address) for address in addresses}

    counts = run(name_server, act)
    if as_document:
        changed = [{"nameServer": at, "topics": count} for at, count in counts.items()]
        print_document({"brokerName": broker_name, "changed": changed})
        return
    for address, count in counts.items():
        outcome = "Failed" if count is None else f"OK, {count}"
        where = f"of broker[{broker_name}] in name server[{address}]"
        print(one_line(f"{verb} write perm {where} {outcome}"))


def _ask_each(name_server: str | None, ask: Ask[T]) -> dict[str, T]:
    async def act(admin: AdminClient) -> dict[str, T]:
        addresses = admin.name_servers.require_addresses()
        return await answers_of(addresses, lambda address: ask(admin, address))

    return run(name_server, act)
