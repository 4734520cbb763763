"""Commands on messages a broker holds back.

Timers: listTimers, recallMessage. Transactions: openTransactions, discardedTransactions,
resolveTransaction, resumeTransaction.
"""

import getpass
import time
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.each_server import answers_of
from bolide.cli.admin.output import time_text
from bolide.cli.admin.progress import print_cut
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    require_one,
    run,
    targets,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.bodies.timers import PendingTimer
from bolide.protocol.bodies.transactions import OpenTransaction

TimerTopic = Annotated[str, typer.Option("-t", "--topic", help="Only this topic.")]
ProducerGroup = Annotated[
    str | None, typer.Option("-g", "--producerGroup", help="Only this group.")
]
TransactionTopic = Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")]
HalfId = Annotated[str, typer.Option("-i", "--msgId", help="Id of the half message, as listed.")]


def list_timers(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    topic: TimerTopic = "",
    count: Annotated[
        int, typer.Option("-m", "--max", min=1, help="Maximum number of timers per broker.")
    ] = 100,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List pending timer messages."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        found: list[PendingTimer] = []
        is_cut = False
        for address in await targets(admin, broker, cluster):
            left = count
            async for each in admin.timers.each(address, topic):
                if not left:
                    is_cut = True
                    break
                found.append(each)
                left -= 1
        _show_timers(found, as_document=as_document)
        if is_cut:
            print_cut(len(found), "timers, those due first", f"-m {count * 10} shows more")

    run(name_server, act)


def recall_message(
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic of the messages.")],
    key: Annotated[str, typer.Option("-k", "--key", help="Key or unique id of the messages.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Recall pending timer messages, so that they are not delivered."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        addresses = await targets(admin, broker, cluster)
        if not yes or dry_run:
            await _confirm_recall(admin, addresses, topic, key,
                                  dry_run=dry_run, as_document=as_document)  # fmt: skip
        recalled = await answers_of(
            addresses, lambda address: admin.timers.recall(address, topic, key), changes=True
        )
        found = [each for part in recalled.values() for each in part]
        _show_timers(found, as_document=as_document)
        if not found and len(recalled) == len(addresses):
            typer.echo(f"no message of {topic} waits with {key}", err=True)
            raise typer.Exit(1)

    run(name_server, act)


async def _confirm_recall(
    admin: AdminClient,
    addresses: list[str],
    topic: str,
    key: str,
    *,
    dry_run: bool,
    as_document: bool,
) -> None:
    """Show the timers that have the key, which the broker finds by its index, and ask."""
    found = [
        each
        for address in addresses
        async for each in admin.timers.each(address, topic)
        if key == each.message_id or key in each.keys.split()
    ]
    confirm(
        f"Recall {len(found)} messages of {topic}?",
        _timer_table(found) if found else f"no message of {topic} waits with {key}",
        found,
        yes=False,
        dry_run=dry_run,
        as_document=as_document,
    )


def _show_timers(found: list[PendingTimer], *, as_document: bool) -> None:
    if as_document:
        for each in found:
            print_document(each)
    else:
        _timer_table(found).print()


def _timer_table(found: list[PendingTimer]) -> Table:
    table = Table("#Due", "Topic", "Id", "Keys", "Bytes")
    for each in found:
        due = time_text(each.deliver_ms)
        table.add(due, each.topic, each.message_id, each.keys or "-", each.size)
    return table


def open_transactions(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    group: ProducerGroup = None,
    topic: TransactionTopic = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List open transactions with their age and producer group."""
    require_one(broker, cluster)
    found = run(
        name_server,
        lambda admin: _list_transactions(admin, broker, cluster, group, topic, set_aside=False),
    )
    _show_transactions(found, as_document, is_open=True)


def discarded_transactions(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    group: ProducerGroup = None,
    topic: TransactionTopic = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """List transactions that were set aside after too many check-backs."""
    require_one(broker, cluster)
    found = run(
        name_server,
        lambda admin: _list_transactions(admin, broker, cluster, group, topic, set_aside=True),
    )
    _show_transactions(found, as_document, is_open=False)


def resolve_transaction(
    half: HalfId,
    commit: Annotated[
        bool | None, typer.Option("--commit/--rollback", help="Deliver or discard the message.")
    ] = None,
    broker: BrokerAddress = None,
    by: Annotated[
        str | None,
        typer.Option("--by", help="Who decides; by default, the current user."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Commit or roll back a transaction in place of its producer."""
    if commit is None:
        raise typer.BadParameter(
            "give --commit to deliver the message, or --rollback to discard it"
        )
    who = by or getpass.getuser()
    effect = (
        f"consumers receive the message of {half}"
        if commit
        else f"the message of {half} is discarded: nobody receives it"
    )
    planned = {"msgId": half, "committed": commit, "by": who}
    question = f"{'Commit' if commit else 'Roll back'} the transaction?"
    confirm(question, effect, planned, yes=yes, dry_run=dry_run, as_document=as_document)

    async def act(admin: AdminClient) -> None:
        await admin.transactions.resolve(half, commit=commit, by=who, address=broker)
        if as_document:
            print_document(planned)
        else:
            print(f"{half} is {'committed' if commit else 'rolled back'}")

    run(name_server, act)


def resume_transaction(
    half: HalfId,
    broker: BrokerAddress = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Resume the check-back of a transaction that was set aside."""

    async def act(admin: AdminClient) -> None:
        await admin.transactions.resume(half, address=broker)
        if as_document:
            print_document({"msgId": half, "resumed": True})
        else:
            print(f"the producers of {half} are asked again")

    run(name_server, act)


async def _list_transactions(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str | None,
    topic: str | None,
    *,
    set_aside: bool,
) -> list[OpenTransaction]:
    return [
        each
        for address in await targets(admin, broker, cluster)
        async for each in admin.transactions.each(
            address, set_aside=set_aside, group=group, topic=topic
        )
    ]


def _show_transactions(found: list[OpenTransaction], as_document: bool, *, is_open: bool) -> None:
    """Print transactions; open ones with the time of their next check-back."""
    if as_document:
        for each in found:
            print_document(each)
        return
    titles = ("#Age s", "Producer Group", "Topic", "Keys", "Asked")
    table = Table(*titles, *(("Asked Next",) if is_open else ()), "Id")
    for each in found:
        next_check = (time_text(each.next_check, millis=False),) if is_open else ()
        table.add(*_facts(each), each.check_times, *next_check, each.msg_id)
    table.print()


def _facts(each: OpenTransaction) -> tuple[object, ...]:
    age = max(time.time() - each.began / 1000, 0)
    return f"{age:.0f}", each.producer_group, each.topic, each.keys or "-"
