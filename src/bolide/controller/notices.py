"""NOTIFY_BROKER_ROLE_CHANGED: tell the brokers of a group about its master and sync-state set.

Every controller tells the brokers that sent it heartbeats, over their own connections, as soon as
it has applied the change: brokers ignore an epoch that they know. RocketMQ's brokers expect the
leader to call them at their address, and only after an election.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from bolide.controller.commands import Group
from bolide.controller.liveness import LiveBroker, LiveTable
from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.controller import SyncStateSet
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.controller import RoleChangedHeader
from bolide.remoting.client import RemotingClient
from bolide.remoting.connection import Connection

log = logging.getLogger(__name__)

_CODE = RequestCode.NOTIFY_BROKER_ROLE_CHANGED


class RoleNotices:
    """Sends notices; unsent ones are dropped by `close`."""

    def __init__(
        self,
        live: LiveTable,
        client: RemotingClient,
        is_acting: Callable[[], bool],
        quorum: Callable[[], str],
    ) -> None:
        self._live = live
        self._client = client
        self._is_acting = is_acting
        self._quorum = quorum
        self._tasks: set[asyncio.Task[None]] = set()

    def changed(self, before: Group | None, after: Group | None) -> None:
        """A group has another value now."""
        if after is None or (before is not None and _roles(before) == _roles(after)):
            return
        is_elected = before is None or before.epoch != after.epoch
        for broker in self._live.alive(after.name):
            if broker.is_leased:
                self._start(self._push(broker, after))
            elif is_elected and after.master is not None and self._is_acting():
                self._start(self._call(broker, after))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _start(self, sending: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(sending)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self, broker: LiveBroker, group: Group) -> None:
        connection = broker.connection
        if not isinstance(connection, Connection):
            return
        fields = self._header(group).to_fields()
        try:
            await connection.notify(Frame(code=_CODE, fields=fields, body=sync_state_body(group)))
        except BolideError as exc:
            log.debug("could not notify broker %s: %s", broker.address, exc)

    async def _call(self, broker: LiveBroker, group: Group) -> None:
        try:
            await self._client.notify(
                broker.address, _CODE, self._header(group), body=sync_state_body(group)
            )
        except (BolideError, ValueError) as exc:
            log.warning("could not notify broker %s: %s", broker.address, exc)

    def _header(self, group: Group) -> RoleChangedHeader:
        return RoleChangedHeader(
            master_address=group.master_address,
            master_epoch=group.epoch,
            sync_state_set_epoch=group.sync_state_set_epoch,
            master_broker_id=group.master,
            quorum_id=self._quorum() or None,
        )


def sync_state_body(group: Group) -> bytes:
    """The sync-state set of a group as a body."""
    return fastjson.encode(
        SyncStateSet(
            sync_state_set=list(group.sync_state_set),
            sync_state_set_epoch=group.sync_state_set_epoch,
        )
    )


def _roles(group: Group) -> tuple[object, ...]:
    return group.master, group.epoch, group.sync_state_set_epoch, group.master_address
