"""Commands of ACL 1.0.

updateAclConfig, deleteAclConfig, clusterAclConfigVersion, updateGlobalWhiteAddr, getAclConfig.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from bolide.admin import AdminClient
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.credentials import changed_secret
from bolide.cli.admin.each_server import change_each
from bolide.cli.admin.output import java_text, time_text
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    Switch,
    is_true,
    items,
    require_one,
    run,
    targets,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.logs import one_line
from bolide.protocol.bodies.access import PlainAccount, PlainAccounts

NEW_SECRET = "BOLIDE_NEW_SECRET_KEY"  # noqa: S105  the name of a variable

Account = Annotated[str, typer.Option("-a", "--accessKey", help="Access key of the account.")]


def update_acl_config(
    access_key: Account,
    secret_key: Annotated[
        str | None,
        typer.Option(
            "-s",
            "--secretKey",
            help="Secret key; - reads it from a prompt or from standard input. Else unchanged.",
        ),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option("--newSecretKey", help=f"Ask for a secret key, unless {NEW_SECRET} has it."),
    ] = False,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    white_address: Annotated[
        str | None,
        typer.Option(
            "-w", "--whiteRemoteAddress", help="Addresses that need no signature, 10.0.0.*."
        ),
    ] = None,
    default_topic: Annotated[
        str | None,
        typer.Option(
            "-i", "--defaultTopicPerm", help="Permission on other topics: DENY, PUB, SUB, PUB|SUB."
        ),
    ] = None,
    default_group: Annotated[
        str | None,
        typer.Option("-u", "--defaultGroupPerm", help="Permission on other groups: DENY, SUB."),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option("-t", "--topicPerms", help="Permissions by topic, topicA=DENY,topicB=SUB."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option("-g", "--groupPerms", help="Permissions by group, groupA=DENY,groupB=SUB."),
    ] = None,
    admin: Annotated[
        Switch | None,
        typer.Option("-m", "--admin", help="Whether the account may administer; else unchanged."),
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Create or change an account of plain_acl.yml."""
    secret = changed_secret(secret_key, NEW_SECRET, "Secret key", asked=ask)
    changed = change_each(
        name_server,
        (broker, cluster),
        lambda client, address: client.plain_acl.update(
            address,
            access_key.strip(),
            secret,
            admin=None if admin is None else is_true(admin),
            white_address=white_address,
            default_topic=default_topic,
            default_group=default_group,
            topics=None if topics is None else items(topics),
            groups=None if groups is None else items(groups),
        ),
        None if as_document else "create or update plain access config to {} success.",
    )
    if as_document:
        print_document({"accessKey": access_key, "brokers": changed})


def delete_acl_config(
    access_key: Account,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete an account of plain_acl.yml."""
    require_one(broker, cluster)
    if dry_run or not yes:
        lost = _accounts(name_server, (broker, cluster), access_key)
        confirm(
            f"Delete account {access_key}?",
            _permissions(lost) if lost else f"there is no account {access_key}",
            [{"brokerAddr": at} | msgspec.to_builtins(each) for at, each in lost],
            yes=yes,
            dry_run=dry_run,
            as_document=as_document,
        )
    changed = change_each(
        name_server,
        (broker, cluster),
        lambda client, address: client.plain_acl.delete(address, access_key),
        None if as_document else "delete plain access config account from {} success.",
    )
    if as_document:
        print_document({"accessKey": access_key, "brokers": changed})
    else:
        print(f"account's accesskey is:{access_key}")


def _accounts(
    name_server: str | None, brokers: tuple[str | None, str | None], access_key: str
) -> list[tuple[str, PlainAccount]]:
    """The account as each broker has it, without its secret."""
    broker, cluster = brokers

    async def act(client: AdminClient) -> list[tuple[str, PlainAccount]]:
        addresses = await targets(client, broker, cluster, slaves=True)
        found = {each: await client.plain_acl.accounts(each) for each in addresses}
        return [
            (address, msgspec.structs.replace(account, secret_key=""))
            for address, accounts in found.items()
            for account in accounts.plain_access_configs
            if account.access_key == access_key
        ]

    return run(name_server, act)


def _permissions(accounts: list[tuple[str, PlainAccount]]) -> Table:
    table = Table(
        "#Broker", "#Admin", "#DefaultTopicPerm", "#DefaultGroupPerm", "#TopicPerms", "#GroupPerms"
    )
    for address, each in accounts:
        defaults = (each.default_topic_perm or "-", each.default_group_perm or "-")
        lists = (",".join(each.topic_perms or ["-"]), ",".join(each.group_perms or ["-"]))
        table.add(address, java_text(each.admin), *defaults, *lists)
    return table


def cluster_acl_config_version(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the versions of the files of access rules."""
    require_one(broker, cluster)

    async def act(client: AdminClient) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for address in await targets(client, broker, cluster):
            found = await client.plain_acl.versions(address)
            place = (found.cluster, found.broker_name, found.broker_address)
            rows += [
                (*place, path, version.counter, version.timestamp)
                for path, version in found.files.items()
            ]
        return rows

    rows = run(name_server, act)
    names = ("clusterName", "brokerName", "brokerAddr", "aclFilePath", "counter", "timestamp")
    if as_document:
        for row in rows:
            print_document(dict(zip(names, row, strict=True)))
        return
    table = Table(
        "#Cluster Name", "#Broker Name", "#Broker Addr", "#AclFilePath", "#AclConfigVersionNum",
        "#AclLastUpdateTime",
    )  # fmt: skip
    for *facts, timestamp in rows:
        table.add(*facts, time_text(int(str(timestamp)), millis=False))
    table.print()


def update_global_white_addr(
    addresses: Annotated[
        str,
        typer.Option(
            "-g",
            "--globalWhiteRemoteAddresses",
            help="Addresses that need no account, 10.10.103.*,192.168.0.*.",
        ),
    ],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    file: Annotated[
        str | None,
        typer.Option("-p", "--aclFileFullPath", help="File of rules on the broker's machine."),
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Replace the global white list of plain_acl.yml."""
    patterns = items(addresses)
    changed = change_each(
        name_server,
        (broker, cluster),
        lambda client, address: client.plain_acl.update_white_addresses(
            address, patterns, file=file
        ),
        None if as_document else "update global white remote addresses to {} success.",
    )
    if as_document:
        print_document({"globalWhiteAddrs": patterns, "brokers": changed})


def get_acl_config(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the accounts and the global white list, without secrets."""
    require_one(broker, cluster)

    async def act(client: AdminClient) -> dict[str, PlainAccounts]:
        addresses = await targets(client, broker, cluster)
        return {address: await client.plain_acl.accounts(address) for address in addresses}

    for address, found in run(name_server, act).items():
        for account in found.plain_access_configs:
            account.secret_key = ""  # RocketMQ's brokers send it
        if as_document:
            print_document({"brokerAddr": address} | msgspec.to_builtins(found))
        else:
            _show(found)


def _show(found: PlainAccounts) -> None:
    print(f"\nglobalWhiteRemoteAddresses: {_java_list(found.global_white_addrs)}\n")
    print("accounts:")
    for account in found.plain_access_configs:
        for name, value in _facts(account):
            print(f"  {name:<18}: {one_line(str(value))}")
        print()


def _facts(account: PlainAccount) -> list[tuple[str, str]]:
    """Names and values in the order of RocketMQ's tool."""
    names = zip(account.__struct_fields__, account.__struct_encode_fields__, strict=True)
    return [(wire, _text(getattr(account, name))) for name, wire in names]


def _text(value: object) -> str:
    if value is None:
        return ""
    return _java_list(value) if isinstance(value, list) else java_text(value)


def _java_list(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"
