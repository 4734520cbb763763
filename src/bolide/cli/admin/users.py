"""Commands on the users of ACL 2.0, and on one's own permissions.

createUser, updateUser, deleteUser, getUser, listUser, copyUser; whoami, can-i.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec
import typer

from bolide.admin import AdminClient
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.credentials import changed_secret, new_secret
from bolide.cli.admin.each_server import change_each
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    find_first,
    items,
    require_one,
    run,
    targets,
)
from bolide.cli.command_line import FAILED
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.bodies.access import Acl, User

NEW_PASSWORD = "BOLIDE_USER_PASSWORD"  # noqa: S105  the name of a variable
_PASSWORD = "Password"  # noqa: S105  the name of a prompt

Username = Annotated[str, typer.Option("-u", "--username", help="Name of the user.")]
NewPassword = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--password",
        help=f"Its password; safer from {NEW_PASSWORD}, or typed, which other users do not see.",
    ),
]
FromBroker = Annotated[str, typer.Option("-f", "--fromBroker", help="Broker to copy from.")]
ToBroker = Annotated[str, typer.Option("-t", "--toBroker", help="Broker to copy to.")]


def create_user(
    username: Username,
    password: NewPassword = None,
    user_type: Annotated[
        str | None, typer.Option("-t", "--userType", help="Super or Normal, the default.")
    ] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    name_server: NameServer = None,
) -> None:
    """Create a user."""
    require_one(broker, cluster)
    secret = new_secret(password, NEW_PASSWORD, _PASSWORD)
    change_each(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.users.create(address, username, secret, user_type),
        "create user to {} success.",
    )


def update_user(
    username: Username,
    password: Annotated[
        str | None,
        typer.Option("-p", "--password", help="New password; safer with --newPassword."),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option("--newPassword", help=f"Ask for a password, unless {NEW_PASSWORD} has it."),
    ] = False,
    user_type: Annotated[
        str | None, typer.Option("-t", "--userType", help="Super or Normal.")
    ] = None,
    user_status: Annotated[
        str | None, typer.Option("-s", "--userStatus", help="enable or disable.")
    ] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    name_server: NameServer = None,
) -> None:
    """Change password, type or status of a user."""
    require_one(broker, cluster)
    secret = changed_secret(password, NEW_PASSWORD, _PASSWORD, asked=ask)
    if secret is None and user_type is None and user_status is None:
        raise typer.BadParameter("give a new password (--newPassword), -t or -s")
    change_each(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.users.update(
            address, username, password=secret, user_type=user_type, user_status=user_status
        ),
        "update user to {} success.",
    )


def delete_user(
    username: Username,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete a user and its policies."""
    agree_to_lose(
        name_server,
        (broker, cluster),
        (f"Delete user {username}?", f"User:{username}", None),
        yes=yes,
        dry_run=dry_run,
        as_document=as_document,
    )
    changed = change_each(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.users.delete(address, username),
        None if as_document else "delete user to {} success.",
    )
    if as_document:
        print_document({"username": username, "brokers": changed})


def get_user(
    username: Username,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show a user; a Bolide broker never tells its password."""
    found = find_first(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.users.find(address, username),
    )
    if found is None:
        typer.echo(f"there is no user {username}", err=True)
        raise typer.Exit(FAILED)
    _show([found], as_document=as_document)


def list_user(
    name_filter: Annotated[
        str | None, typer.Option("-f", "--filter", help="Only names that contain this.")
    ] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List users; a Bolide broker never tells their passwords."""
    found = find_first(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.users.list(address, name_filter),
    )
    _show(found or [], as_document=as_document)


def copy_user(
    source: FromBroker,
    target: ToBroker,
    usernames: Annotated[
        str | None, typer.Option("-u", "--usernames", help="Names, separated by commas.")
    ] = None,
    name_server: NameServer = None,
) -> None:
    """Copy users from a broker to another one, new ones only if their broker tells passwords."""

    async def act(admin: AdminClient) -> bool:
        missing = False
        for user in await _users_of(admin, source, usernames):
            name = user.username or ""
            if await admin.users.find(target, name) is not None:
                await admin.users.update(
                    target,
                    name,
                    password=user.password or None,
                    user_type=user.user_type,
                    user_status=user.user_status,
                )
            elif user.password:
                await admin.users.create(
                    target, name, user.password, user.user_type, user.user_status
                )
            else:
                missing = True
                text = f"{name} is not copied: {source} does not tell its password; use createUser"
                typer.echo(text, err=True)
                continue
            print(f"copy user of {name} from {source} to {target} success.")
        return missing

    if run(name_server, act):
        raise typer.Exit(FAILED)


def who_am_i(
    broker: BrokerAddress = None, as_document: AsDocument = False, name_server: NameServer = None
) -> None:
    """Show whom a broker, or without -b a NameServer, takes you for."""
    found = run(name_server, lambda admin: admin.permissions.who_am_i(broker))
    if as_document:
        print_document(found)
        return
    name = found.access_key or "anonymous"
    control = "no access control" if found.access_control == "none" else found.access_control
    print(f"{name} at {found.peer}, {found.power} ({control})")


def can_i(
    resource: Annotated[
        str, typer.Option("-r", "--resource", help="For example Topic:orders or Group:billing.")
    ],
    actions: Annotated[
        str,
        typer.Option("-a", "--action", help="Such as Pub or Pub,Sub; all of them are asked for."),
    ],
    broker: Annotated[
        str, typer.Option("-b", "--brokerAddr", help="Address of one broker, host:port.")
    ],
    username: Annotated[
        str | None,
        typer.Option("-u", "--username", help="Another user; only administrators may ask."),
    ] = None,
    source: Annotated[
        str | None, typer.Option("-i", "--sourceIp", help="Another address to come from.")
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show whether you, or another user, may do something; exit code 1 if not."""
    found = run(
        name_server,
        lambda admin: admin.permissions.can_i(
            broker, resource, actions, username=username, source=source
        ),
    )
    if as_document:
        print_document(found)
    else:
        reason = f": {found.reason}" if found.reason else ""
        print(("yes" if found.allowed else "no") + reason)
    if not found.allowed:
        raise typer.Exit(FAILED)


def agree_to_lose(
    name_server: str | None,
    brokers: tuple[str | None, str | None],
    asked: tuple[str, str, str | None],
    *,
    yes: bool,
    dry_run: bool,
    as_document: bool,
) -> None:
    """Show the permissions that a deletion takes away, and ask.

    Args:
        name_server: the value of -n.
        brokers: the values of -b and -c, of which exactly one must be given.
        asked: the question, the subject, and the resource if only its policy goes.
        yes: not to ask.
        dry_run: only to show.
        as_document: to show a document.
    """
    broker, cluster = brokers
    require_one(broker, cluster)
    if yes and not dry_run:
        return
    question, subject, resource = asked

    async def look(admin: AdminClient) -> dict[str, list[Acl]]:
        addresses = await targets(admin, broker, cluster, slaves=True)
        found = {each: await admin.policies.list(each, subject) for each in addresses}
        return {at: [acl for acl in acls if acl.subject == subject] for at, acls in found.items()}

    table = Table("#Broker", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    rows: list[dict[str, object]] = []
    for address, acls in run(name_server, look).items():
        policies = [policy for acl in acls for policy in acl.policies]
        entries = [(policy.policy_type, entry) for policy in policies for entry in policy.entries]
        for policy_type, entry in entries:
            if resource not in {None, entry.resource}:
                continue
            actions, sources = ",".join(entry.actions), ",".join(entry.source_ips or ["-"])
            table.add(address, policy_type, entry.resource, actions, sources, entry.decision)
            place: dict[str, object] = {"brokerAddr": address, "policyType": policy_type}
            rows.append(place | msgspec.to_builtins(entry))
    effect = table if rows else f"{subject} loses no permission: it has no such policy"
    confirm(question, effect, rows, yes=yes, dry_run=dry_run, as_document=as_document)


async def _users_of(admin: AdminClient, address: str, usernames: str | None) -> Iterable[User]:
    if usernames is None:
        return await admin.users.list(address)
    found = [await admin.users.find(address, name) for name in items(usernames)]
    return [user for user in found if user is not None]


def _show(users: list[User], *, as_document: bool) -> None:
    if as_document:
        for user in users:
            print_document(msgspec.structs.replace(user, password=None))
        return
    table = Table("#UserName", "#Password", "#UserType", "#UserStatus")
    for user in users:  # RocketMQ's brokers tell passwords
        table.add(user.username, "***" if user.password else "-", user.user_type, user.user_status)
    table.print()
