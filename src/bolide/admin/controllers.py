"""Controllers: which one leads, their settings, and the groups whose masters they elect."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bolide import properties
from bolide.admin.servers import Peer, Servers
from bolide.protocol import fastjson
from bolide.protocol.bodies.controller import ElectedMaster, ReplicasTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.controller import (
    CleanBrokerHeader,
    ElectMasterHeader,
    ElectMasterReply,
    MetadataReply,
)

_ELECTION_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class Election:
    """The master that was elected, and the members of its group."""

    master: ElectMasterReply
    members: ElectedMaster


class Controllers:
    """Controllers by address, of Bolide or of RocketMQ 5.

    Any controller of a quorum can be named: what only the leader answers is asked of the leader.
    """

    def __init__(self, servers: Servers, now: Callable[[], float] = time.time) -> None:
        self._servers = servers
        self._now = now

    async def metadata(self, address: str) -> MetadataReply:
        """Which controller leads, and the members of the quorum."""
        reply = await self._servers.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return MetadataReply.from_fields(reply.fields)

    async def config(self, address: str) -> dict[str, str]:
        """The settings of one controller, as text."""
        reply = await self._servers.call(address, RequestCode.GET_CONTROLLER_CONFIG)
        return properties.parse(reply.body.decode())

    async def peer(self, address: str) -> Peer:
        """The version of a controller, and whether it is one of Bolide."""
        return await self._servers.peer(address, RequestCode.GET_CONTROLLER_CONFIG)

    async def update_config(self, address: str, changes: Mapping[str, str]) -> None:
        """Change settings of one controller; raises NoPermission or InvalidParameter."""
        body = properties.render(changes).encode()
        await self._servers.call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)

    async def sync_state_sets(self, address: str, broker_names: Iterable[str]) -> ReplicasTable:
        """The master, epoch and sync-state set of broker groups.

        Groups that the controllers do not know are absent from the answer.
        """
        body = fastjson.encode([*broker_names])
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        reply = await self._ask_leader(address, code, body=body)
        return fastjson.decode(reply.body or b"{}", ReplicasTable)

    async def elect(self, address: str, cluster: str, broker_name: str, broker_id: int) -> Election:
        """Make a member of a group its master.

        Raises:
            Refusal: the member is not alive, or not in the sync-state set, or is master already.
        """
        header = ElectMasterHeader(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            designate_elect=True,
            invoke_time=int(self._now() * 1000),
        )
        reply = await self._ask_leader(address, RequestCode.CONTROLLER_ELECT_MASTER, header)
        return Election(
            ElectMasterReply.from_fields(reply.fields),
            fastjson.decode(reply.body or b"{}", ElectedMaster),
        )

    async def clean_broker_metadata(
        self,
        address: str,
        cluster: str | None,
        broker_name: str,
        *,
        broker_ids: Iterable[int] = (),
        living: bool = False,
    ) -> None:
        """Have the controllers forget members of a group, or the whole group.

        Args:
            broker_ids: the members; none for the whole group.
            living: also members that are alive.
        """
        header = CleanBrokerHeader(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_controller_ids_to_clean=";".join(map(str, broker_ids)) or None,
            is_clean_living_broker=living,
            invoke_time=int(self._now() * 1000),
        )
        await self._ask_leader(address, RequestCode.CLEAN_BROKER_DATA, header)

    async def _ask_leader(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
    ) -> Frame:
        leader = (await self.metadata(address)).controller_leader_address or address
        return await self._servers.call(leader, code, header, body=body, within=_ELECTION_TIMEOUT)
