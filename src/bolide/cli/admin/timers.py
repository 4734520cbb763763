"""Messages that wait for their time: listTimers, recallMessage."""

from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.options import BrokerAddress, ClusterName, Json, NameServer, require_one
from bolide.cli.admin.session import run, targets
from bolide.cli.admin.tables import Table, print_json, time_text
from bolide.protocol.bodies.timers import PendingTimer

OfTopic = Annotated[str, typer.Option("-t", "--topic", help="Only those of this topic.")]


def list_timers(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    topic: OfTopic = "",
    count: Annotated[
        int, typer.Option("-m", "--max", min=1, help="How many of each broker to show at most.")
    ] = 100,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """List the messages that wait for their time."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        found: list[PendingTimer] = []
        for address in await targets(admin, broker, cluster):
            left = count
            async for each in admin.timers.each(address, topic):
                found.append(each)
                left -= 1
                if not left:
                    break
        _show(found, as_json=as_json)

    run(name_server, act)


def recall_message(
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic of the messages.")],
    key: Annotated[str, typer.Option("-k", "--key", help="A word of their keys, or a unique id.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Take back messages that wait for their time: they are not delivered."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        found: list[PendingTimer] = []
        for address in await targets(admin, broker, cluster):
            found += await admin.timers.recall(address, topic, key)
        _show(found, as_json=as_json)
        if not found:
            typer.echo(f"no message of {topic} waits with {key}", err=True)
            raise typer.Exit(1)

    run(name_server, act)


def _show(found: list[PendingTimer], *, as_json: bool) -> None:
    if as_json:
        for each in found:
            print_json(each)
        return
    table = Table("#Due", "Topic", "Id", "Keys", "Bytes")
    for each in found:
        table.add(
            time_text(each.deliver_ms), each.topic, each.message_id, each.keys or "-", each.size
        )
    table.print()
