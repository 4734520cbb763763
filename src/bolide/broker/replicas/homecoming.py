"""What a master asks the slaves of its group for before it serves (`BrokerPreOnlineService`).

While it was away, consumers committed offsets to a slave, and an acting master delivered messages.
The master tells each living slave that it is coming, so that the slave ceases to act, and adopts
what is ahead of its own: consumer offsets, delay offsets, the checkpoint of the timers, and the
queues that were popped there. No offset goes backwards, and a slave that does not answer does not
stop the start.
"""

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from bolide.broker.background import ADMIN, TIMERS, on_thread
from bolide.broker.delay import DelayScheduler
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.pop.events import decode_events
from bolide.broker.pop.pop import Pop
from bolide.broker.replicas.acting_master import members_of_group
from bolide.broker.replicas.role import MASTER_ID
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers import Timers
from bolide.errors import BolideError
from bolide.protocol import fastjson
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.replication import HaAddresses
from bolide.remoting.address import format_address
from bolide.remoting.client import RemotingClient
from bolide.store.message_store import MessageStore
from bolide.store.tables import DelayOffsets, decode_table
from bolide.store.timers import TimerCheckpoint

log = logging.getLogger(__name__)

_TIMEOUT = 3.0
_CHECKPOINT_SIZE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Homecoming:
    """Takes home what the slaves of a group have; used once, before its master serves."""

    client: RemotingClient
    config: BrokerConfig
    store: MessageStore
    offsets: OffsetTable
    delay: DelayScheduler
    timers: Timers
    pop: Pop

    async def take_home(self) -> None:
        """Ask all living slaves; takes at most some seconds."""
        if self.config.skip_pre_online or not self.config.name_servers:
            return
        try:
            async with asyncio.timeout(_TIMEOUT):
                answers = await members_of_group(self.client, self.config)
                slaves = {each: members[each] for members in answers for each in sorted(members)}
                slaves.pop(MASTER_ID, None)
                for address in slaves.values():
                    if address != self._own_address:  # this broker was a slave before
                        await self._take_from(address)
        except TimeoutError:
            log.warning("the slaves of this group did not tell in time what happened meanwhile")

    async def _take_from(self, slave: str) -> None:
        try:
            await self._announce(slave)
            for take in (self._take_offsets, self._take_delay, self._take_timers):
                await take(slave)
        except (BolideError, OSError, ValueError, msgspec.DecodeError) as exc:
            log.warning("slave %s does not tell what happened meanwhile: %s", slave, exc)

    async def _announce(self, slave: str) -> None:
        """Tell a slave that its master is coming; it answers when it has ceased to act, with what
        was popped there."""
        config = self.config
        header = HaAddresses(
            master_ha_address=format_address((config.broker_ip2, config.ha_listen_port)),
            master_flush_offset=self.store.flushed,
            master_address=self._own_address,
        )
        code = RequestCode.EXCHANGE_BROKER_HA_INFO
        answer = await self.client.call(slave, code, header, within=_TIMEOUT)
        if answer.body:  # one of RocketMQ sends none
            self.pop.take_over(await on_thread(ADMIN, decode_events, bytes(answer.body)))

    @property
    def _own_address(self) -> str:
        return format_address((self.config.broker_ip1, self.config.listen_port))

    async def _take_offsets(self, slave: str) -> None:
        answer = await self.client.call(slave, RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = await on_thread(ADMIN, decode_table, bytes(answer.body), ConsumerOffsets)
        taken = self.offsets.take_ahead(table, self.store.max_offset)
        self._report("consumer offsets", slave, taken)

    async def _take_delay(self, slave: str) -> None:
        answer = await self.client.call(slave, RequestCode.GET_ALL_DELAY_OFFSET)
        table = fastjson.decode(bytes(answer.body), DelayOffsets)
        self._report("delay levels", slave, self.delay.take_ahead(table))

    async def _take_timers(self, slave: str) -> None:
        try:
            answer = await self.client.call(slave, RequestCode.GET_TIMER_CHECK_POINT)
        except BolideError:
            return  # RocketMQ 4.9 has no timers, and 5.x may have them switched off
        checkpoint = TimerCheckpoint.decode(bytes(answer.body).ljust(_CHECKPOINT_SIZE, b"\0"))
        is_taken = await on_thread(TIMERS, self.timers.take_ahead, checkpoint)
        self._report("checkpoints of the timers", slave, int(is_taken))

    @staticmethod
    def _report(what: str, slave: str, count: int) -> None:
        if count:
            log.info("took %s %s over from slave %s", count, what, slave)
