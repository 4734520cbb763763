"""One period in which a broker has one role: its parts, and the jobs that run meanwhile.

When a controller changes the role of a broker, the term ends and another begins on the same store
and the same connections. The parts are built anew from the tables and the log, exactly as at a
start, so a new master continues what the old one began: half messages, timers, popped messages and
dedup windows are all in the log that it has.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from bolide.broker.assembly import assemble
from bolide.broker.components import Parts, Surroundings
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.registration import Registration
from bolide.broker.replicas.homecoming import Homecoming
from bolide.broker.replicas.slave import SlaveReplication
from bolide.broker.tables import Tables
from bolide.broker.wiring import connect_registration
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.replication import HaAddresses
from bolide.remoting.client import RemotingClient
from bolide.store.message_store import MessageStore
from bolide.store.unsupported import refuse_unsupported_topics

log = logging.getLogger(__name__)


class Term:
    """The parts of a broker in one role; started and ended once, on one event loop."""

    def __init__(self, given: Surroundings, tables: Tables, client: RemotingClient) -> None:
        self._given = given
        self._tables = tables
        self._client = client
        self._running = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._services: asyncio.Task[None] | None = None
        """What a master does by itself."""
        self._stopped_services: asyncio.Task[None] | None = None
        self._is_over = False
        self.parts: Parts
        self.registration: Registration

    async def build(self) -> Parts:
        """Assemble the parts; nothing runs yet. Blocks other tasks for the time of the assembly."""
        given = self._given
        for scope in (given.cell, given.store_cell, given.gate.on_revoked, given.gate.on_denied):
            self._running.enter_context(scope.scope())
        self.parts = parts = assemble(given, self._tables)
        refuse_unsupported_topics(parts.topics, self._tables.topics.path)
        await asyncio.to_thread(given.store.compaction.open_all)
        await asyncio.to_thread(parts.topics.create_system_topics, parts.delay.max_level)
        await asyncio.to_thread(parts.groups.create_system_groups)
        if parts.role.is_master and parts.role.is_elected:
            await asyncio.to_thread(_restore_topics, parts.topics, given.store)
        self._running.push_async_callback(asyncio.to_thread, parts.maintenance.save)
        return parts

    async def take_home(self) -> None:
        """Take over what the slaves of a group with fixed roles did while it had no master."""
        parts, role = self.parts, self.parts.role
        if role.is_master and not role.is_elected:
            homecoming = Homecoming(
                client=self._client,
                config=parts.cell.value,
                store=parts.store,
                offsets=parts.offsets,
                delay=parts.delay,
                timers=parts.timers,
                pop=parts.pop,
            )
            await homecoming.take_home()

    async def start(self) -> None:
        """Start the parts in order; `end` stops them in reverse order."""
        parts, running = self.parts, self._running
        if parts.role.is_master:
            running.push_async_callback(asyncio.to_thread, parts.transactions.save)
        running.push_async_callback(parts.background.stop)
        running.push_async_callback(parts.filters.stop)
        for part in (parts.durability, parts.intake, parts.duplicates.windows):
            part.start()
            running.callback(part.stop)
        running.callback(parts.auditor.denials.end_window)
        if parts.master is not None:
            await self._start_master(parts)
        else:
            await asyncio.to_thread(parts.timers.start_as_slave)
        parts.long_polling.start()

    async def _start_master(self, parts: Parts) -> None:
        assert parts.master is not None
        await self._running.enter_async_context(parts.master)
        await asyncio.to_thread(parts.pop.load)
        parts.pop.start()
        self._running.callback(parts.pop.journal.end_burst)
        await parts.timers.start()
        self._running.push_async_callback(parts.timers.stop)

    def run_jobs(self, registration: Registration, *, may_act: bool = True) -> None:
        """Start the periodic jobs of the role.

        Args:
            may_act: whether a master may deliver, revive and check back by itself already.
        """
        parts = self.parts
        connect_registration(parts, registration)
        parts.assignments.queues.use(self._client)
        parts.peers.use(self._client)
        self.registration = registration
        jobs = {
            "broker-registration": registration.run(),
            "broker-maintenance": parts.maintenance.run(),
            "broker-access": parts.gate.access.run(),
        }
        if isinstance(parts.replication, SlaveReplication):
            parts.replication.sync.use(self._client)
            jobs["broker-replica"] = parts.replication.run(self._ask_ha_address)
            assert parts.acting is not None
            parts.acting.use(self._client)
            jobs["broker-acting"] = parts.acting.run(parts.replication)
        else:
            jobs["broker-mappings"] = parts.mapping_cleaner.run()
            if may_act:
                self.start_services()
        self._tasks = [_started(name, job) for name, job in jobs.items()]

    def start_services(self) -> None:
        """Start what a master does by itself: delays, timers, check-backs, revival of pops."""
        if self._services is not None or self._is_over or self.parts.master is None:
            return
        self._services = _started("broker-services", self._serve_alone(self._stopped_services))

    async def _serve_alone(self, before: asyncio.Task[None] | None) -> None:
        """Run the services of a master, after those that ran before have ended."""
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        parts = self.parts
        services = [
            _started("broker-delay", parts.delay.run()),
            _started("broker-timers", parts.timers.run()),
            _started("broker-transactions", parts.transactions.run()),
            _started("broker-pop", parts.pop.run()),
        ]
        try:
            await asyncio.gather(*services, return_exceptions=True)
        finally:
            await _cancel(services)

    def pause_services(self) -> None:
        """Stop what a master does by itself: another one may have been elected."""
        if self._services is not None:
            self._services.cancel()
            self._stopped_services, self._services = self._services, None

    async def _ask_ha_address(self, master: str) -> str | None:
        """Ask a master where it serves replicas."""
        code = RequestCode.EXCHANGE_BROKER_HA_INFO
        answer = await self._client.call(master, code, HaAddresses(), within=1.0)
        return HaAddresses.from_fields(answer.fields).master_ha_address

    async def quiet(self) -> None:
        """End the jobs and answer everything that waits for messages."""
        self._is_over = True
        self.pause_services()
        tasks, self._tasks = self._tasks, []
        await _cancel([*tasks, *filter(None, [self._stopped_services])])
        self.parts.pop.close()
        self.parts.long_polling.stop()

    async def end(self) -> None:
        """Stop the parts and save their tables; idempotent."""
        await self._running.aclose()


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _restore_topics(topics: TopicTable, store: MessageStore) -> None:
    """Create the topics of a new master, and set the kinds, that only its queues know. Blocks."""
    counts: dict[str, int] = {}
    for topic, queue_id in store.queues.keys:
        name = topic.decode(errors="replace")
        counts[name] = max(counts.get(name, 0), queue_id + 1)
    batched = {name.decode(errors="replace") for name in store.queues.batch_topics}
    topics.restore(counts, batched)


def _started(name: str, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(job, name=name)
    task.add_done_callback(report_end)
    return task


def report_end(task: asyncio.Task[None]) -> None:
    """Log the end of a periodic job; none is expected to end before shutdown."""
    if not task.cancelled():
        log.error(
            "%s ended unexpectedly, restart the broker", task.get_name(), exc_info=task.exception()
        )
