"""Transactions that have not ended: openTransactions, discardedTransactions, resolveTransaction,
resumeTransaction."""

import getpass
import time
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.options import BrokerAddress, ClusterName, Json, NameServer, require_one
from bolide.cli.admin.session import run, targets
from bolide.cli.admin.tables import Table, print_json, time_text
from bolide.protocol.bodies.transactions import OpenTransaction

ProducerGroup = Annotated[
    str | None, typer.Option("-g", "--producerGroup", help="Only those of this group.")
]
OfTopic = Annotated[str | None, typer.Option("-t", "--topic", help="Only those of this topic.")]
HalfId = Annotated[str, typer.Option("-i", "--msgId", help="Id of the half, as the lists show it.")]


def open_transactions(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    group: ProducerGroup = None,
    topic: OfTopic = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """List the transactions that have not ended, with their age and their producers."""
    require_one(broker, cluster)
    found = run(
        name_server,
        lambda admin: _found(admin, broker, cluster, group, topic, set_aside=False),
    )
    _show(found, as_json, is_open=True)


def discarded_transactions(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    group: ProducerGroup = None,
    topic: OfTopic = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """List the transactions whose producers were asked too often."""
    require_one(broker, cluster)
    found = run(
        name_server,
        lambda admin: _found(admin, broker, cluster, group, topic, set_aside=True),
    )
    _show(found, as_json, is_open=False)


def resolve_transaction(
    half: HalfId,
    commit: Annotated[
        bool | None, typer.Option("--commit/--rollback", help="Deliver the message, or forget it.")
    ] = None,
    broker: BrokerAddress = None,
    by: Annotated[
        str | None,
        typer.Option("--by", help="Who decides; the user of this computer if not given."),
    ] = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """End a transaction in its producer's place."""
    if commit is None:
        raise typer.BadParameter("say how it ends: --commit delivers, --rollback forgets it")
    who = by or getpass.getuser()

    async def act(admin: AdminClient) -> None:
        await admin.transactions.resolve(half, commit=commit, by=who, address=broker)
        if as_json:
            print_json({"msgId": half, "committed": commit, "by": who})
        else:
            print(f"{half} is {'committed' if commit else 'rolled back'}")

    run(name_server, act)


def resume_transaction(
    half: HalfId,
    broker: BrokerAddress = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Have the producers of a discarded transaction asked again."""

    async def act(admin: AdminClient) -> None:
        await admin.transactions.resume(half, address=broker)
        if as_json:
            print_json({"msgId": half, "resumed": True})
        else:
            print(f"the producers of {half} are asked again")

    run(name_server, act)


async def _found(
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


def _show(found: list[OpenTransaction], as_json: bool, *, is_open: bool) -> None:
    """Those that are open also tell when their producers are asked next."""
    if as_json:
        for each in found:
            print_json(each)
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
