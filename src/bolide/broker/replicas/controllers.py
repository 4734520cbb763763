"""Calls of a broker to the controllers: finds the leader, and repeats what a change of it broke.

All controllers of `controllerAddr` must be of one quorum: another one would elect a master of its
own. Ours tell the id of their quorum, so how addresses are written does not matter. RocketMQ's tell
their group and their peers, which are the same at all of them.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import combinations

import msgspec

from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.controller import SyncStateSet
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.controller import (
    BrokerHeartbeatReply,
    MetadataReply,
    RegisterBrokerReply,
    RoleChangedHeader,
)
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader
from bolide.protocol.refusals import Refusal
from bolide.remoting.address import split_address
from bolide.remoting.client import RemotingClient
from bolide.remoting.host_names import HostNames

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
    quorum: str = ""
    """Id of the quorum that says so; empty if it tells none."""

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
    is_member: bool
    """Whether a leader knows this broker."""

    @property
    def has_master(self) -> bool:
        return self.state is not None and self.state.master_id is not None


class NoLeader(BolideError):
    """No controller leads at the moment, or none is reachable."""


class DifferentQuorums(BolideError):
    """Controllers of the settings belong to different quorums."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """What a controller says about its quorum."""

    id: str | None
    """None of RocketMQ's controllers; empty of one that has not heard of a leader yet."""
    group: str
    peers: frozenset[str]
    is_leader: bool = False

    @classmethod
    def of(cls, reply: MetadataReply) -> "Quorum":
        peers = (each.strip() for each in (reply.peers or "").split(";"))
        return cls(
            reply.quorum_id, reply.group or "", frozenset(filter(None, peers)), reply.is_leader
        )

    def contradicts(self, other: "Quorum") -> bool:
        if self.id is not None and other.id is not None:
            return bool(self.id and other.id) and self.id != other.id
        if "" in (self.id, other.id) or not (self.peers and other.peers):
            return False  # it elects nobody yet, or does not say enough
        return (self.group, self.peers) != (other.group, other.peers)

    def __str__(self) -> str:
        name = f" {self.id}" if self.id else ""
        return f"quorum{name} (group {self.group}, peers {';'.join(sorted(self.peers)) or '?'})"


class Controllers:
    """The controllers of a cluster, as one of its brokers sees them; one event loop."""

    def __init__(self, client: RemotingClient, addresses: Callable[[], Collection[str]]) -> None:
        self._client = client
        self._addresses = addresses
        self._names = HostNames()
        self._told: dict[str, Quorum] = {}
        """By address, what each controller said last; also if it is not reachable any more."""
        self._rivals: set[tuple[str, str]] = set()
        """Controllers without an id of their quorum that both claimed to lead when last asked."""
        self.leader: str | None = None
        self.quorum = ""
        """Id of the quorum that this broker has joined or is about to join."""

    def known(self) -> set[str]:
        """The addresses of the settings, and the leader that one of these named."""
        return set(self._addresses()) | ({self.leader} if self.leader else set())

    async def survey(self, *, is_joining: bool) -> None:
        """Ask all controllers which quorum they are of. A broker that joins adopts its id.

        One that is not reachable is no contradiction. But a broker that joins may name no more
        addresses than there are controllers: one that does not answer now might be the leader of
        another quorum, and have elected a master.

        Raises:
            DifferentQuorums: they are of several quorums, or of another one than this broker has
                joined.
            NoLeader: a broker that joins finds none that has heard of a leader.
        """
        addresses = sorted(set(self._addresses()))
        answers = await asyncio.gather(*map(self._ask_for_leader, addresses))
        found = {
            address: Quorum.of(answer)
            for address, answer in zip(addresses, answers, strict=True)
            if answer is not None
        }
        told = self._told | found
        self._told = {address: told[address] for address in addresses if address in told}
        await self._compare(found, is_joining=is_joining)
        if is_joining:
            known = [each for each in found.values() if each.id != ""]
            if not known:
                raise NoLeader(f"no controller that leads answers at {', '.join(addresses)}")
            await self._refuse_surplus(addresses, found)
            self.quorum = next((each.id for each in known if each.id), "")
        for address, each in self._told.items():
            if self.quorum and each.id and each.id != self.quorum:
                raise DifferentQuorums(
                    f"controller {address} is of {each} now, but this broker has joined quorum"
                    f" {self.quorum}: it is another controller, or the controllers lost their"
                    " files. Set controllerAddr to the controllers of one quorum, with the same"
                    " controllerDLegerPeers at all of them, and restart this broker"
                )

    async def _compare(self, found: dict[str, Quorum], *, is_joining: bool) -> None:
        """Raises DifferentQuorums if two controllers cannot be of one quorum."""
        rivals, self._rivals = self._rivals, set()
        for one, other in combinations(sorted(self._told), 2):
            is_contradiction = self._told[one].contradicts(self._told[other])
            if one in found and other in found and await self._are_rivals(one, other):
                # A leader that was replaced may not know it yet.
                self._rivals.add((one, other))
                is_contradiction |= is_joining or (one, other) in rivals
            if is_contradiction:
                raise DifferentQuorums(
                    "controllerAddr names controllers of different quorums, and each of them would"
                    f" elect a master of its own: {one} is of {self._told[one]}, {other} of"
                    f" {self._told[other]}. Set the same controllerDLegerPeers at all of them, or"
                    " controllerAddr to those of one quorum"
                )

    async def _are_rivals(self, one: str, other: str) -> bool:
        """Whether two controllers that tell no id of their quorum both claim to lead."""
        pair = self._told[one], self._told[other]
        if not all(each.id is None and each.is_leader for each in pair):
            return False
        return not (await self._endpoints(one) & await self._endpoints(other))

    async def _refuse_surplus(self, addresses: list[str], found: dict[str, Quorum]) -> None:
        """Raises DifferentQuorums for an address that can be none of the controllers."""
        address, quorum = next(
            ((address, each) for address, each in found.items() if each.peers), ("", None)
        )
        if quorum is None or len(found) == len(addresses) or len(addresses) <= len(quorum.peers):
            return
        peers = [await self._endpoints(_peer_address(each)) for each in quorum.peers]
        listed: list[frozenset[tuple[str, int]]] = []
        strangers = []
        for each in addresses:
            endpoints = await self._endpoints(each)
            if not any(endpoints & other for other in listed):
                listed.append(endpoints)
            if each not in found and not any(endpoints & peer for peer in peers):
                strangers.append(each)
        if strangers and len(listed) > len(peers):
            raise DifferentQuorums(
                f"controllerAddr names {', '.join(strangers)}, which does not answer and is no"
                f" controller of the {quorum} that {address} is of. If there is a controller, it"
                " would elect a master of its own: set the same controllerDLegerPeers at all of"
                " them. If there is none, remove the address from controllerAddr"
            )

    async def _endpoints(self, address: str) -> frozenset[tuple[str, int]]:
        """An address in comparable form: by its text, and by each IP address of its host."""
        try:
            host, port = split_address(address)
        except ValueError:
            return frozenset(((address, 0),))
        hosts = {host.lower()} | await self._names.addresses(host)
        return frozenset((each, port) for each in hosts)

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
                if answer is None or self._is_foreign(answer.quorum_id):
                    continue
                if answer.controller_leader_address:
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
        reply = MetadataReply.from_fields(answer.fields)
        if reply.is_leader:  # whatever it calls itself, it was reached there
            reply = msgspec.structs.replace(reply, controller_leader_address=address)
        return reply

    def _is_foreign(self, quorum: str | None) -> bool:
        """Whether a quorum is another one than that of this broker."""
        return bool(quorum and self.quorum) and quorum != self.quorum

    async def heartbeat(self, address: str, header: BrokerHeartbeatHeader) -> Beat | None:
        """Send a heartbeat to one controller; None if none of this quorum answers."""
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
        if self._is_foreign(reply.quorum_id):
            return None
        is_leader = answer.code == ResponseCode.SUCCESS
        if is_leader:
            self.leader = address
        return Beat(
            state_of(reply, bytes(answer.body)),
            reply.lease_millis / 1000,
            reply.heartbeat_millis / 1000,
            is_leader,
            reply.is_member is not False,
        )


def state_of(
    told: RoleChangedHeader | BrokerHeartbeatReply | RegisterBrokerReply, body: bytes
) -> GroupState | None:
    """The state of a group that a controller tells; None if it tells none.

    Raises:
        BadJson: the body is no sync-state set.
    """
    if told.master_epoch is None:
        return None
    found = fastjson.decode(body, SyncStateSet) if body else SyncStateSet()
    return GroupState(
        master_id=told.master_broker_id,
        master_address=told.master_address,
        epoch=told.master_epoch,
        set_epoch=told.sync_state_set_epoch or 0,
        members=frozenset(found.sync_state_set),
        quorum=told.quorum_id or "",
    )


def _peer_address(peer: str) -> str:
    """The address of a peer, which is written with an id before it or without."""
    _, _, rest = peer.partition(":")
    return peer if peer.startswith("[") or ":" not in rest else rest
