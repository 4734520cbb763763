"""Commands on the policies of ACL 2.0, and on files of users and policies.

createAcl, updateAcl, deleteAcl, getAcl, listAcl, copyAcl; exportAcl, applyAcl.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.admin.access import (
    CUSTOM,
    BadDocument,
    Change,
    acl_of,
    changes,
    exported,
    load_document,
    parse_document,
    resolved_password,
)
from bolide.cli.admin.confirmation import DryRun, Yes
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
from bolide.cli.admin.users import FromBroker, ToBroker, agree_to_lose
from bolide.cli.command_line import FAILED
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.bodies.access import Acl, PolicyEntry

Subject = Annotated[str, typer.Option("-s", "--subject", help="The user, as User:name.")]
Resources = Annotated[
    str,
    typer.Option(
        "-r", "--resources", help="Such as Topic:orders,Group:bill*; separated by commas."
    ),
]
Actions = Annotated[
    str, typer.Option("-a", "--actions", help="Such as Pub,Sub or All; separated by commas.")
]
PolicyDecision = Annotated[str, typer.Option("-d", "--decision", help="Allow or Deny.")]
SourceIps = Annotated[
    str | None,
    typer.Option("-i", "--sourceIp", help="Addresses or ranges, such as 10.0.0.0/8."),
]
OneBroker = Annotated[
    str, typer.Option("-b", "--brokerAddr", help="Address of one broker, host:port.")
]


def create_acl(
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: PolicyDecision,
    sources: SourceIps = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    name_server: NameServer = None,
) -> None:
    """Create policies of a user."""
    acl = _acl(subject, resources, actions, sources, decision)
    change_each(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.policies.create(address, acl),
        "create acl to {} success.",
    )


def update_acl(
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: PolicyDecision,
    sources: SourceIps = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    name_server: NameServer = None,
) -> None:
    """Change policies of a user."""
    acl = _acl(subject, resources, actions, sources, decision)
    change_each(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.policies.update(address, acl),
        "update acl to {} success.",
    )


def delete_acl(
    subject: Subject,
    resource: Annotated[
        str | None,
        typer.Option("-r", "--resources", help="Only the policy about this resource."),
    ] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete a policy of a user, or without -r all of them."""
    agree_to_lose(
        name_server,
        (broker, cluster),
        (f"Delete these policies of {subject}?", subject, resource),
        yes=yes,
        dry_run=dry_run,
        as_document=as_document,
    )
    changed = change_each(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.policies.delete(address, subject, resource),
        None if as_document else "delete acl to {} success.",
    )
    if as_document:
        print_document({"subject": subject, "resource": resource, "brokers": changed})


def get_acl(
    subject: Subject,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the policies of a user."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> list[Acl]:
        found = [
            await admin.policies.find(address, subject)
            for address in await targets(admin, broker, cluster)
        ]
        return [acl for acl in found if acl is not None]

    _show(run(name_server, act), as_document=as_document)


def list_acl(
    subject: Annotated[
        str | None, typer.Option("-s", "--subject", help="Only subjects that contain this.")
    ] = None,
    resource: Annotated[
        str | None, typer.Option("-r", "--resource", help="Only resources that contain this.")
    ] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List policies."""
    found = find_first(
        name_server,
        (broker, cluster),
        lambda admin, address: admin.policies.list(address, subject, resource),
    )
    _show(found or [], as_document=as_document)


def copy_acl(
    source: FromBroker,
    target: ToBroker,
    subjects: Annotated[
        str | None, typer.Option("-s", "--subjects", help="Subjects, separated by commas.")
    ] = None,
    name_server: NameServer = None,
) -> None:
    """Copy policies from a broker to another one."""

    async def act(admin: AdminClient) -> None:
        wanted = set(items(subjects)) if subjects else None
        for acl in await admin.policies.list(source):
            if wanted is None or acl.subject in wanted:
                await admin.policies.update(target, acl)
                print(f"copy acl of {acl.subject} from {source} to {target} success.")

    run(name_server, act)


def export_acl(
    broker: OneBroker,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Write to this file; else print.")
    ] = None,
    name_server: NameServer = None,
) -> None:
    """Write users and policies as YAML; passwords become references to the environment."""
    import yaml  # noqa: PLC0415  other commands start faster without it

    async def act(admin: AdminClient) -> str:
        document = exported(await admin.users.list(broker), await admin.policies.list(broker))
        text: str = yaml.safe_dump(document, sort_keys=False)
        return text

    text = run(name_server, act)
    if file is None:
        print(text, end="")
        return
    file.write_text(text)
    print(f"{file} is written; applyAcl reads the passwords of new users from the environment")


def apply_acl(
    broker: OneBroker,
    file: Annotated[Path, typer.Option("-f", "--file", help="The file, as exportAcl writes it.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    name_server: NameServer = None,
) -> None:
    """Make a broker have the users and policies of a file; other users are left alone."""
    document = _read(file)

    async def act(admin: AdminClient) -> list[Change]:
        wanted = parse_document(document)
        users, acls = await admin.users.list(broker), await admin.policies.list(broker)
        found = list(changes(wanted, users, acls))
        passwords = {
            each.user.username: resolved_password(each.user, os.environ)
            for each in found
            if each.creates
        }
        for each in found:
            print(each.text)
            if not dry_run:
                await _apply(admin, broker, each, passwords)
        return found

    found = run(name_server, act)
    if not found:
        print("nothing to change")
    elif dry_run:
        print(f"{len(found)} changes, none made: --dry-run")


async def _apply(
    admin: AdminClient, broker: str, change: Change, passwords: dict[str, str]
) -> None:
    user = change.user
    name, kind, status = user.username, user.user_type.value, user.user_status.value
    if change.creates:  # with its status: a user to be disabled must not be enabled for a moment
        await admin.users.create(broker, name, passwords[name], kind, status)
    if change.updates:
        await admin.users.update(broker, name, user_type=kind, user_status=status)
    if change.puts is not None:
        policy_type, entry = change.puts
        acl = acl_of(user.subject, policy_type.value, [entry.to_wire()])
        await admin.policies.update(broker, acl)
    if change.deletes is not None:
        policy_type, resource = change.deletes
        await admin.policies.delete(broker, user.subject, str(resource), policy_type.value)


def _read(file: Path) -> object:
    try:
        return load_document(file.read_bytes())
    except OSError as exc:
        typer.echo(f"cannot read {file}: {exc.strerror}", err=True)
    except BadDocument as exc:
        typer.echo(f"{file}: {exc}", err=True)
    raise typer.Exit(FAILED)


def _acl(subject: str, resources: str, actions: str, sources: str | None, decision: str) -> Acl:
    entries = [
        PolicyEntry(
            resource=resource,
            actions=items(actions),
            source_ips=items(sources or "") or None,
            decision=decision,
        )
        for resource in items(resources)
    ]
    return acl_of(subject, CUSTOM, entries)


def _show(acls: list[Acl], *, as_document: bool) -> None:
    if as_document:
        for acl in acls:
            print_document(acl)
        return
    table = Table("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    for acl in acls:
        for policy in acl.policies:
            for entry in policy.entries:
                table.add(
                    acl.subject,
                    policy.policy_type,
                    entry.resource,
                    ",".join(entry.actions),
                    ",".join(entry.source_ips or ["-"]),
                    entry.decision,
                )
    table.print()
