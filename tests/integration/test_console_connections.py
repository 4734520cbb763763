"""An admin switches TLS and the VIP channel of a running console."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from bolide.console.access.sessions import Session
from bolide.console.service import Console
from bolide.console.settings import ConsoleSettings
from bolide.operations.cluster import Identity
from bolide.operations.declaration import Role
from bolide.operations.door import CONFIRMED
from bolide.operations.errors import ConfirmationNeeded, Conflict
from bolide.operations.servers import connection
from bolide.operations.servers import members as cluster_members
from bolide.operations.servers.connection import ConnectionEffect
from bolide.remoting.tls import ClientTls, TlsMode
from tests.support.aio import on_loop
from tests.support.broker import broker_in
from tests.support.certificates import Authority
from tests.support.name_servers import name_server
from tests.support.secured import Secured


class Visitor:
    """An admin of a console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        _, self.session = console.sessions.start("ada", Role.ADMIN)

    async def switch(
        self, *, tls: bool, vip: bool = False, confirmation: str | None = CONFIRMED
    ) -> connection.Connection:
        return await self.console.run(
            self.session,
            connection.change_connection,
            {"use_tls": tls, "vip_channel": vip},
            source="console",
            confirmation=confirmation,
        )

    async def brokers(self) -> list[cluster_members.BrokerMember]:
        cluster = await self.console.cluster_of(self.session)
        cluster.forget()
        found = await self.console.run(
            self.session, cluster_members.list_brokers, {}, source="console"
        )
        return found.brokers


def settings(name_servers: str, directory: Path, tls: ClientTls | None) -> ConsoleSettings:
    return ConsoleSettings(name_servers=name_servers, data=directory / "console", tls=tls)


@on_loop
async def test_tls_and_the_vip_channel_are_switched_for_all_and_kept(tmp_path: Path) -> None:
    secured = Secured.by(Authority(tmp_path))
    trusting = ClientTls(trust=secured.trust)
    mode: dict[str, Any] = {
        "tls_mode": TlsMode.PERMISSIVE,
        "tls_certificate": secured.server.certificate,
        "tls_key": secured.server.key,
    }
    (tmp_path / "names").mkdir()
    async with (
        name_server(tmp_path / "names", **mode) as names,
        broker_in(tmp_path / "broker", name_servers=(names.address,), **mode) as broker,
    ):
        async with Console(settings(names.address, tmp_path, trusting)) as console:
            ada = Visitor(console)
            own = await console.cluster_of(ada.session)
            user = Session(
                user="shop", role=Role.VIEWER, must_change=False, expires=2**40, idle_limit=60,
                identity=Identity(access_key="shop", secret_key="shop-secret"),
            )  # fmt: skip
            other = await console.cluster_of(user)
            assert [each.address for each in await ada.brokers()] == [broker.address]
            assert [own.tls, other.tls] == [trusting, trusting]

            with pytest.raises(ConfirmationNeeded) as needed:
                await ada.switch(tls=False, vip=True, confirmation=None)
            effect = needed.value.effect
            assert isinstance(effect, ConnectionEffect)
            assert effect.works
            done = await ada.switch(tls=False, vip=True, confirmation=needed.value.token)
            assert (done.use_tls, done.verifies, done.vip_channel) == (False, None, True)
            assert [own.tls, other.tls] == [None, None]
            assert own.vip_channel
            assert other.vip_channel
            assert [each.address for each in await ada.brokers()] == [broker.address]
            file = tmp_path / "console" / "connection.json"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600

        # the choice holds after a restart, unless that chooses otherwise
        async with Console(settings(names.address, tmp_path, trusting)) as console:
            ada = Visitor(console)
            assert (await console.cluster_of(ada.session)).tls is None
            await ada.switch(tls=True)
            assert (await console.cluster_of(ada.session)).tls is trusting
            assert [each.address for each in await ada.brokers()] == [broker.address]
            await ada.switch(tls=False)
        async with Console(settings(names.address, tmp_path, None)) as console:
            ada = Visitor(console)
            # nobody trusts the certificate without its authority
            with pytest.raises(Conflict, match="no NameServer would answer"):
                await ada.switch(tls=True)
            assert (await console.cluster_of(ada.session)).tls is None
        assert json.loads(file.read_text())["started_with_tls"] is True
