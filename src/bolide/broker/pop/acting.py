"""POP at a slave that acts for the master of its group.

The state begins as a new master's does: from the journal in the copied log. That log takes no
further records here, so what happens from then on is in memory only, and the offsets of the groups
go the way of all offsets that are committed to a slave. Messages whose lease ends are sent to
another broker group, below the name of their retry topic.

When the master is back it asks for the queues that were popped here, and writes them to its journal
as events. A slave that is restarted meanwhile forgets them: then what was acknowledged here above
the offset of its group is delivered again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import Any, Protocol

import msgspec

from bolide.broker.background import REVIVAL, on_thread
from bolide.broker.pop.events import Acknowledged, Event, QueueName, Repositioned
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.pop_queue import Checkpoint, Lease, OrderedPop, PopQueue
from bolide.broker.pop.revival import retry_draft
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.names import pop_retry_topics
from bolide.protocol.inner_batch import unwrap
from bolide.protocol.pop_info import normal_topic
from bolide.protocol.record import Record, RecordDraft
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)

_TICK = 0.5
_BATCH_SIZE = 32
_RETRY_DELAY = 1000
"""Milliseconds until another group is tried again for an expired message."""


class Elsewhere(Protocol):
    """Has another broker group that has a topic store a message. Raises BolideError."""

    def __call__(self, draft: RecordDraft, *, beside: str) -> Coroutine[Any, Any, None]: ...


class ActingPop:
    """Serves pops from memory while this slave acts; belongs to one event loop."""

    def __init__(
        self,
        pop: Pop,
        elsewhere: Elsewhere,
        *,
        cell: ConfigCell[BrokerConfig],
        log_end: Callable[[], int],
    ) -> None:
        self._pop = pop
        self._elsewhere = elsewhere
        self._cell = cell
        self._log_end = log_end
        self._begun_at = -1
        """Where the log ended when this slave began to act."""
        self._touched: set[QueueName] = set()
        self._events: list[Event] = []

    async def begin(self) -> None:
        """Restore the state from the copied journal, and serve."""
        pop = self._pop
        pop.state.forget_all()
        self._touched.clear()
        self._events = []
        self._begun_at = self._log_end()
        await on_thread(REVIVAL, pop.load)
        pop.checkpointer.start()
        pop.state.changed.clear()
        pop.is_serving = True

    def cease(self) -> None:
        """Serve no more, and keep what the master has to know."""
        pop = self._pop
        if not pop.is_serving:
            return
        pop.is_serving = False
        self._commit_offsets()
        queues = [pop.state.queues[name] for name in self._touched & pop.state.queues.keys()]
        self._events = [event for queue in queues for event in queue_events(queue)]
        pop.state.forget_all()

    def events(self) -> list[Event]:
        """What happened here, for the master that is back.

        Empty once the log has grown: then the master went on without, and has newer state.
        """
        return self._events if self._log_end() == self._begun_at else []

    async def run(self) -> None:
        """Commit the offsets of groups, and move what nobody acknowledged, until cancelled."""
        while True:
            try:
                await self._revive_due()
            except Exception:  # background task: log and retry
                log.exception("expired pops cannot be moved to another group")
            self._commit_offsets()
            await asyncio.sleep(_TICK)

    def _commit_offsets(self) -> None:
        state, offsets = self._pop.state, self._pop.offsets
        changed, state.changed = state.changed, set()
        self._touched |= changed
        for name in changed & state.queues.keys():
            queue, (topic, group, queue_id) = state.queues[name], name
            if offsets.find(group, topic, queue_id) != queue.published:
                continue  # another client has committed; the next pop repositions the queue
            if offsets.commit(group, topic, queue_id, queue.low):
                queue.published = queue.low

    # ---- expired leases

    async def _revive_due(self) -> None:
        for lease in list(islice(self._pop.state.due_leases(), _BATCH_SIZE)):
            if isinstance(lease, OrderedPop):
                topic, group, queue_id = lease.queue.name
                self._pop.polling.wake(topic, group, queue_id)
                continue
            try:
                if self._cell.value.enable_remote_escape:
                    await self._move(lease)
            except BolideError:
                pass  # logged where it was refused
            finally:
                if lease.pending_bits:
                    self._pop.state.schedule(lease, _RETRY_DELAY)

    async def _move(self, lease: Checkpoint) -> None:
        """Send the messages of an expired pop to another group, one after the other."""
        messages = await self._pop.reviver.read_messages(lease)
        for offset, record in messages.items():
            claim = (lease.queue.name, lease.start, lease.pop_time, offset)
            if lease.has(offset) and not self._pop.journal.is_claimed(claim):
                await uninterrupted(self._move_one(lease, offset, record))

    async def _move_one(self, lease: Checkpoint, offset: int, record: Record | None) -> None:
        pop, (topic, group, _) = self._pop, lease.queue.name
        event = Acknowledged(*lease.queue.name, lease.start, lease.pop_time, [offset])
        normal = normal_topic(topic, group)
        retry = pop_retry_topics(group, normal)[1]  # the other group cannot mistake its owner
        with pop.journal.moving_to_retry([event]):
            for message in unwrap(record) if record is not None else ():
                draft = retry_draft(message, retry, group, lease.pop_time, pop.store_host)
                await self._elsewhere(draft, beside=normal)
            pop.journal.append([event])


def queue_events(queue: PopQueue) -> Iterator[Event]:
    """Events that give a journal the whole state of a queue.

    They may be cut off anywhere by a crash: until the last one, the queue continues at its lowest
    message that is not acknowledged, which delivers some again and loses none.
    """
    leases: list[Lease] = list(queue.checkpoints.values())
    if queue.order is not None and queue.order.pending_count:
        leases.append(queue.order)
    yield Repositioned(*queue.name, queue.low if leases else queue.next_offset)
    for lease in leases[:-1]:
        yield msgspec.structs.replace(lease.event(), next_offset=queue.low)
    if leases:
        yield leases[-1].event()
