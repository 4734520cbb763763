"""`bolide export` and `bolide apply`: a cluster as one YAML document, and back.

Exit codes of `apply`: 0 done or nothing to do, 1 refused, failed, or, with --check, a difference;
2 the file cannot be used, 3 a server is unreachable.
"""

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bolide.admin import AdminClient
from bolide.admin.consequences import GroupDeletion, TopicDeletion
from bolide.admin.declared.changes import Action, Change, Plan, PlanRefused, summary
from bolide.admin.declared.cluster import read_cluster
from bolide.admin.declared.document import BrokerState, Document, declare, read_document, to_yaml
from bolide.admin.declared.execution import Outcome, carry_out
from bolide.admin.declared.fields import Kind
from bolide.admin.declared.losses import Losses, losses_of
from bolide.admin.declared.planning import divergences, plan
from bolide.admin.errors import AdminError
from bolide.cli.admin.common_options import add_common_options
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.credentials import own_credentials
from bolide.cli.admin.output import time_text
from bolide.cli.admin.progress import progress_bar
from bolide.cli.admin.session import AsDocument, NameServer, exit_code_of, items, reason_of, run
from bolide.cli.command_line import FAILED, fail, program_name
from bolide.cli.documents import print_document
from bolide.cli.tls_options import add_tls_options
from bolide.errors import BolideError
from bolide.logs import one_line

_NOTHING_LOST: Losses = {}
_STANDARD_STREAM = Path("-")
_NOTHING = "nothing to do: the cluster is as the file says"
_SECTIONS = ", ".join(Kind)
_VERBS = {Action.CREATE: "create", Action.CHANGE: "change", Action.DELETE: "delete"}


def export_cluster(
    cluster: Annotated[
        str | None,
        typer.Option("-c", "--clusterName", help="The cluster; needed if there are several."),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help=f"Some of {_SECTIONS}; separated by commas.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("-o", "--file", help="Write to this file, mode 0600; - or none prints."),
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Write topics, groups, users and policies of a cluster as one YAML document.

    System topics, retry and dead-letter topics are left out, and so are passwords: references to
    the environment stand for them.
    """
    kinds = _kinds(only)
    if as_document and file not in {None, _STANDARD_STREAM}:
        raise typer.BadParameter("-o writes the YAML document: give either it or --output")

    async def act(admin: AdminClient) -> tuple[str, list[BrokerState]]:
        name = await _cluster(admin, cluster)
        return name, await read_cluster(admin, name, kinds)

    name, states = run(name_server, act)
    document = declare(states, name, kinds)
    if only is not None and (lacking := [each for each in kinds if each.value not in document]):
        _refuse_missing(lacking[0], states)
    _report(divergences(states))
    _report_left_out(states)
    if as_document:
        print_document(document)
    elif file is None or file == _STANDARD_STREAM:
        sys.stdout.write(to_yaml(document))
    else:
        _write(file, to_yaml(document))
        counts = (f"{len(document[kind.value])} {kind}" for kind in kinds if kind in document)
        print(f"{file} is written: {', '.join(counts)}")


def apply_file(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The document; - reads it from standard input."),
    ],
    cluster: Annotated[
        str | None,
        typer.Option("-c", "--clusterName", help="The cluster; by default that of the file."),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete what the sections of the file do not name."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 if something would.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on with other changes if one fails.")
    ] = False,
    allow_lock_out: Annotated[
        bool,
        typer.Option(
            "--allow-lock-out",
            help="Also disable or demote the user that signs, or the last super user.",
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Make a cluster have the topics, groups, users and policies of a file.

    The difference is shown first. Everything is validated before anything is changed; changes stop
    at the first failure, and applying again goes on from there.
    """
    if file == _STANDARD_STREAM and not (yes or dry_run or check):
        raise typer.BadParameter("a file from standard input needs --yes, --dry-run or --check")
    document = _read(file)

    async def compare(admin: AdminClient) -> tuple[str, Plan]:
        name = await _cluster(admin, cluster or document.cluster)
        found = await _plan(admin, name, document, prune=prune, allow_lock_out=allow_lock_out)
        return name, found

    name, found = run(name_server, _explaining(compare))
    _report(found.warnings)
    lost: Losses = {}
    deletes = any(each.action is Action.DELETE for each in found.changes)
    if deletes and (check or dry_run or not yes):
        lost = run(name_server, lambda admin: losses_of(admin, found))
    plan_document = _plan_document(name, found, lost)
    if not found.changes:
        print_document(plan_document) if as_document else print(_NOTHING)
        return
    effect = _difference(found, lost)
    if check:
        print_document(plan_document) if as_document else print(effect)
        raise typer.Exit(FAILED)
    if yes and not dry_run and not as_document:
        print(effect)
    confirm(
        f"Apply to cluster {name}?", effect, plan_document,
        yes=yes, dry_run=dry_run, as_document=as_document,
    )  # fmt: skip
    if not yes:
        found = _as_agreed(found, run(name_server, _explaining(compare))[1])
    outcome = _carry_out(name_server, name, found, keep_going=keep_going)
    if as_document:
        failed = [
            {"object": _object(each), "reason": reason_of(exc)} for each, exc in outcome.failed
        ]
        print_document(plan_document | {"done": len(outcome.done), "failed": failed})
    _end(outcome, len(found.changes), as_document=as_document)
    if found.is_locked_out:
        _report(["the cluster is not compared again: who signed may not do that any more"])
    else:
        _verify(name_server, name, document, prune=prune)


def load() -> dict[str, Any]:
    """The commands, by name."""
    app = typer.Typer(rich_markup_mode=None)
    example = "\b\nExample: bolide {} -n 127.0.0.1:9876 {}"
    app.command("export", epilog=example.format("export", "-o cluster.yml"))(export_cluster)
    app.command("apply", epilog=example.format("apply", "cluster.yml --dry-run"))(apply_file)
    found = dict(typer.main.get_group(app).commands)
    for command in found.values():
        add_common_options(command, repeats=False)
    return add_tls_options(found)


def _as_agreed(agreed: Plan, now: Plan) -> Plan:
    """The plan for the cluster of now, which is to show what was agreed to; else the program ends.

    A broker is sent all fields of an object, so those that the operator does not see are of now.
    """
    if _shown(now) != _shown(agreed):
        print(_difference(now) if now.changes else _NOTHING, file=sys.stderr)
        _report(now.warnings)
        fail("nothing was changed: the cluster changed meanwhile; apply again", FAILED)
    return now


def _shown(found: Plan) -> object:
    changes = summary(found.changes)
    heads = [(each.action, each.kind, each.name, brokers) for each, brokers in changes]
    return heads, [each.differences for each, _ in changes], found.warnings


def _carry_out(name_server: str | None, cluster: str, found: Plan, *, keep_going: bool) -> Outcome:
    with progress_bar("Applying", len(found.changes)) as advance:

        async def act(admin: AdminClient) -> Outcome:
            return await carry_out(
                admin, cluster, found.changes, keep_going=keep_going,
                on_done=lambda _: advance(1),
            )  # fmt: skip

        return run(name_server, act)


def _end(outcome: Outcome, count: int, *, as_document: bool) -> None:
    """Say what was done; a failure ends the program."""
    for change, exc in outcome.failed:
        print(f"{program_name()}: {_object(change)}: {reason_of(exc)}", file=sys.stderr)
    if outcome.failed:
        fail(
            f"{len(outcome.done)} of {count} changes are made, {len(outcome.failed)} failed,"
            f" {len(outcome.left)} were not tried; apply again to go on",
            exit_code_of(outcome.failed[0][1]),
        )
    if not as_document:
        print("1 change is made" if count == 1 else f"{count} changes are made")


def _verify(name_server: str | None, cluster: str, document: Document, *, prune: bool) -> None:
    """Compare again: a broker may ignore what it does not know."""

    async def act(admin: AdminClient) -> Plan:
        return await _plan(admin, cluster, document, prune=prune)

    left = run(name_server, _explaining(act)).changes
    if left:
        print(_difference(Plan(left)), file=sys.stderr)
        fail("these differences remain, though the brokers took the changes", FAILED)


async def _plan(
    admin: AdminClient,
    cluster: str,
    document: Document,
    *,
    prune: bool,
    allow_lock_out: bool = False,
) -> Plan:
    states = await read_cluster(admin, cluster, document.kinds)
    own, _ = own_credentials()
    return plan(
        document, states, prune=prune, own_name=own, environment=os.environ,
        allow_lock_out=allow_lock_out,
    )  # fmt: skip


def _explaining(act: Any) -> Any:
    """Have every problem of a refused plan printed."""

    async def explain(admin: AdminClient) -> Any:
        try:
            return await act(admin)
        except PlanRefused as exc:
            for problem in exc.problems[1:]:
                print(f"{program_name()}: {one_line(problem)}", file=sys.stderr)
            raise

    return explain


async def _cluster(admin: AdminClient, wanted: str | None) -> str:
    if wanted is not None:
        return wanted
    known = sorted((await admin.clusters.info()).cluster_addr_table)
    if len(known) != 1:
        names = ", ".join(known) or "none"
        raise AdminError(f"name a cluster with -c: the name server knows {names}")
    return known[0]


def _kinds(only: str | None) -> list[Kind]:
    if only is None:
        return [*Kind]
    words = items(only)
    for word in words:
        if word not in {*Kind}:
            raise typer.BadParameter(f"--only {word}: it is one of {_SECTIONS}")
    return [kind for kind in Kind if kind in words]


def _refuse_missing(kind: Kind, states: list[BrokerState]) -> NoReturn:
    reasons = {state.missing[kind] for state in states if kind in state.missing}
    fail(f"no broker has {kind.value}: {one_line('; '.join(sorted(reasons)))}", FAILED)


def _report(warnings: tuple[str, ...] | list[str]) -> None:
    for warning in warnings:
        print(f"{program_name()}: warning: {one_line(warning)}", file=sys.stderr)


def _report_left_out(states: list[BrokerState]) -> None:
    left_out = {
        (kind, name): reason
        for state in states
        for kind, names in state.kept.items()
        for name, reason in names.items()
    }
    _report([
        f"{kind.noun} {name} is left out: {reason}" for (kind, name), reason in left_out.items()
    ])  # fmt: skip


def _read(file: Path) -> Document:
    try:
        data = sys.stdin.buffer.read() if file == _STANDARD_STREAM else file.read_bytes()
        return read_document(data, _name(file))
    except BolideError as exc:
        fail(reason_of(exc), exit_code_of(exc))


def _name(file: Path) -> str:
    return "standard input" if file == _STANDARD_STREAM else str(file)


def _write(file: Path, text: str) -> None:
    """Replace a file as a whole; what is no regular file, such as a pipe, is written to.

    A symbolic link stays one, to the new file.
    """
    if file.exists() and not file.is_file():  # first: /dev/stdout resolves to no path
        file.write_bytes(text.encode())
        return
    real = file.resolve()
    number, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")  # mode 0600
    aside = Path(name)
    try:
        with os.fdopen(number, "wb") as out:
            out.write(text.encode())
        aside.replace(real)
    except BaseException:
        aside.unlink()
        raise


# ---- a plan for people and for programs


def _difference(found: Plan, lost: Losses = _NOTHING_LOST) -> str:
    lines = []
    for change, brokers in summary(found.changes):
        gone = ", with its messages" if _loses_messages(change) else ""
        places = ", ".join(brokers)
        lines.append(f"{change.action.mark} {change.kind.noun} {change.name} ({places}){gone}")
        if change.action is Action.DELETE:
            lines += [f"    {each}" for each in _loss(lost.get((change.kind, change.name)))]
        is_new = change.action is Action.CREATE
        for each in change.differences:
            if not (is_new and each.is_default):
                old = "" if is_new else f"{each.old or '-'} -> "
                lines.append(f"    {each.field}: {old}{each.new or '-'}")
    counts = Counter(
        action for action, *_ in {(each.action, each.kind, each.name) for each in found.changes}
    )
    lines += ["", ", ".join(f"{counts[each]} to {_VERBS[each]}" for each in Action if counts[each])]
    return "\n".join(map(one_line, lines))


def _loses_messages(change: Change) -> bool:
    return change.action is Action.DELETE and change.kind is Kind.TOPICS


def _loss(found: TopicDeletion | GroupDeletion | None) -> list[str]:
    match found:
        case TopicDeletion():
            written = time_text(found.last_write_ms) if found.last_write_ms > 0 else "never"
            text = f"{found.messages} messages in {found.queues} queues, last write {written}"
            groups = [
                f"group {each.group}: backlog {each.backlog}, {each.members} members online"
                for each in found.groups
            ]
            return [text, *(groups or ["no group consumes it"])]
        case GroupDeletion():
            backlogs = [f"backlog {each.backlog} of topic {each.topic}" for each in found.topics]
            return [f"{found.members} members online", *(backlogs or ["it has consumed nothing"])]
        case None:
            return []


def _loss_document(found: TopicDeletion | GroupDeletion | None) -> dict[str, Any]:
    match found:
        case TopicDeletion():
            groups = [
                {"group": each.group, "members": each.members, "backlog": each.backlog}
                for each in found.groups
            ]
            return {
                "queues": found.queues,
                "messages": found.messages,
                "lastWrite": found.last_write_ms,
                "groups": groups,
            }
        case GroupDeletion():
            topics = [{"topic": each.topic, "backlog": each.backlog} for each in found.topics]
            return {"members": found.members, "topics": topics}
        case None:
            return {}


def _plan_document(cluster: str, found: Plan, lost: Losses) -> dict[str, Any]:
    """A row for each field, and for each object to be deleted."""
    rows: list[dict[str, Any]] = []
    for change, brokers in summary(found.changes):
        head: dict[str, Any] = {
            "action": change.action.value,
            "kind": change.kind.noun,
            "name": change.name,
            "brokers": brokers,
        }
        if change.action is Action.DELETE:
            loss = _loss_document(lost.get((change.kind, change.name)))
            rows.append(head | {"field": None, "old": None, "new": None} | loss)
            continue
        rows += [
            head | {"field": each.field, "old": each.old, "new": each.new}
            for each in change.differences
        ] or [head | {"field": None, "old": None, "new": None}]
    return {"cluster": cluster, "changes": rows, "warnings": [*found.warnings]}


def _object(change: Change) -> str:
    return f"{change.kind.noun} {change.name} at {change.broker}"
