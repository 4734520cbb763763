"""How a broker joins its group: it gets an id from the controllers, once, and registers."""

import asyncio
import logging
import os
import time
from collections.abc import Callable

from bolide.broker.replicas.controllers import (
    Controllers,
    DifferentQuorums,
    GroupState,
    NoLeader,
    state_of,
)
from bolide.broker.replicas.identity import IdentityFile, PendingIdentity
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.controller import (
    ApplyBrokerIdHeader,
    NextBrokerIdHeader,
    NextBrokerIdReply,
    RegisterBrokerHeader,
    RegisterBrokerReply,
)
from bolide.protocol.refusals import Refusal
from bolide.replication.epochs import Epochs
from bolide.store.message_store import MessageStore

log = logging.getLogger(__name__)

_RETRY_DELAY = 0.5
_PATIENCE = 3.0
"""Seconds for which controllers may be about to start, too."""


class Enrolment:
    """Joins a group when the broker starts.

    Args:
        epochs: of the log.
        address: returns the address of this broker for requests.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        store: MessageStore,
        controllers: Controllers,
        identity: IdentityFile,
        *,
        epochs: Epochs,
        address: Callable[[], str],
    ) -> None:
        self._cell = cell
        self._store = store
        self._controllers = controllers
        self._identity = identity
        self._epochs = epochs
        self._address = address
        self._process_id = os.urandom(8).hex()
        self.member_id = -1
        """The id of this broker in its group; -1 until it has one."""

    async def run(self) -> GroupState | None:
        """Get an id and register; tries until a controller takes it.

        Returns:
            What the controller says of the group, if it has had a master.
        """
        reported, begun = "", time.monotonic()
        while True:
            try:
                await self._controllers.survey(is_joining=True)
                await self._get_id()
                return await self._register()
            except (BolideError, OSError) as exc:
                may_come = isinstance(exc, NoLeader) and time.monotonic() - begun < _PATIENCE
                if str(exc) != reported and not may_come:
                    reported = str(exc)
                    level = logging.ERROR if isinstance(exc, DifferentQuorums) else logging.WARNING
                    advice = await self._advice(exc)
                    log.log(level, "cannot join the group yet: %s%s", exc, advice)
                await asyncio.sleep(_RETRY_DELAY)

    async def _advice(self, exc: Exception) -> str:
        """What to do about a broker that the controllers do not know."""
        code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        if self.member_id < 0 or not isinstance(exc, Refusal) or exc.code != code:
            return ""
        try:
            next_id = await self._next_id()
        except BolideError as failed:
            return f". It cannot be told whether they know the group: {failed}"
        if next_id > 1:
            return (
                ". They know the group, but not this member: an administrator has removed it"
                " (cleanBrokerMetadata). To have it join as a new member, stop it, remove"
                f" {self._identity.path} and start it again"
            )
        last, end = self._epochs.last, self._store.sound_end
        return (
            f". These controllers know no group {self._cell.value.broker_name}: they are other"
            " controllers than before, or they lost their files. Do not remove the identities of"
            " its members: whichever joins first becomes master, and the others lose what it does"
            " not have. Let the controllers have their files back; or, if these are lost, start"
            " first the member whose log ends last, as docs/how-to/run-controllers.md says. The log"
            f" of this one ends at {end}, its last epoch is {last.epoch if last else 'none'}"
        )

    async def _next_id(self) -> int:
        """The id that a new member would get; 1 if the controllers do not know the group."""
        config = self._cell.value
        header = NextBrokerIdHeader(config.broker_cluster_name, config.broker_name)
        answer = await self._controllers.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        return NextBrokerIdReply.from_fields(answer.fields).next_broker_id

    async def _get_id(self) -> None:
        known = await asyncio.to_thread(self._identity.load)
        if known is not None:
            if self.member_id < 0 and self._store.began_empty:
                reason = "this broker is a member of its group, and its store was empty"
                await asyncio.to_thread(self._store.note_lost_tail, reason)
            self.member_id = known
            return
        config = self._cell.value
        pending = await asyncio.to_thread(self._identity.load_pending)
        if pending is None:
            next_id = await self._next_id()
            code = f"{self._address()};{int(time.time() * 1000)};{os.urandom(4).hex()}"
            pending = PendingIdentity(next_id, code)
            await asyncio.to_thread(self._identity.apply_for, pending)
        try:
            await self._controllers.call(
                RequestCode.CONTROLLER_APPLY_BROKER_ID,
                ApplyBrokerIdHeader(
                    config.broker_cluster_name,
                    config.broker_name,
                    pending.broker_id,
                    pending.check_code,
                ),
            )
        except Refusal:
            # Another broker was quicker: the next attempt asks for the next id.
            await asyncio.to_thread(self._identity.discard_pending)
            raise
        await asyncio.to_thread(self._identity.confirm, pending.broker_id)
        self.member_id = pending.broker_id
        log.info("this broker is member %s of %s", self.member_id, config.broker_name)

    async def _register(self) -> GroupState | None:
        config = self._cell.value
        header = RegisterBrokerHeader(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=self.member_id,
            broker_address=self._address(),
            invoke_time=int(time.time() * 1000),
            restarted=True,
            lost_tail=self._store.may_have_lost_tail,
            process_id=self._process_id,
            confirms_terms=True,
        )
        answer = await self._controllers.call(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        self._store.lost_tail_is_known()
        reply = RegisterBrokerReply.from_fields(answer.fields)
        return state_of(reply, bytes(answer.body))
