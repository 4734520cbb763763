"""Replies on their way to clients: who gets them, and how many at a time."""

import asyncio
from pathlib import Path

import pytest

from bolide.broker import replies
from bolide.broker.replies import Replies
from bolide.model.message import Host
from bolide.protocol.bodies.heartbeat import Heartbeat, ProducerGroup
from bolide.protocol.refusals import ServerError, SystemBusy
from bolide.remoting.connection import Connection, ConnectionLimits
from bolide.remoting.dispatch import Dispatcher
from tests.support.aio import on_loop
from tests.support.broker import send_header
from tests.support.broker_tables import BrokerTables
from tests.support.transport import FakeTransport

HEADER = send_header("c_REPLY_TOPIC", properties={"REPLY_TO_CLIENT": "asker"})


@on_loop
async def test_a_client_that_answers_nothing_gets_no_more_than_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "MOST_OF_ONE", 2)
    clients = BrokerTables(tmp_path).clients
    connection = Connection(Dispatcher(), ConnectionLimits())
    FakeTransport().attach(connection)
    beat = Heartbeat(client_id="asker", producer_data_set=[ProducerGroup("p")])
    clients.heartbeat(beat, connection, "JAVA", 1)
    pushing = Replies(clients, Host("127.0.0.1", 10911))
    waiting = [asyncio.create_task(pushing.push(HEADER, b"x", "h:1")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(SystemBusy, match="too many replies are under way to asker"):
        await pushing.push(HEADER, b"x", "h:1")
    connection.connection_lost(None)
    lost = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, ServerError) for each in lost)
    with pytest.raises(ServerError, match="not found"):
        await pushing.push(HEADER, b"x", "h:1")


@on_loop
async def test_a_client_that_does_not_read_is_passed_over_at_once(tmp_path: Path) -> None:
    clients = BrokerTables(tmp_path).clients
    connection = Connection(Dispatcher(), ConnectionLimits())
    FakeTransport().attach(connection)
    beat = Heartbeat(client_id="asker", producer_data_set=[ProducerGroup("p")])
    clients.heartbeat(beat, connection, "JAVA", 1)
    connection.pause_writing()
    with pytest.raises(ServerError, match="it does not read"):
        await Replies(clients, Host("127.0.0.1", 10911)).push(HEADER, b"x", "h:1")
