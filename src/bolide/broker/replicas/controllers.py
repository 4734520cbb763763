"""Calls of a broker to the controllers: finds the leader, and repeats what a change of it broke."""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.controller import SyncStateSet
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.controller import (
    BrokerHeartbeatReply,
    MetadataReply,
    RoleChangedHeader,
)
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader
from bolide.protocol.refusals import Refusal
from bolide.remoting.client import RemotingClient

log = logging.getLogger(__name__)

CALL_TIMEOUT = 1.0
"""Seconds that one call to a controller may take."""
_ASK_TIMEOUT = 0.5
"""Seconds in which a controller says who leads; less than any caller has."""
_RETRY_DELAY = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What a controller says about a group; ordered by its two epochs."""

    master_id: int | None
    master_address: str | None
    epoch: int
    set_epoch: int
    members: frozenset[int]
    """The sync-state set."""

    @property
    def version(self) -> tuple[int, int]:
        return self.epoch, self.set_epoch


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat."""

    state: GroupState | None
    lease: float
    """Seconds from the moment at which the heartbeat was sent; 0: no lease."""
    interval: float
    """Seconds until the next heartbeat is due."""
    is_leader: bool

    @property
    def has_master(self) -> bool:
        return self.state is not None and self.state.master_id is not None


class NoLeader(BolideError):
    """No controller leads at the moment, or none is reachable."""


class Controllers:
    """The controllers of a cluster, as one of its brokers sees them; one event loop."""

    def __init__(self, client: RemotingClient, addresses: Callable[[], Collection[str]]) -> None:
        self._client = client
        self._addresses = addresses
        self.leader: str | None = None

    def known(self) -> set[str]:
        """The addresses of the settings, and the leader that one of these named."""
        return set(self._addresses()) | ({self.leader} if self.leader else set())

    async def call(
        self,
        code: RequestCode,
        header: Header,
        *,
        body: bytes = b"",
        within: float = 3.0,
        once: bool = False,
    ) -> Frame:
        """Call the leader; finds it first, and again if it has changed.

        Args:
            once: send the request once only, so that a refusal means that it had no effect. A
                request that is repeated may be refused because its first try took effect.

        Raises:
            NoLeader: no leader answered in time; the request may have taken effect.
            Refusal: the leader refused.
        """
        reason: Exception | None = None
        try:
            async with asyncio.timeout(within):
                while True:
                    leader = self.leader or await self._find_leader()
                    if leader is not None:
                        try:
                            return await self._client.call(
                                leader, code, header, body=body, within=CALL_TIMEOUT
                            )
                        except Refusal as exc:
                            if exc.code != ResponseCode.CONTROLLER_NOT_LEADER:
                                raise
                            reason = exc
                        except BolideError as exc:
                            reason = exc
                        self.leader = None
                        if once:
                            raise NoLeader(f"the outcome is unknown: {reason}")
                    await asyncio.sleep(_RETRY_DELAY)
        except TimeoutError as exc:
            where = ", ".join(self._addresses())
            why = f": {reason}" if reason else ""
            raise NoLeader(f"no controller that leads answers at {where}{why}") from exc

    async def _find_leader(self) -> str | None:
        """Ask all controllers at once; one whose machine is off holds up nothing."""
        asks = [asyncio.create_task(self._ask_for_leader(each)) for each in self._addresses()]
        try:
            for ask in asyncio.as_completed(asks):
                answer = await ask
                if answer is not None and answer.controller_leader_address:
                    self.leader = answer.controller_leader_address
                    if answer.is_leader:
                        break
        finally:
            for task in asks:
                task.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
        return self.leader

    async def _ask_for_leader(self, address: str) -> MetadataReply | None:
        code = RequestCode.CONTROLLER_GET_METADATA_INFO
        try:
            async with asyncio.timeout(_ASK_TIMEOUT):  # to connect may take longer than the call
                answer = await self._client.call(address, code, within=_ASK_TIMEOUT)
        except (BolideError, TimeoutError):
            return None
        return MetadataReply.from_fields(answer.fields)

    async def heartbeat(self, address: str, header: BrokerHeartbeatHeader) -> Beat | None:
        """Send a heartbeat to one controller; None if it does not answer."""
        try:
            answer = await self._client.call(
                address,
                RequestCode.BROKER_HEARTBEAT,
                header,
                within=CALL_TIMEOUT,
                accept=(ResponseCode.CONTROLLER_NOT_LEADER,),
            )
        except BolideError as exc:
            log.debug("controller %s does not answer a heartbeat: %s", address, exc)
            return None
        reply = BrokerHeartbeatReply.from_fields(answer.fields)
        is_leader = answer.code == ResponseCode.SUCCESS
        if is_leader:
            self.leader = address
        return Beat(
            state_of(
                RoleChangedHeader(
                    master_address=reply.master_address,
                    master_epoch=reply.master_epoch,
                    sync_state_set_epoch=reply.sync_state_set_epoch or 0,
                    master_broker_id=reply.master_broker_id,
                ),
                bytes(answer.body),
            )
            if reply.master_epoch is not None
            else None,
            reply.lease_millis / 1000,
            reply.heartbeat_millis / 1000,
            is_leader,
        )


def state_of(header: RoleChangedHeader, body: bytes) -> GroupState:
    """The state of a group in NOTIFY_BROKER_ROLE_CHANGED, and in answers that tell the same.

    Raises:
        BadJson: the body is no sync-state set.
    """
    found = fastjson.decode(body, SyncStateSet) if body else SyncStateSet()
    return GroupState(
        master_id=header.master_broker_id,
        master_address=header.master_address,
        epoch=header.master_epoch,
        set_epoch=header.sync_state_set_epoch,
        members=frozenset(found.sync_state_set),
    )
