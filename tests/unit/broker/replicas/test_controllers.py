"""Calls to controllers: who leads, also while the machine of one of them is off."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from bolide.broker.replicas.controllers import Controllers, NoLeader
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.controller import (
    MetadataReply,
    NextBrokerIdHeader,
    NextBrokerIdReply,
)
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer, ServerConfig
from tests.support.aio import on_loop

HEADER = NextBrokerIdHeader("c", "broker-a")


class FakeController:
    """Says who leads, and answers as the leader."""

    def __init__(self) -> None:
        self.leader = ""
        self.is_leader = False
        self.calls = 0

    @handles(NoHeader, RequestCode.CONTROLLER_GET_METADATA_INFO)
    def metadata(self, request: Request[NoHeader]) -> Reply:
        values: dict[str, Any] = {
            "group": "g",
            "controller_leader_id": "n0",
            "controller_leader_address": self.leader,
            "is_leader": self.is_leader,
            "peers": "",
        }
        return Reply(header=MetadataReply(**values))

    @handles(NextBrokerIdHeader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    def next_id(self, request: Request[NextBrokerIdHeader]) -> Reply:
        self.calls += 1
        return Reply(header=NextBrokerIdReply("c", "broker-a", 7))


@asynccontextmanager
async def served(controller: FakeController) -> AsyncIterator[str]:
    config = ServerConfig(host="127.0.0.1", port=0)
    async with RemotingServer(config, Dispatcher(controller)) as server:
        yield server.address


@contextmanager
def powered_off() -> Iterator[str]:
    """An address at which connections are not answered: its queue of connections is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(listening.getsockname())
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for each in waiting:
                each.close()


@on_loop
async def test_a_controller_whose_machine_is_off_holds_up_no_call() -> None:
    leader = FakeController()
    async with served(leader) as address, RemotingClient() as client:
        leader.leader, leader.is_leader = address, True
        with powered_off() as dead:
            for addresses in ((address, dead), (dead, address)):
                controllers = Controllers(client, lambda found=addresses: found)  # type: ignore[misc]
                code = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
                await controllers.call(code, HEADER, within=1.0)
    assert leader.calls == 2


@on_loop
async def test_a_follower_names_the_leader() -> None:
    leader, follower = FakeController(), FakeController()
    async with served(leader) as address, served(follower) as other, RemotingClient() as client:
        follower.leader = address
        controllers = Controllers(client, lambda: [other])
        await controllers.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, HEADER)
    assert leader.calls == 1


@on_loop
async def test_without_any_controller_a_call_says_so_in_time() -> None:
    with powered_off() as dead:
        async with RemotingClient() as client:
            controllers = Controllers(client, lambda: [dead])
            with pytest.raises(NoLeader, match="leads"):
                code = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
                await controllers.call(code, HEADER, within=0.8)
