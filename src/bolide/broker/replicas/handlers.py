"""Requests between the members of a broker group, and about their replication."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from bolide.broker.background import ADMIN, on_thread
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.pop.events import encode_events
from bolide.broker.replicas.acting_master import ActingMaster
from bolide.broker.replicas.controllers import GroupState, state_of
from bolide.broker.replicas.known_hosts import KnownHosts, Speaker
from bolide.broker.replicas.master import MasterReplication
from bolide.broker.replicas.role import Role
from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.replicas.table_copies import StateSource
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol import fastjson
from bolide.protocol.bodies.replication import Epoch, EpochCache
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.controller import RoleChangedHeader
from bolide.protocol.headers.namesrv import MinBrokerIdChangeHeader
from bolide.protocol.headers.replication import (
    HaAddresses,
    ReplicaStateHeader,
    ResetFlushOffsetHeader,
)
from bolide.protocol.refusals import ServerError
from bolide.remoting.address import format_address
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.replication.epochs import Epochs
from bolide.store.message_store import MessageStore
from bolide.store.tables import DelayOffsets, encode_consumer_offsets, encode_delay_offsets

log = logging.getLogger(__name__)


class OffsetCopyHandlers:
    """Serves consumer and delay offsets to slaves of RocketMQ.

    Numeric keys are quoted: slaves of 5.x cannot read them otherwise.
    """

    def __init__(self, *, offsets: OffsetTable, delay_offsets: Callable[[], DelayOffsets]) -> None:
        self._offsets = offsets
        self._delay_offsets = delay_offsets

    @handles(NoHeader, RequestCode.GET_ALL_CONSUMER_OFFSET)
    async def consumer_offsets(self, request: Request[NoHeader]) -> Reply:
        table = self._offsets.table
        return Reply(
            body=await on_thread(ADMIN, encode_consumer_offsets, table, quote_numbers=True)
        )

    @handles(NoHeader, RequestCode.GET_ALL_DELAY_OFFSET)
    def delay_offsets(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=encode_delay_offsets(self._delay_offsets(), quote_numbers=True))


class ReplicaHandlers:
    """Answers members of the group, and administrators who ask about replication."""

    def __init__(  # noqa: PLR0913  the parts that it speaks for
        self,
        *,
        cell: ConfigCell[BrokerConfig],
        store: MessageStore,
        role: Role,
        replication: MasterReplication | SlaveReplication,
        epochs: Epochs | None,
        state: StateSource,
        known_hosts: KnownHosts,
        acting: ActingMaster | None,
    ) -> None:
        self._cell = cell
        self._store = store
        self._role = role
        self._replication = replication
        self._epochs = epochs
        self._state = state
        self._acting = acting
        self._known_hosts = known_hosts
        self._name_server = Speaker(
            "a NameServer", "Name the NameServers in namesrvAddr", lambda: cell.value.name_servers
        )
        self._master = Speaker(
            "the master", "Name the master in haMasterAddress", self._master_addresses
        )
        self._slave = Speaker(
            "a slave", "Name the slaves in haAllowedReplicas", admits=self._knows_slave
        )

    @handles(ReplicaStateHeader, RequestCode.BOLIDE_GET_REPLICA_STATE)
    async def replica_state(self, request: Request[ReplicaStateHeader]) -> Reply:
        if not self._role.is_master:
            raise ServerError("this broker is a slave itself: ask the master of its group")
        await self._require(request, self._slave)
        header, replication = request.header, self._replication
        if header.copy_id:
            reply, body = self._state.part(header.copy_id, header.part)
            return Reply(header=reply, body=body)
        if header.adopted and isinstance(replication, MasterReplication):
            replication.primary.metadata_copied(header.broker_id)
        reply, body = await self._state.changes(header.known, request.connection)
        return Reply(header=reply, body=body)

    # ---- addresses and positions

    @handles(HaAddresses, RequestCode.EXCHANGE_BROKER_HA_INFO)
    async def exchange_addresses(self, request: Request[HaAddresses]) -> Reply:
        """Tell a slave where to replicate from; or be told by a master that is starting."""
        header, config = request.header, self._cell.value
        if header.master_ha_address is not None:
            await self._require(request, self._master)
            if isinstance(self._replication, SlaveReplication):
                self._replication.follow(header.master_address, header.master_ha_address)
            if self._acting is not None:
                await self._acting.yield_to_master()
                return Reply(
                    body=await on_thread(ADMIN, encode_events, self._acting.popped_meanwhile())
                )
            return Reply()
        if not self._role.is_master:
            return Reply(header=HaAddresses())
        return Reply(
            header=HaAddresses(
                master_ha_address=format_address((config.broker_ip2, config.ha_listen_port)),
                master_flush_offset=self._store.flushed,
                master_address=format_address((config.broker_ip1, config.listen_port)),
            )
        )

    @handles(ResetFlushOffsetHeader, RequestCode.RESET_MASTER_FLUSH_OFFSET)
    async def reset_flush_offset(self, request: Request[ResetFlushOffsetHeader]) -> Reply:
        """Accepted without effect: a slave here starts where its own log ends, never below."""
        await self._require(request, self._master)
        return Reply()

    @handles(MinBrokerIdChangeHeader, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    async def lowest_id_changed(self, request: Request[MinBrokerIdChangeHeader]) -> Reply:
        await self._require(request, self._name_server)
        header = request.header
        if isinstance(self._replication, SlaveReplication):
            if header.min_broker_id == 0:
                self._replication.follow(header.min_broker_addr, header.ha_broker_addr)
            self._replication.lowest_id = header.min_broker_id or 0
            if self._acting is not None:
                self._acting.look_again()
        return Reply()

    @handles(NoHeader, RequestCode.GET_BROKER_HA_STATUS)
    def status(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=fastjson.encode(self._replication.status()))

    @handles(NoHeader, RequestCode.GET_BROKER_EPOCH_CACHE)
    def epochs(self, request: Request[NoHeader]) -> Reply:
        if self._epochs is None:
            raise ServerError("this request only for controllerMode")
        config, end = self._cell.value, self._store.log.written
        entries = list(self._epochs)
        ends = [each.start for each in entries[1:]] + [end]
        cache = EpochCache(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=self._role.member_id,
            epoch_list=[
                Epoch(epoch=each.epoch, start_offset=each.start, end_offset=stop)
                for each, stop in zip(entries, ends, strict=True)
            ],
            max_offset=end,
        )
        return Reply(body=fastjson.encode(cache))

    # ---- who may send them

    async def _require(self, request: Request[Any], speaker: Speaker) -> None:
        await self._known_hosts.require(request.frame.code, request.connection.peer, speaker)

    def _master_addresses(self) -> list[str]:
        """Addresses of the present master, as settings, NameServers or the controller told them."""
        if not isinstance(self._replication, SlaveReplication):
            return []
        return [each for each in self._replication.known_masters() if each]

    def _knows_slave(self, host: str) -> bool:
        found = self._replication
        return isinstance(found, MasterReplication) and found.knows_slave(host)


class RoleChangeHandlers:
    """Serves NOTIFY_BROKER_ROLE_CHANGED of controllers.

    Args:
        controllers: returns the addresses of the known controllers.
    """

    def __init__(
        self,
        observe: Callable[[GroupState], None],
        known_hosts: KnownHosts,
        controllers: Callable[[], Iterable[str]],
    ) -> None:
        self._observe = observe
        self._known_hosts = known_hosts
        self._controller = Speaker(
            "a controller", "Name the controllers in controllerAddr", controllers
        )

    @handles(RoleChangedHeader, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    async def role_changed(self, request: Request[RoleChangedHeader]) -> Reply:
        code, peer = request.frame.code, request.connection.peer
        await self._known_hosts.require(code, peer, self._controller)
        state = state_of(request.header, bytes(request.body))
        assert state is not None  # the epoch is required
        self._observe(state)
        return Reply()
