"""How groups get their messages: setConsumeMode."""

from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.options import (
    BrokerAddress,
    ClusterName,
    Group,
    Json,
    NameServer,
    require_one,
)
from bolide.cli.admin.session import run, targets
from bolide.cli.admin.tables import print_json
from bolide.protocol.bodies.pop import RequestMode


def set_consume_mode(
    topic: Annotated[str, typer.Option("-t", "--topicName", help="Name of the topic.")],
    group: Group,
    mode: Annotated[RequestMode, typer.Option("-m", "--mode", help="How they get messages.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    share: Annotated[
        int,
        typer.Option(
            "-q", "--popShareQueueNum", help="Members that share queues when popping; 0 is all."
        ),
    ] = 0,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Have a group's consumers that ask brokers for their queues pull or pop."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        addresses = await targets(admin, broker, cluster)
        for address in addresses:
            await admin.pop.set_mode(address, topic, group, mode, share)
            if not as_json:
                print(f"set consume mode to {address} success.")
        if as_json:
            facts = {"topic": topic, "group": group, "mode": mode, "popShareQueueNum": share}
            print_json({"brokers": addresses, **facts})
        else:
            said = f"consume mode[{mode}] popShareQueueNum[{share}]"
            print(f"topic[{topic}] group[{group}] {said}")

    run(name_server, act)
