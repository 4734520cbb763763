"""Servers that listen on every interface, and peers that reach them as another machine would."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bolide import properties
from bolide.broker.server import Broker
from bolide.namesrv.server import NameServer
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.remoting.address import is_loopback_host
from bolide.remoting.client import RemotingClient
from tests.support.broker import BrokerClient, broker_in
from tests.support.name_servers import name_server

EVERY_INTERFACE = "0.0.0.0"


def own_address() -> str:
    """An address of this machine other than loopback: peers that use it count as remote."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        host: str = probe.getsockname()[0]
    if is_loopback_host(host):
        pytest.skip("this machine has no address but loopback")
    return host


@dataclass
class AttackedBroker:
    broker: Broker
    remote: BrokerClient
    local: BrokerClient

    async def settings(self) -> dict[str, str]:
        shown = await self.remote.call(RequestCode.GET_BROKER_CONFIG)
        return properties.parse(shown.body.decode())


@asynccontextmanager
async def attacked_broker(directory: Path, **settings: Any) -> AsyncIterator[AttackedBroker]:
    """A broker as `brokerIP1=<address>` starts it, without access control unless it is given."""
    host = own_address()
    open_to_all = {"bind_address": EVERY_INTERFACE, "broker_ip1": host}
    async with broker_in(directory, **open_to_all | settings) as broker:
        port = broker.config.value.listen_port
        async with (
            BrokerClient(f"{host}:{port}") as remote,
            BrokerClient(f"127.0.0.1:{port}") as local,
        ):
            yield AttackedBroker(broker, remote, local)


class NameServerClient:
    """A client of one NameServer, on one connection."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def call(
        self, code: RequestCode, header: Header | dict[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        return await self._client.call(self._address, code, header, body=body)


@dataclass
class AttackedNameServer:
    server: NameServer
    remote: NameServerClient
    local: NameServerClient

    async def settings(self) -> dict[str, str]:
        shown = await self.remote.call(RequestCode.GET_NAMESRV_CONFIG)
        return properties.parse(shown.body.decode())


@asynccontextmanager
async def attacked_name_server(
    directory: Path, **settings: Any
) -> AsyncIterator[AttackedNameServer]:
    host = own_address()
    chosen = {"bind_address": EVERY_INTERFACE} | settings
    async with (
        name_server(directory, **chosen) as server,
        RemotingClient() as far,
        RemotingClient() as near,
    ):
        remote = NameServerClient(far, f"{host}:{server.port}")
        yield AttackedNameServer(server, remote, NameServerClient(near, f"127.0.0.1:{server.port}"))
