"""A broker's membership in a group with a controller (RocketMQ: `ReplicasManager`).

The broker gets an id, registers, and sends heartbeats to every controller. Each answer, and each
notice of a controller, says who is master in which epoch and who is in the sync-state set. Of two
states the one with the greater epochs counts. A change of the master makes the broker take another
role.

A master keeps the sync-state set: a slave that has caught up is added, one that is gone or falls
behind is removed, both by the controller. Until the controller has answered, everybody counts who
may be in the set, so that no message is confirmed that a later master might lack.

A new master takes messages only when the controllers have noted that its term begins. Before that,
other members of the set from which it was elected may still be elected in its place.

The lease of a master ends by its own clock. Without it the broker stops what it does by itself,
because another master may do the same by then.

While the settings name controllers of different quorums, the broker is no master and sends no
heartbeats: each quorum may elect a master of its own. It neither leads nor follows when the leading
controller does not know it: another broker may have its id, and the group may be another one.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple

from bolide.broker.replicas.controllers import (
    Beat,
    Controllers,
    DifferentQuorums,
    GroupState,
    NoLeader,
)
from bolide.broker.replicas.enrolment import Enrolment
from bolide.broker.replicas.identity import IdentityFile
from bolide.broker.replicas.master import MasterReplication
from bolide.broker.replicas.role import MASTER_ID, Role, RoleKind
from bolide.broker.replicas.sync_state_set import SyncStateSetRule
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.controller.liveness import boot_clock
from bolide.errors import BolideError
from bolide.events import Listeners
from bolide.protocol import fastjson
from bolide.protocol.bodies.controller import SyncStateSet
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.controller import (
    AlterSyncStateSetHeader,
    AlterSyncStateSetReply,
    ElectMasterHeader,
)
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader
from bolide.protocol.refusals import Refusal
from bolide.replication.epochs import Epochs
from bolide.store.message_store import MessageStore

log = logging.getLogger(__name__)

_FIRST_INTERVAL = 0.3
_RETRY_DELAY = 0.5
_SET_CHECK_INTERVAL = 0.25
_SURVEY_INTERVAL = 1.0
_CONFIRM_RETRY = 0.05
_TRIES_TO_LEAD = 3
"""Failures to become master after which the controller is to choose another member."""
_NOBODY = -1
"""Counts as a member until a term is confirmed: it has nothing, so nothing is confirmed."""

TakeRole = Callable[[Role], Awaitable[None]]


class Membership:
    """Keeps a broker a member of its group; `run` is its task. Belongs to one event loop.

    Args:
        take_role: makes the broker what the controller has decided; waits until it is. A master
            serves nobody yet.
        open_term: has the broker serve as the master that it has become, with a sync-state set.
        replication: returns the slaves of this broker while it is master.
    """

    def __init__(  # noqa: PLR0913  a member knows its store, its group and its controllers
        self,
        cell: ConfigCell[BrokerConfig],
        store: MessageStore,
        controllers: Controllers,
        identity: IdentityFile,
        *,
        epochs: Epochs,
        address: Callable[[], str],
        take_role: TakeRole,
        open_term: Callable[[Collection[int]], None],
        replication: Callable[[], MasterReplication | None],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._cell = cell
        self._store = store
        self._controllers = controllers
        self._epochs = epochs
        self._address = address
        self._take_role = take_role
        self._open_term = open_term
        self._replication = replication
        self._clock = clock
        self._enrolment = Enrolment(
            cell, store, controllers, identity, epochs=epochs, address=address
        )
        self._identity_path = identity.path
        self._rule = SyncStateSetRule(cell, store, epochs, clock)
        self.state: GroupState | None = None
        self._conflict = ""
        """Why the controllers cannot be of one quorum; empty if they are."""
        self._is_known = True
        """Whether the leading controller knows this broker as a member of the group."""
        self._changed = asyncio.Event()
        self._lease_end = 0.0
        self.on_lease: Listeners[bool] = Listeners()
        """Emitted when the lease of a master is lost or regained."""
        self._had_lease = False
        self._interval = _FIRST_INTERVAL
        self._failed_roles = 0
        """Failures in a row to become what the controller has decided."""
        self._begun = -1
        """Epoch in which this broker serves as master."""
        self._unresolved: frozenset[int] = frozenset()
        """Additions to the set that the controller may have applied and has not answered."""

    @property
    def member_id(self) -> int:
        """The id of this broker in its group; -1 until it has one."""
        return self._enrolment.member_id

    # ---- life

    async def run(self) -> None:
        """Join the group and follow its controller until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_state(), name="membership-roles")
            await self._join()
            tasks.create_task(self._watch_quorum(), name="membership-quorum")
            tasks.create_task(self._keep_set(), name="membership-sync-state-set")
            tasks.create_task(self._send_heartbeats(), name="membership-heartbeats")
            tasks.create_task(self._watch_lease(), name="membership-lease")

    async def _join(self) -> None:
        state = await self._enrolment.run()
        if state is not None:
            self.observe(state)
        self._changed.set()  # what was told before this broker had its id counts now

    async def _watch_quorum(self) -> None:
        """Look again and again whether all controllers are of the quorum that was joined."""
        while True:
            await asyncio.sleep(_SURVEY_INTERVAL)
            try:
                await self._controllers.survey(is_joining=False)
            except DifferentQuorums as exc:
                self._note_conflict(str(exc))
            except Exception:
                log.exception("the quorums of the controllers cannot be compared; trying again")
            else:
                self._note_conflict("")

    def _note_conflict(self, found: str) -> None:
        if found == self._conflict:
            return
        if found:
            log.error("this broker acts as no master: %s", found)
        else:
            log.warning("all controllers are of one quorum again")
        self._conflict = found
        self._changed.set()

    # ---- heartbeats and the lease

    async def _send_heartbeats(self) -> None:
        """Send heartbeats to all controllers; one that does not answer holds up no other."""
        under_way: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                is_silent = self._cannot_lead or self._conflict
                for address in () if is_silent else self._controllers.known():
                    if address not in under_way or under_way[address].done():
                        under_way[address] = asyncio.create_task(self._send_heartbeat(address))
                await asyncio.sleep(self._interval)
        finally:
            for task in under_way.values():
                task.cancel()
            await asyncio.gather(*under_way.values(), return_exceptions=True)

    async def _send_heartbeat(self, address: str) -> None:
        sent = self._clock()
        try:
            beat = await self._controllers.heartbeat(address, self._heartbeat())
            if beat is not None:
                self._interval = beat.interval or self._interval
                self._received(beat, sent)
                if beat.is_leader and beat.is_member and not beat.has_master:
                    await self._ask_for_election()
        except Exception:  # the next heartbeat follows, whatever this controller answers
            log.exception("the answer of controller %s to a heartbeat cannot be used", address)

    @property
    def _cannot_lead(self) -> bool:
        """Whether this broker was elected and does not become master, as on a full disk.

        It is silent then, so that the controller takes it for dead; it goes on trying.
        """
        is_elected = self.state is not None and self.state.master_id == self.member_id
        return is_elected and self._failed_roles >= _TRIES_TO_LEAD

    def _heartbeat(self) -> BrokerHeartbeatHeader:
        config, last = self._cell.value, self._epochs.last
        return BrokerHeartbeatHeader(
            cluster_name=config.broker_cluster_name,
            broker_addr=self._address(),
            broker_name=config.broker_name,
            broker_id=self.member_id,
            epoch=last.epoch if last else -1,
            max_offset=self._store.sound_end,
            confirm_offset=self._store.log.readable,
            heartbeat_timeout_mills=10_000,
            election_priority=config.broker_election_priority,
        )

    def _received(self, beat: Beat, sent: float) -> None:
        if beat.is_leader:
            self._note_known(beat.is_member)
            if beat.lease:
                self._lease_end = max(self._lease_end, sent + beat.lease)
        if beat.state is not None:
            self.observe(beat.state)

    def _note_known(self, is_known: bool) -> None:
        if is_known is self._is_known:
            return
        if is_known:
            log.warning("the controllers know this broker as a member again")
        else:
            log.error(
                "this broker is no master and follows none: the controllers do not know it as"
                " member %s of %s. Another broker has registered with that id, or an administrator"
                " has removed it (cleanBrokerMetadata). To have it join as a new member, stop it,"
                " remove %s and start it again",
                self.member_id, self._cell.value.broker_name, self._identity_path,
            )  # fmt: skip
        self._is_known = is_known
        self._changed.set()

    @property
    def has_lease(self) -> bool:
        return self._clock() < self._lease_end

    async def _watch_lease(self) -> None:
        """Announce when the lease of a master ends or comes back."""
        while True:
            if self.has_lease is not self._had_lease:
                self._had_lease = self.has_lease
                self.on_lease(self._had_lease)
            left = self._lease_end - self._clock()
            await asyncio.sleep(min(max(left, 0.02), 0.1))

    async def _ask_for_election(self) -> None:
        """Ask for a master where there is none; the first broker of a group becomes it."""
        config = self._cell.value
        if config.async_learner:
            return
        header = ElectMasterHeader(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=self.member_id,
            designate_elect=False,
            invoke_time=int(time.time() * 1000),
        )
        try:
            await self._controllers.call(RequestCode.CONTROLLER_ELECT_MASTER, header, within=1.0)
        except (Refusal, NoLeader) as exc:
            log.debug("no election: %s", exc)

    # ---- roles

    def observe(self, state: GroupState) -> None:
        """Take note of what a controller says, unless something newer is known."""
        if state.quorum and self._controllers.quorum not in ("", state.quorum):
            return  # what it decided is void here, however great its epochs are
        known = self.state
        if known is None or state.version > known.version:
            if known is not None:
                self._disconnect(known.members - state.members)
            self.state = state
            self._unresolved = frozenset()  # a change that was based on an older state is void
            self._changed.set()
        elif state.version == known.version and known.master_id is None is not state.master_id:
            # A controller that has just started leaves a master out until it hears from it.
            self.state = state
            self._changed.set()

    def _disconnect(self, removed: Iterable[int]) -> None:
        """Have members that left the sync-state set shake hands before they join it again.

        One that lost the end of its log in a power cut may still have a connection on which it
        reported that end.
        """
        master = self._replication()
        if master is not None:
            for member in removed:
                master.primary.disconnect(member)

    async def _follow_state(self) -> None:
        taken: _Wanted | None = None
        reported = ""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted()
            if wanted is not None and wanted != taken and self.member_id >= 0:
                role, taken, self._begun = self._role(wanted), None, -1
                try:
                    await self._take_role(role)
                except Exception as exc:
                    failure = f"cannot become {role}; trying again: {exc}"
                    if failure != reported:
                        reported = failure
                        log.exception("cannot become %s; trying again", role)
                    self._failed_roles += 1
                    self._changed.set()
                    await asyncio.sleep(_RETRY_DELAY)
                    continue
                reported, self._failed_roles = "", 0
                if role.is_master:
                    if not await self._confirm_term(wanted):
                        self._changed.set()
                        continue
                    assert self.state is not None
                    self._open_term(self.state.members | self._unresolved)
                    self._begun = role.epoch
                taken = wanted
            master, state = self._replication(), self.state
            if master is not None and state is not None and state.epoch == master.epoch:
                master.set_members(state.members | self._unresolved)

    def _wanted(self) -> "_Wanted | None":
        """What this broker is to be, as far as it is known."""
        state = self.state
        if state is None:
            return None
        is_void = self._conflict and state.master_id == self.member_id
        return _Wanted(None if is_void or not self._is_known else state.master_id, state.epoch)

    def _role(self, wanted: "_Wanted") -> Role:
        assert self.state is not None
        is_master = wanted.master_id == self.member_id
        return Role(
            kind=RoleKind.MASTER if is_master else RoleKind.SLAVE,
            broker_id=MASTER_ID if is_master else self.member_id,
            is_elected=True,
            member_id=self.member_id,
            epoch=wanted.epoch,
            members=self.state.members | ({_NOBODY} if is_master else set()),
            master_address=(
                None if is_master or wanted.master_id is None else self.state.master_address
            ),
        )

    # ---- the beginning of a term

    async def _confirm_term(self, wanted: "_Wanted") -> bool:
        """Confirm to the controllers that a term begins; returns whether it may.

        It may not if another state is known meanwhile. Without controllers this waits: others may
        be elected as long as they have not noted it.
        """
        confirming = asyncio.create_task(self._confirm_until_noted(wanted.epoch))
        superseding = asyncio.create_task(self._wait_for_other_than(wanted))
        try:
            await asyncio.wait((confirming, superseding), return_when=asyncio.FIRST_COMPLETED)
            return not superseding.done() and self._wanted() == wanted
        finally:
            for task in (confirming, superseding):
                task.cancel()
            await asyncio.gather(confirming, superseding, return_exceptions=True)

    async def _wait_for_other_than(self, wanted: "_Wanted") -> None:
        while self._wanted() == wanted:
            await self._changed.wait()
            self._changed.clear()

    async def _confirm_until_noted(self, epoch: int) -> None:
        reported = ""
        while True:
            try:
                await self._confirm(epoch)
            except Exception as exc:  # noqa: BLE001  whatever fails, nothing may be acknowledged
                if str(exc) != reported:
                    reported = str(exc)
                    log.warning("epoch %s does not begin yet: %s", epoch, exc)
            else:
                return
            await asyncio.sleep(_CONFIRM_RETRY)

    async def _confirm(self, epoch: int) -> None:
        state = self.state
        assert state is not None
        header = AlterSyncStateSetHeader(
            broker_name=self._cell.value.broker_name,
            master_broker_id=self.member_id,
            master_epoch=epoch,
            invoke_time=int(time.time() * 1000),
            begins=True,
        )
        body = SyncStateSet(
            sync_state_set=sorted(state.members), sync_state_set_epoch=state.set_epoch
        )
        try:
            await self._controllers.call(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
                header,
                body=fastjson.encode(body),
                within=1.0,
            )
        except Refusal as exc:
            # RocketMQ's controllers see a set that is not changed, and elect only from this one.
            if exc.code != ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED:
                raise

    # ---- the sync-state set

    async def _keep_set(self) -> None:
        while True:
            await asyncio.sleep(_SET_CHECK_INTERVAL)
            try:
                await self._keep_set_once()
            except Exception:
                log.exception("the sync-state set cannot be kept; trying again")

    async def _keep_set_once(self) -> None:
        master, state = self._replication(), self.state
        # A master that is elected again still has the slaves of its last epoch until the new term.
        if (
            master is None
            or state is None
            or state.master_id != self.member_id
            or not state.epoch == master.epoch == self._begun
        ):
            self._rule.forget()
            return
        wanted = self._rule.wanted(master, state, self.member_id)
        # A set of the same members gets a new epoch. That voids additions of unknown outcome,
        # which would hold up every send if such a member is gone.
        if wanted != state.members or self._unresolved - state.members:
            await self._alter_set(master, state, wanted)

    async def _alter_set(
        self, master: MasterReplication, state: GroupState, wanted: frozenset[int]
    ) -> None:
        """Have the controller replace the set; until it answers, both sets count."""
        before, self._unresolved = self._unresolved, self._unresolved | wanted
        master.set_members(state.members | self._unresolved)
        header = AlterSyncStateSetHeader(
            broker_name=self._cell.value.broker_name,
            master_broker_id=self.member_id,
            master_epoch=state.epoch,
            invoke_time=int(time.time() * 1000),
            renew=wanted == state.members,
        )
        body = SyncStateSet(sync_state_set=sorted(wanted), sync_state_set_epoch=state.set_epoch)
        try:
            answer = await self._controllers.call(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
                header,
                body=fastjson.encode(body),
                within=1.0,
                once=True,
            )
        except Refusal as exc:
            log.info("the sync-state set stays %s: %s", sorted(state.members), exc.remark)
            if self.state is not None and self.state.version == state.version:
                self._unresolved = before
                master.set_members(state.members | before)
            return
        except BolideError as exc:
            # The outcome is unknown: who may have been added counts until a newer state is seen.
            log.debug("the sync-state set is not changed yet: %s", exc)
            return
        epoch = AlterSyncStateSetReply.from_fields(answer.fields).new_sync_state_set_epoch
        log.info("the sync-state set is %s", sorted(wanted))
        self.observe(
            GroupState(
                master_id=state.master_id,
                master_address=state.master_address,
                epoch=state.epoch,
                set_epoch=epoch,
                members=wanted,
                quorum=state.quorum,
            )
        )


class _Wanted(NamedTuple):
    """What the newest state makes of this broker; another one means another role."""

    master_id: int | None
    epoch: int
