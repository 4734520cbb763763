"""The slave that stands in for the master of its group while there is none.

It is the living member with the lowest id, in a group with fixed roles (`enableSlaveActingMaster`).
NameServers show it to clients as the master, without permission to write, so that consumers go on:
they pull, pop, commit offsets and lock queues here. Delayed and timed messages that are due go to
other groups (`escape`). Their progress, the offsets and the pops go home when the master is back
(`homecoming`).

Each NameServer is asked for the members of the group periodically, and after each notice that the
lowest id has changed.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

from bolide.broker.delay import DelayScheduler
from bolide.broker.pop.acting import ActingPop
from bolide.broker.pop.events import Event
from bolide.broker.replicas.escape import Escape
from bolide.broker.replicas.role import MASTER_ID, Role
from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers.acting import ActingTimers
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import MemberGroupBody
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import BrokerMemberGroupHeader
from bolide.remoting.client import RemotingClient

log = logging.getLogger(__name__)

_QUERY_TIMEOUT = 1.0
_HOLD = 10.0
"""Seconds for which a slave does not act after a master has said that it is starting."""

Members = Mapping[int, str]
"""Addresses of the members of a group by broker id."""


def acts(answers: Iterable[Members], broker_id: int, *, is_replicating: bool) -> bool:
    """Whether a slave acts for the master of its group.

    Args:
        answers: the members that each NameServer named, of those that answered.
        is_replicating: whether this slave is connected to a master, which is alive then, whatever
            NameServers say.
    """
    named = list(answers)
    ids = {each for members in named for each in members}
    if is_replicating or MASTER_ID in ids:
        return False
    return broker_id in ids and broker_id == min(ids)


async def members_of_group(client: RemotingClient, config: BrokerConfig) -> list[Members]:
    """Ask the NameServers for the members of this broker's group; those that answer count."""
    header = BrokerMemberGroupHeader(config.broker_cluster_name, config.broker_name)
    answers = await asyncio.gather(
        *(_members(client, server, header) for server in config.name_servers)
    )
    return [each for each in answers if each is not None]


async def _members(
    client: RemotingClient, server: str, header: BrokerMemberGroupHeader
) -> Members | None:
    code = RequestCode.GET_BROKER_MEMBER_GROUP
    try:
        async with asyncio.timeout(_QUERY_TIMEOUT):
            answer = await client.call(server, code, header, within=_QUERY_TIMEOUT)
        return fastjson.decode(answer.body, MemberGroupBody).broker_member_group.broker_addrs
    except (BolideError, OSError, ValueError, TimeoutError) as exc:
        log.debug("NameServer %s does not name the members of this group: %s", server, exc)
        return None


class ActingMaster:
    """Decides whether a slave acts, and runs what it does then; belongs to one event loop."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        role: Role,
        *,
        delay: DelayScheduler,
        timers: ActingTimers,
        pop: ActingPop,
        escape: Escape,
    ) -> None:
        self._cell = cell
        self._role = role
        self._delay = delay
        self._timers = timers
        self._pop = pop
        self.escape = escape
        self.is_acting = False
        self._client: RemotingClient | None = None
        self._services: list[asyncio.Task[None]] = []
        self._popping: list[asyncio.Task[None]] = []
        self._changing = asyncio.Lock()
        self._look_again = asyncio.Event()
        self._held_until = 0.0

    def use(self, client: RemotingClient) -> None:
        self._client = client
        self.escape.use(client)

    def look_again(self) -> None:
        """Ask the NameServers soon: a notice said that the group has changed."""
        self._look_again.set()

    async def run(self, replication: SlaveReplication) -> None:
        """Act whenever the group has no master, until cancelled."""
        config = self._cell.value
        if not config.enable_slave_acting_master:
            await asyncio.Event().wait()
        if self._role.is_elected:
            log.info("enableSlaveActingMaster has no effect: the controller elects a master")
            await asyncio.Event().wait()
        try:
            while True:
                self._look_again.clear()
                await self.look(replication)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._cell.value.sync_broker_member_group_period):
                        await self._look_again.wait()
        finally:
            self.is_acting = False
            await self._stop()
            await self._stop_pops()

    async def look(self, replication: SlaveReplication) -> None:
        """Ask the NameServers once, and begin or cease to act as they say."""
        assert self._client is not None
        answers = await members_of_group(self._client, self._cell.value)
        if not answers:  # as before: nothing is known
            return
        if ids := {each for members in answers for each in members}:
            replication.lowest_id = min(ids)
        wanted = acts(
            answers,
            self._role.broker_id,
            is_replicating=replication.replica.master is not None,
        )
        async with self._changing:
            if wanted and not self.is_acting and self._now() >= self._held_until:
                await self._begin()
            elif not wanted and self.is_acting:
                await self._cease()
        await self._follow_setting()

    async def yield_to_master(self) -> None:
        """A master of the group is starting: do not act, and return when nothing is under way."""
        async with self._changing:
            self._held_until = self._now() + _HOLD
            if self.is_acting:
                await self._cease()

    def popped_meanwhile(self) -> list[Event]:
        """What was popped and acknowledged here, for the journal of the master."""
        return self._pop.events()

    async def _begin(self) -> None:
        await self._pop.begin()
        self.is_acting = True
        self.escape.start()
        log.warning(
            "group %s has no master: this slave acts for it%s",
            self._cell.value.broker_name,
            "" if self._cell.value.enable_remote_escape
            else "; due messages wait for the master, enableRemoteEscape=true would have them"
            " delivered by other groups",
        )  # fmt: skip
        self._popping = [_started(self._pop.run(), "acting-pop")]

    async def _cease(self) -> None:
        self.is_acting = False
        await self._stop()
        await self._stop_pops()
        log.warning(
            "this slave does not act for the master any more; other groups took %s messages",
            self.escape.sent,
        )

    async def _follow_setting(self) -> None:
        """Deliver while this slave acts and `enableRemoteEscape` is true."""
        async with self._changing:
            delivers = self.is_acting and self._cell.value.enable_remote_escape
            if delivers and not self._services:
                self._services = [
                    _started(self._delay.run(self.escape.send), "acting-delay"),
                    _started(self._timers.run(self.escape.send), "acting-timers"),
                ]
            elif not delivers:
                await self._stop()

    async def _stop(self) -> None:
        """End the deliveries; those under way are finished and counted."""
        services, self._services = self._services, []
        await _cancel(services)

    async def _stop_pops(self) -> None:
        popping, self._popping = self._popping, []
        await _cancel(popping)
        self._pop.cease()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _started(job: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    task = asyncio.create_task(job, name=name)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("%s ended unexpectedly", task.get_name(), exc_info=failure)
