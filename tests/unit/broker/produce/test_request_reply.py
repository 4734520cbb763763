"""Pushed replies: their recipient and the limits of replies in flight."""

import asyncio
from pathlib import Path

import pytest

from bolide.broker.produce import request_reply
from bolide.broker.produce.request_reply import ReplyPusher
from bolide.model.message import Host
from bolide.protocol.bodies.heartbeat import Heartbeat, ProducerGroup
from bolide.protocol.refusals import ServerError, SystemBusy
from bolide.remoting.calls import ConnectionLimits
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Dispatcher
from tests.support.aio import on_loop, until
from tests.support.broker import send_header
from tests.support.broker_tables import BrokerTables
from tests.support.transport import FakeTransport

HEADER = send_header("c_REPLY_TOPIC", properties={"REPLY_TO_CLIENT": "asker"})


def asker_of(tmp_path: Path) -> tuple[ReplyPusher, Connection, FakeTransport]:
    """A connected client and a pusher of replies to it."""
    clients = BrokerTables(tmp_path).clients
    connection, transport = Connection(Dispatcher(), ConnectionLimits()), FakeTransport()
    transport.attach(connection)
    beat = Heartbeat(client_id="asker", producer_data_set=[ProducerGroup("p")])
    clients.heartbeat(beat, connection, "JAVA", 1)
    return ReplyPusher(clients, Host("127.0.0.1", 10911)), connection, transport


@pytest.mark.parametrize(
    ("limit", "most", "body"),
    [
        ("CLIENT_LIMIT", (2, 9), b"x"),
        ("CLIENT_LIMIT", (9, 15), b"x" * 6),
        ("TOTAL_LIMIT", (9, 15), b"y" * 6),
    ],
)
@on_loop
async def test_a_client_that_answers_nothing_gets_no_more_than_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: tuple[int, int], body: bytes
) -> None:
    monkeypatch.setattr(request_reply, limit, request_reply._InFlight(*most))
    pushing, connection, _ = asker_of(tmp_path)
    waiting = [asyncio.create_task(pushing.push(HEADER, body, "h:1")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(SystemBusy, match="too many replies are in flight to asker"):
        await pushing.push(HEADER, body, "h:1")
    connection.connection_lost(None)
    lost = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, ServerError) for each in lost)
    with pytest.raises(ServerError, match="not found"):
        await pushing.push(HEADER, b"x", "h:1")


@on_loop
async def test_a_large_reply_alone_is_pushed_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_reply, "CLIENT_LIMIT", request_reply._InFlight(9, 15))
    pushing, connection, transport = asker_of(tmp_path)
    large = asyncio.create_task(pushing.push(HEADER, b"x" * 100, "h:1"))
    await until(lambda: transport.writes)
    connection.connection_lost(None)
    with pytest.raises(ServerError):
        await large


@on_loop
async def test_a_client_that_reads_slowly_gets_its_replies_when_there_is_room(
    tmp_path: Path,
) -> None:
    pushing, connection, transport = asker_of(tmp_path)
    connection.pause_writing()
    pushes = [asyncio.create_task(pushing.push(HEADER, b"x", "h:1")) for _ in range(2)]
    await asyncio.sleep(0.01)
    assert not transport.writes
    assert not any(push.done() for push in pushes)
    connection.resume_writing()
    await until(lambda: b"".join(transport.writes).count(b"REPLY_TO_CLIENT") == 2)
    connection.connection_lost(None)
    await asyncio.gather(*pushes, return_exceptions=True)
