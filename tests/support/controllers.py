"""Controllers for tests, inside the test or as processes, and a broker that talks to them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bolide.config import load
from bolide.controller.config import ControllerConfig
from bolide.controller.raft import RaftNode
from bolide.controller.server import Controller
from bolide.protocol import fastjson
from bolide.protocol.bodies.controller import SyncStateSet
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    ElectMasterHeader,
    MetadataReply,
    RegisterBrokerHeader,
    RoleChangedHeader,
)
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader
from bolide.protocol.refusals import Refusal
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.errors import RemotingError
from tests.support.aio import PATIENCE
from tests.support.ports import free_port

RAFT_OFFSET = 100


def free_peers(count: int) -> str:
    """Addresses of controllers whose ports, also those of Raft, are free, as a setting."""
    ports = [free_port((RAFT_OFFSET,)) for _ in range(count)]
    return ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))


def controller(directory: Path, peers: str, number: int = 0, **texts: str) -> Controller:
    """A controller inside the test's event loop."""
    return Controller(controller_config(directory, peers, number, **texts))


def controller_config(
    directory: Path, peers: str, number: int = 0, **texts: str
) -> ControllerConfig:
    settings = {
        "controllerDLegerPeers": peers,
        "controllerDLegerSelfId": f"n{number}",
        "controllerStorePath": str(directory),
        "configStorePath": str(directory / f"n{number}.properties"),
        "shutdownWaitTimeSeconds": "2",
    }
    return load(ControllerConfig, settings | texts)


class ControllerProcess:
    """A controller as people run it."""

    def __init__(self, directory: Path, peers: str, number: int, **texts: str) -> None:
        self.address = peers.split(";")[number].partition("-")[2]
        self._log = directory / f"n{number}.log"
        settings = {"controllerDLegerPeers": peers, "controllerStorePath": str(directory)} | texts
        self._words = [
            sys.executable, "-m", "bolide", "controller", "-n", f"n{number}",
            *(f"{key}={value}" for key, value in settings.items()),
        ]  # fmt: skip
        self._environment = os.environ | {"HOME": str(directory)}
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, stdout=log, stderr=log, env=self._environment
            )

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def output(self) -> str:
        return self._log.read_text()


def node_of(server: Controller) -> RaftNode:
    node = server._log.node
    assert node is not None
    return node


@contextmanager
def quorum(directory: Path, count: int = 3, **texts: str) -> Iterator[list[ControllerProcess]]:
    """Controllers as processes."""
    peers = free_peers(count)
    started = [ControllerProcess(directory, peers, number, **texts) for number in range(count)]
    try:
        yield started
    finally:
        for each in started:
            each.stop()


class FakeBroker:
    """A broker as the controllers see it; notes what they push."""

    def __init__(self, id_: int, addresses: list[str], group: str = "g") -> None:
        self.id, self.group, self.addresses = id_, group, addresses
        self.address = f"127.0.0.1:{10900 + id_}"
        self.notices: list[tuple[RoleChangedHeader, SyncStateSet]] = []
        self.epoch, self.max_offset = 0, 0
        self.confirms = False
        """Whether it says that it confirms its terms, as our brokers do."""
        self.client = RemotingClient(dispatcher=Dispatcher(self))
        self._beating: asyncio.Task[None] | None = None
        self.master: int | None = None
        self.lease_until = float("-inf")
        self.granted_by: list[str] = []

    @handles(RoleChangedHeader, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    def role_changed(self, request: Request[RoleChangedHeader]) -> Reply:
        self.notices.append((request.header, fastjson.decode(request.body, SyncStateSet)))
        return Reply()

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.fall_silent()
        await self.client.__aexit__(kind, exc, traceback)

    async def leader(self, *, but: str = "") -> str:
        """The address of the controller that proves to be the leader."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for address in self.addresses:
                    try:
                        found = await self.client.call(
                            address, RequestCode.CONTROLLER_GET_METADATA_INFO, within=0.5
                        )
                    except (Refusal, RemotingError):
                        continue
                    if address != but and MetadataReply.from_fields(found.fields).is_leader:
                        return address
                await asyncio.sleep(0.05)

    async def call(self, code: RequestCode, header: Any = None, **more: Any) -> Frame:
        """Call the leader; again if it is another one meanwhile."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await self.client.call(await self.leader(), code, header, **more)
                except (Refusal, RemotingError) as exc:
                    if getattr(exc, "code", 2007) != 2007:
                        raise

    async def join(self) -> None:
        """Get the id and register."""
        check = f"{self.address};1"
        await self.call(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            ApplyBrokerIdHeader("c", self.group, self.id, check),
        )
        await self.register()

    async def register(self, *, restarted: bool = False) -> Frame:
        header = RegisterBrokerHeader(
            cluster_name="c",
            broker_name=self.group,
            broker_id=self.id,
            broker_address=self.address,
            confirms_terms=self.confirms,
            restarted=restarted,
        )
        return await self.call(RequestCode.CONTROLLER_REGISTER_BROKER, header)

    async def elect(self, *, designate: bool = False) -> Frame:
        header = ElectMasterHeader(
            cluster_name="c", broker_name=self.group, broker_id=self.id, designate_elect=designate
        )
        return await self.call(RequestCode.CONTROLLER_ELECT_MASTER, header, accept=(2011,))

    async def alter(self, epoch: int, set_epoch: int, *ids: int) -> Frame:
        header = AlterSyncStateSetHeader(
            broker_name=self.group, master_broker_id=self.id, master_epoch=epoch
        )
        body = fastjson.encode(
            SyncStateSet(sync_state_set=list(ids), sync_state_set_epoch=set_epoch)
        )
        return await self.call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body=body)

    async def begin(self, epoch: int) -> Frame:
        """Confirm that the term of this master begins."""
        header = AlterSyncStateSetHeader(
            broker_name=self.group, master_broker_id=self.id, master_epoch=epoch, begins=True
        )
        return await self.call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header)

    def heartbeat_header(self) -> BrokerHeartbeatHeader:
        return BrokerHeartbeatHeader(
            "c", self.address, self.group, self.id, self.epoch, self.max_offset
        )

    async def heartbeat(self, address: str) -> Frame:
        """Send one heartbeat; the answer may be 2007."""
        sent = time.monotonic()
        found = await self.client.call(
            address, RequestCode.BROKER_HEARTBEAT, self.heartbeat_header(), accept=(2007,)
        )
        fields = found.fields or {}
        if found.code == 0:
            master = fields.get("masterBrokerId")
            self.master = None if master is None else int(master)
            self.epoch = int(fields.get("masterEpoch", self.epoch))
            if int(fields["leaseMillis"]):
                self.lease_until = sent + int(fields["leaseMillis"]) / 1000
                self.granted_by.append(address)
        return found

    async def refused_by(self, address: str) -> None:
        """Wait until a controller knows that it leads no longer."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if (await self.heartbeat(address)).code == 2007:
                    return
                await asyncio.sleep(0.05)

    def beat(self) -> None:
        """Send heartbeats to all controllers until told otherwise."""
        self._beating = asyncio.create_task(self._beat())

    async def fall_silent(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None

    async def _beat(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                for address in self.addresses:
                    group.create_task(self._beat_once(address))
                await asyncio.sleep(0.3)

    async def _beat_once(self, address: str) -> None:
        try:
            await self.heartbeat(address)
        except (Refusal, RemotingError):
            return
