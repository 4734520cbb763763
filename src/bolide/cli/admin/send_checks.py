"""Sends that measure: sendMsgStatus, clusterRT.

Every broker has a topic of its own name for that, whose messages nobody consumes.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.admin import AdminClient, ClusterNotFound
from bolide.cli.admin.output import java_text
from bolide.cli.admin.sending import LARGEST_BODY, producer_of
from bolide.cli.admin.session import AsDocument, NameServer, Switch, is_true, pass_over, run
from bolide.cli.admin.times import check_seconds
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.errors import BolideError
from bolide.logs import one_line
from bolide.model.message import Message

if TYPE_CHECKING:
    from bolide.client.producer.producer import Producer
    from bolide.client.producer.results import SendResult

_FIRST_SIZE = 16


def send_msg_status(
    broker_name: Annotated[
        str,
        typer.Option("-b", "--brokerName", help="Name of the broker, whose own topic is written."),
    ],
    size: Annotated[
        int,
        typer.Option("-s", "--messageSize", min=1, max=LARGEST_BODY, help="Bytes of each message."),
    ] = 128,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Number of messages.")] = 50,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Send messages to a broker and show how long each takes."""

    async def act(admin: AdminClient) -> None:
        async with producer_of(admin) as producer:
            await producer.send(Message(broker_name, b"a" * _FIRST_SIZE))
            for _ in range(count):
                begin = time.perf_counter()
                result = await producer.send(Message(broker_name, b"a" * size))
                elapsed = int((time.perf_counter() - begin) * 1000)
                if as_document:
                    print_document({"rt": elapsed} | _document(result))
                else:
                    print(one_line(f"rt={elapsed}ms, SendResult={_result_text(result)}"))

    run(name_server, act)


def _document(result: "SendResult") -> dict[str, object]:
    return {
        "sendStatus": result.status.name,
        "messageId": result.message_id,
        "offsetMessageId": result.offset_message_id,
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
    }


def _result_text(result: "SendResult") -> str:
    queue = result.queue
    return (
        f"SendResult [sendStatus={result.status.name}, msgId={result.message_id}, "
        f"offsetMsgId={result.offset_message_id}, messageQueue=MessageQueue "
        f"[topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}], "
        f"queueOffset={result.queue_offset}, recallHandle={java_text(result.recall_handle)}]"
    )


def cluster_rt(
    amount: Annotated[
        int, typer.Option("-a", "--amount", min=2, help="Messages to each broker in a round.")
    ] = 100,
    size: Annotated[
        int, typer.Option("-s", "--size", min=1, max=LARGEST_BODY, help="Bytes of each message.")
    ] = 128,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", help="Only the brokers of this cluster.")
    ] = None,
    print_as_log: Annotated[
        Switch,
        typer.Option("-p", "--print", "--print log", help="Lines of a log: time|room|cluster|…"),
    ] = "false",
    room: Annotated[
        str,
        typer.Option("-m", "--machine", "--machine room", help="Name of the room in these lines."),
    ] = "noname",
    interval: Annotated[
        float,
        typer.Option(
            "-i", "--interval", callback=check_seconds, help="Seconds between two rounds."
        ),
    ] = 10,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="End after so many rounds.")
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Send messages to all brokers and show how long they take on average.

    Repeats until interrupted.
    """

    async def act(admin: AdminClient) -> None:
        done = 0
        async with producer_of(admin) as producer:
            while True:
                rows = [
                    await _measure(producer, name, broker, amount, size)
                    for name, brokers in (await _brokers(admin, cluster)).items()
                    for broker in brokers
                ]
                _print_round(rows, as_document=as_document, room=_room(print_as_log, room))
                done += 1
                if done == rounds:
                    return
                await asyncio.sleep(interval)

    run(name_server, act)


def _room(print_as_log: Switch, room: str) -> str | None:
    return room if is_true(print_as_log) else None


async def _brokers(admin: AdminClient, cluster: str | None) -> Mapping[str, list[str]]:
    table = (await admin.clusters.info()).cluster_addr_table
    if cluster is not None and cluster not in table:
        raise ClusterNotFound(cluster, table)
    return {
        name: sorted(brokers) for name, brokers in sorted(table.items()) if cluster in {None, name}
    }


async def _measure(
    producer: "Producer", cluster: str, broker: str, amount: int, size: int
) -> dict[str, object]:
    """Average milliseconds of all sends but the first, which opens the connection."""
    elapsed, stored, failed = 0.0, 0, 0
    message = Message(broker, b"a" * size)
    for number in range(amount):
        begin = time.perf_counter()
        try:
            await producer.send(message)
            stored += 1
        except BolideError as exc:
            failed += 1
            pass_over(exc)
        if number:
            elapsed += time.perf_counter() - begin
    return {
        "cluster": cluster,
        "brokerName": broker,
        "rt": round(elapsed * 1000 / (amount - 1), 2),
        "successCount": stored,
        "failCount": failed,
    }


def _print_round(rows: list[dict[str, object]], *, as_document: bool, room: str | None) -> None:
    if as_document:
        print_document(rows)
        return
    if room is not None:
        now = datetime.now().astimezone()
        for row in rows:
            place = f"{row['cluster']}|{row['brokerName']}"
            print(one_line(f"{now:%Y-%m-%d %H:%M:%S}|{room}|{place}|{row['rt']:.0f}"), flush=True)
        return
    table = Table("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
    for row in rows:
        *names, rt, stored, failed = row.values()
        table.add(*names, f"{rt:.2f}", stored, failed)
    table.print()
