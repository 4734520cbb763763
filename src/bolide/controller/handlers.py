"""Request handlers of a controller (`ControllerRequestProcessor`).

A controller that does not lead answers CONTROLLER_NOT_LEADER (2007). Reads are confirmed by the
log: a leader that was replaced without noticing answers nothing.
"""

import asyncio
from collections.abc import Callable

import msgspec

from bolide.config import ConfigCell
from bolide.controller.commands import (
    NO_BROKER,
    Alter,
    ApplyId,
    Begin,
    Clean,
    Command,
    Group,
    Member,
    Register,
    Result,
)
from bolide.controller.config import ControllerConfig
from bolide.controller.elections import Elections
from bolide.controller.liveness import LiveTable
from bolide.controller.notices import sync_state_body
from bolide.controller.own_brokers import OwnBrokers
from bolide.controller.proposals import Done, Proposals, View
from bolide.protocol import fastjson
from bolide.protocol.bodies.controller import (
    ElectedMaster,
    Replica,
    Replicas,
    ReplicasTable,
    SyncStateSet,
)
from bolide.protocol.bodies.routes import MemberGroup
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import FrameFlag
from bolide.protocol.header import Header, NoHeader
from bolide.protocol.headers.controller import (
    AlterSyncStateSetHeader,
    AlterSyncStateSetReply,
    ApplyBrokerIdHeader,
    ApplyBrokerIdReply,
    BrokerHeartbeatReply,
    CleanBrokerHeader,
    ElectMasterHeader,
    ElectMasterReply,
    MetadataReply,
    NextBrokerIdHeader,
    NextBrokerIdReply,
    RegisterBrokerHeader,
    RegisterBrokerReply,
    ReplicaHeader,
    ReplicaReply,
)
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader
from bolide.protocol.refusals import InvalidParameter, Refusal, refusal_for
from bolide.remoting.dispatch import Reply, Request, handles

_SHORT_BODY = 64 * 1024
_MAX_NAME = 255
_MAX_CHECK_CODE = 300
"""RocketMQ's and ours are an address and a time."""
_CONFIRMED = 1.0
"""Seconds for which an applied entry counts as proof of leadership for METADATA_INFO."""


class Leadership:
    """Turns the callbacks of the leader's parts into answers."""

    def __init__(self, view: View, proposals: Proposals, elections: Elections) -> None:
        self.view = view
        self.proposals = proposals
        self.elections = elections

    async def run(self, start: Callable[[Done], None]) -> Result:
        """Run a command to its result."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def done(result: Result) -> None:
            if not future.done():
                future.set_result(result)

        start(done)
        return await future

    async def confirm(self) -> None:
        """Raises Refusal unless this controller is proved to lead."""
        require(await self.run(self.proposals.confirm))


class BrokerHandlers:
    """Serves brokers: ids, registration, heartbeats, elections, sync-state sets."""

    def __init__(
        self,
        leadership: Leadership,
        live: LiveTable,
        config: ConfigCell[ControllerConfig],
        own: OwnBrokers,
    ) -> None:
        self._leadership = leadership
        self._view = leadership.view
        self._proposals = leadership.proposals
        self._elections = leadership.elections
        self._live = live
        self._config = config
        self._own = own

    @handles(BrokerHeartbeatHeader, RequestCode.BROKER_HEARTBEAT)
    async def heartbeat(self, request: Request[BrokerHeartbeatHeader]) -> Reply:
        header = request.header
        if header.broker_id is None:
            raise refusal_for(
                ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId"
            )
        _check("brokerAddr", header.broker_addr)
        self._own.require_cluster(header.broker_name, header.cluster_name)
        await self._own.require(request, header.broker_name, header.broker_id)
        is_leased = not request.frame.flag & FrameFlag.ONE_WAY
        if self._is_member(header):  # others would fill the memory
            self._live.heartbeat(header, request.connection, is_leased=is_leased)
        if not is_leased:
            return Reply()
        if not self._proposals.is_acting:
            return self._state_reply(header, leads=False)
        answered: asyncio.Future[tuple[bool, bool]] = asyncio.get_running_loop().create_future()

        def answer(leads: bool, has_lease: bool) -> None:
            if not answered.done():
                answered.set_result((leads, has_lease))

        self._elections.heartbeat(header.broker_name, header.broker_id, answer)
        leads, has_lease = await answered
        return self._state_reply(header, leads=leads, has_lease=has_lease)

    def _is_member(self, header: BrokerHeartbeatHeader) -> bool:
        """Whether the sender is the broker that registered with its id, and not another one."""
        member = self._member(header.broker_name, header.broker_id or 0)
        return member is not None and member.address == header.broker_addr

    @handles(NextBrokerIdHeader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    async def next_id(self, request: Request[NextBrokerIdHeader]) -> Reply:
        await self._leadership.confirm()
        header = request.header
        group = self._view.groups.get(header.broker_name)
        next_id = 1 if group is None else group.next_id
        return Reply(header=NextBrokerIdReply(header.cluster_name, header.broker_name, next_id))

    @handles(ApplyBrokerIdHeader, RequestCode.CONTROLLER_APPLY_BROKER_ID)
    async def apply_id(self, request: Request[ApplyBrokerIdHeader]) -> Reply:
        header = request.header
        _check("clusterName", header.cluster_name)
        _check("brokerName", header.broker_name)
        _check("registerCheckCode", header.register_check_code, _MAX_CHECK_CODE)
        self._own.require_cluster(header.broker_name, header.cluster_name)
        command = ApplyId(
            header.cluster_name,
            header.broker_name,
            header.applied_broker_id,
            header.register_check_code,
            self._own.host_of(request),
        )
        require(await self._leadership.run(lambda done: self._proposals.submit(command, done)))
        return Reply(header=ApplyBrokerIdReply(header.cluster_name, header.broker_name))

    @handles(RegisterBrokerHeader, RequestCode.CONTROLLER_REGISTER_BROKER)
    async def register(self, request: Request[RegisterBrokerHeader]) -> Reply:
        header = request.header
        _check("brokerAddress", header.broker_address)
        if header.process_id:
            _check("processId", header.process_id)
        self._own.require_cluster(header.broker_name, header.cluster_name)
        await self._own.require(request, header.broker_name, header.broker_id)
        self._own.require_no_other(header)
        command = Register(
            header.broker_name,
            header.broker_id,
            header.broker_address,
            header.restarted,
            header.lost_tail,
            self._own.host_of(request),
            header.confirms_terms,
            header.process_id or "",
        )
        if header.restarted and self._member(header.broker_name, header.broker_id) is not None:
            self._live.restarted(header.broker_name, header.broker_id)
        group = require(
            await self._leadership.run(lambda done: self._proposals.submit(command, done))
        )
        self._elections.elect_if_vacant(header.broker_name)
        # The epochs are told also without a living master: what is older is void for the broker.
        has_master = self._live.find(group.name, group.master) is not None
        reply = RegisterBrokerReply(
            header.cluster_name,
            header.broker_name,
            group.master if has_master else None,
            group.master_address if has_master else None,
            group.epoch,
            group.sync_state_set_epoch,
            self._view.quorum or None,
        )
        return Reply(header=reply, body=sync_state_body(group))

    @handles(ElectMasterHeader, RequestCode.CONTROLLER_ELECT_MASTER)
    async def elect(self, request: Request[ElectMasterHeader]) -> Reply:
        header = request.header
        self._own.require_cluster(header.broker_name, header.cluster_name)
        broker = max(header.broker_id, NO_BROKER)
        if header.designate_elect or broker == NO_BROKER:
            self._own.require_administrator(request, "an election of a designated master")
        else:
            await self._own.require(request, header.broker_name, broker)
        result = await self._leadership.run(
            lambda done: self._elections.elect(
                header.broker_name, broker, designate=header.designate_elect, done=done
            )
        )
        if result.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH:
            # Another election came first: its master is the answer.
            has_master = result.group is not None and result.group.master is not None
            code = (
                ResponseCode.CONTROLLER_MASTER_STILL_EXIST
                if has_master
                else ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
            )
            result = Result(code, result.remark, result.group)
        still = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        if result.code not in {ResponseCode.SUCCESS, still} or result.group is None:
            raise refusal_for(result.code, result.remark)
        return _elected(result, result.group, is_new=result.code == ResponseCode.SUCCESS)

    @handles(
        AlterSyncStateSetHeader,
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        max_body=_SHORT_BODY,
        refused_with=AlterSyncStateSetReply(0),
    )
    async def alter(self, request: Request[AlterSyncStateSetHeader]) -> Reply:
        header = request.header
        await self._own.require_master(request, header.broker_name, header.master_broker_id)
        command = _begin(header) if header.begins else self._alter(header, bytes(request.body))
        group = require(
            await self._leadership.run(lambda done: self._proposals.submit(command, done))
        )
        reply = AlterSyncStateSetReply(group.sync_state_set_epoch)
        return Reply(header=reply, body=sync_state_body(group))

    def _alter(self, header: AlterSyncStateSetHeader, body: bytes) -> Command:
        wanted = fastjson.decode(body or b"{}", SyncStateSet)
        return Alter(
            group=header.broker_name,
            master=header.master_broker_id,
            epoch=header.master_epoch,
            set_epoch=wanted.sync_state_set_epoch,
            new=tuple(sorted(set(wanted.sync_state_set))),
            alive=tuple(each.id for each in self._live.alive(header.broker_name)),
            renew=header.renew,
        )

    @handles(ReplicaHeader, RequestCode.CONTROLLER_GET_REPLICA_INFO)
    async def replica_info(self, request: Request[ReplicaHeader]) -> Reply:
        await self._leadership.confirm()
        group = self._view.groups.get(request.header.broker_name)
        if group is None or group.is_removed:
            raise refusal_for(
                ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed"
            )
        reply = ReplicaReply(group.master, group.master_address, group.epoch)
        return Reply(header=reply, body=sync_state_body(group))

    def _member(self, name: str, broker: int) -> Member | None:
        group = self._view.groups.get(name)
        return None if group is None else group.members.get(broker)

    def _state_reply(
        self, asked: BrokerHeartbeatHeader, *, leads: bool, has_lease: bool = False
    ) -> Reply:
        """What a broker is told; one that is no member learns nothing that it could follow."""
        times, name = self._config.value.times, asked.broker_name
        group = self._view.groups.get(name) if self._is_member(asked) else None
        reply = BrokerHeartbeatReply(
            lease_millis=round(times.lease * 1000) if has_lease and group is not None else 0,
            heartbeat_millis=round(times.heartbeat * 1000),
            controller_leader_address=leader_address(self._config.value, self._view),
            quorum_id=self._view.quorum or None,
            is_member=False if leads and group is None else None,
        )
        if group is not None:
            reply = msgspec.structs.replace(
                reply,
                master_broker_id=group.master,
                master_address=group.master_address,
                master_epoch=group.epoch,
                sync_state_set_epoch=group.sync_state_set_epoch,
            )
        return Reply(
            header=reply,
            body=b"" if group is None else sync_state_body(group),
            code=ResponseCode.SUCCESS if leads else ResponseCode.CONTROLLER_NOT_LEADER,
            remark=None if leads else "this controller is not the leader",
        )


class AdminHandlers:
    """Serves administrators, and brokers that look for the leader."""

    def __init__(
        self,
        leadership: Leadership,
        live: LiveTable,
        config: ConfigCell[ControllerConfig],
        own: OwnBrokers,
        clock: Callable[[], float],
    ) -> None:
        self._leadership = leadership
        self._view = leadership.view
        self._proposals = leadership.proposals
        self._elections = leadership.elections
        self._live = live
        self._config = config
        self._own = own
        self._clock = clock

    @handles(NoHeader, RequestCode.CONTROLLER_GET_METADATA_INFO)
    async def metadata(self, request: Request[NoHeader]) -> Reply:
        config, leads = self._config.value, self._proposals.is_acting
        if leads and self._clock() - self._proposals.confirmed_at > _CONFIRMED:
            result = await self._leadership.run(self._proposals.confirm)
            leads = result.code == ResponseCode.SUCCESS
        address = leader_address(config, self._view)
        reply = MetadataReply(
            group=config.controller_d_leger_group,
            controller_leader_id=self._view.leader if address else None,
            controller_leader_address=address,
            is_leader=leads,
            peers="".join(f"{each.id}:{each.address};" for each in config.peers),
            quorum_id=self._view.quorum,
        )
        return Reply(header=reply)

    @handles(NoHeader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, max_body=_SHORT_BODY)
    async def sync_state_data(self, request: Request[NoHeader]) -> Reply:
        names = fastjson.decode(request.body or b"[]", list[str])
        await self._leadership.confirm()
        groups = (self._view.groups.get(name) for name in names)
        table = {
            group.name: self._replicas(group)
            for group in groups
            if group is not None and not group.is_removed
        }
        return Reply(body=fastjson.encode(ReplicasTable(replicas_info_table=table)))

    @handles(CleanBrokerHeader, RequestCode.CLEAN_BROKER_DATA)
    async def clean(self, request: Request[CleanBrokerHeader]) -> Reply:
        header = request.header
        self._own.require_cluster(header.broker_name, header.cluster_name or "")
        words = (header.broker_controller_ids_to_clean or "").split(";")
        try:
            ids = tuple(int(word) for word in words if word.strip())
        except ValueError as exc:
            raise refusal_for(
                ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
                "Please set the option <brokerControllerIdsToClean> according to the format,"
                f" exception: {exc}",
            ) from exc
        command = Clean(
            group=header.broker_name,
            ids=ids,
            alive=tuple(each.id for each in self._live.alive(header.broker_name)),
            forced=header.is_clean_living_broker,
        )
        result = await self._leadership.run(lambda done: self._elections.clean(command, done))
        if result.code != ResponseCode.SUCCESS:
            raise refusal_for(result.code, result.remark)
        return Reply()

    def _replicas(self, group: Group) -> Replicas:
        in_sync: list[Replica] = []
        others: list[Replica] = []
        for id_, member in sorted(group.members.items()):
            is_alive = self._live.find(group.name, id_) is not None
            replica = Replica(
                broker_name=group.name,
                broker_id=id_,
                broker_address=member.address,
                alive=is_alive,
            )
            (in_sync if id_ in group.sync_state_set else others).append(replica)
        return Replicas(
            master_broker_id=group.master,
            master_address=group.master_address,
            master_epoch=group.epoch,
            sync_state_set_epoch=group.sync_state_set_epoch,
            in_sync_replicas=in_sync,
            not_in_sync_replicas=others,
        )


def _begin(header: AlterSyncStateSetHeader) -> Begin:
    return Begin(
        group=header.broker_name, master=header.master_broker_id, epoch=header.master_epoch
    )


def _check(field: str, text: str, longest: int = _MAX_NAME) -> None:
    """Raises InvalidParameter for a text that should not be stored."""
    if not 0 < len(text) <= longest or not text.isprintable():
        raise InvalidParameter(f"{field} must have 1 to {longest} printable characters")


def require(result: Result) -> Group:
    """The group after a command that succeeded. Raises Refusal otherwise."""
    if result.code != ResponseCode.SUCCESS:
        raise _refusal(result)
    return result.group or Group(cluster="", name="")


def leader_address(config: ControllerConfig, view: View) -> str | None:
    """The address of the last leader in the log."""
    return next((each.address for each in config.peers if each.id == view.leader), None)


def _refusal(result: Result) -> Refusal:
    return refusal_for(result.code, result.remark)


def _elected(result: Result, group: Group, *, is_new: bool) -> Reply:
    header: Header = ElectMasterReply(
        group.master, group.master_address, group.epoch, group.sync_state_set_epoch
    )
    members = {id_: member.address for id_, member in group.members.items()}
    body = ElectedMaster(
        broker_member_group=MemberGroup(
            cluster=group.cluster, broker_name=group.name, broker_addrs=members
        )
        if is_new
        else None,
        sync_state_set=list(group.sync_state_set),
    )
    return Reply(
        header=header,
        # mqadmin of 5.5 does not read member ids without quotes.
        body=fastjson.encode(body, standard=True),
        code=result.code,
        remark=result.remark or None,
    )
