"""Which queues an ordered topic has, as name servers tell producers: updateOrderConf."""

from typing import Annotated, Literal

import typer

from bolide.admin import AdminClient
from bolide.admin.errors import AdminError
from bolide.cli.admin.options import Json, NameServer, Topic
from bolide.cli.admin.session import run
from bolide.cli.admin.tables import print_json


def update_order_conf(
    topic: Topic,
    method: Annotated[
        Literal["put", "get", "delete"], typer.Option("-m", "--method", help="What to do.")
    ],
    value: Annotated[
        str | None, typer.Option("-v", "--orderConf", help="With put: broker:queues;broker:queues")
    ] = None,
    as_json: Json = False,
    name_server: NameServer = None,
) -> None:
    """Set, show or delete the order configuration of a topic.

    Name servers with orderMessageEnable tell producers these queues and no others.
    """
    queues = _parsed(value or "") if method == "put" else {}

    async def act(admin: AdminClient) -> str | None:
        if method == "put":
            return await admin.name_servers.put_order_conf(topic, queues)
        if method == "get":
            return await _require(admin, topic)
        await admin.name_servers.delete_order_conf(topic)
        return None

    conf = run(name_server, act)
    if as_json:
        print_json({"topic": topic, "method": method, "orderConf": conf})
    elif method == "delete":
        print(f"delete orderConf success. topic=[{topic}]")
    else:
        done = "get" if method == "get" else "update"
        print(f"{done} orderConf success. topic=[{topic}], orderConf=[{conf}]")


async def _require(admin: AdminClient, topic: str) -> str:
    found = await admin.name_servers.find_order_conf(topic)
    if found is None:
        raise AdminError(f"topic {topic!r} has no order configuration; -m put sets one")
    return found


def _parsed(text: str) -> dict[str, int]:
    """`{"broker-a": 4}` of `broker-a:4`; raises a usage error."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        broker, _, count = part.rpartition(":")
        if not broker or not count.isdecimal() or not int(count):
            raise typer.BadParameter(f"-v {part!r} is not broker:queues")
        found[broker] = int(count)
    if not found:
        raise typer.BadParameter("-m put needs -v broker:queues;broker:queues")
    return found
