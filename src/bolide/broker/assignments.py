"""Which queues a consumer gets that leaves the sharing out to the broker, and by which requests
(`QueryAssignmentProcessor`, `MessageRequestModeManager`)."""

import logging
import threading
from collections.abc import Callable, Sequence

from bolide.broker.clients import ClientTable
from bolide.broker.cluster_queues import ClusterQueues
from bolide.broker.config import BrokerConfig
from bolide.broker.saving import on_saving_thread
from bolide.config import ConfigCell
from bolide.model import shares
from bolide.model.message_queue import MessageQueue
from bolide.model.names import is_retry_topic
from bolide.protocol.bodies.heartbeat import MessageModel
from bolide.protocol.bodies.pop import (
    Assignment,
    AssignmentQuery,
    RequestMode,
    RequestModeSetting,
    RequestModeTable,
)
from bolide.protocol.refusals import ServerError
from bolide.remoting.uninterrupted import uninterrupted
from bolide.store.tables import Table

log = logging.getLogger(__name__)

Queues = Sequence[MessageQueue]
Strategy = Callable[[Queues, int, int], Queues]

STRATEGIES: dict[str, Strategy] = {"AVG": shares.average, "AVG_BY_CIRCLE": shares.by_circle}
"""By the names that clients send."""

WHOLE_BROKER = -1
"""The queue id that means all of a broker."""


class RequestModes:
    """By which requests groups get the messages of topics, out of a table that is loaded."""

    def __init__(self, table: Table[RequestModeTable]) -> None:
        self._table = table
        self._saving = threading.Lock()  # one file, one writer

    @property
    def table(self) -> RequestModeTable:
        """All of them as peers get them; not to be changed."""
        return self._table.value

    def find(self, topic: str, group: str) -> RequestModeSetting | None:
        return self.table.message_request_mode_map.get(topic, {}).get(group)

    async def set(self, wanted: RequestModeSetting) -> None:
        """In force at once, and on the disk when it returns.

        Raises:
            ServerError: it could not be written.
        """
        topics = self.table.message_request_mode_map
        topics.setdefault(wanted.topic, {})[wanted.consumer_group] = wanted
        self._table.changed()
        try:
            await uninterrupted(on_saving_thread(self._save))
        except OSError as exc:
            raise ServerError(
                f"in force, but {self._table.path} cannot be written: {exc}; set it again"
            ) from exc

    def _save(self) -> None:
        with self._saving:
            self._table.save()


class Assignments:
    """Answers consumers that ask what is theirs."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        clients: ClientTable,
        queues: ClusterQueues,
        modes: RequestModes,
    ) -> None:
        self._cell = cell
        self._clients = clients
        self.queues = queues
        self.modes = modes

    async def query(self, asked: AssignmentQuery) -> list[Assignment] | None:
        """The queues of one client; None if that cannot be said: it keeps what it has."""
        queues = await self.queues.find(asked.topic)
        if queues is None:
            return None
        mode = self._mode(asked.topic, asked.consumer_group)
        mine = self._share(asked, queues, mode)
        if mine is None:
            return None
        each_once = dict.fromkeys(mine)
        return [Assignment(message_queue=queue, mode=mode.mode) for queue in each_once]

    def _mode(self, topic: str, group: str) -> RequestModeSetting:
        if found := self.modes.find(topic, group):
            return found
        config = self._cell.value
        # Retries of pops come with the pops: what is in a retry topic of its own is pulled.
        mode = RequestMode.PULL if is_retry_topic(topic) else config.default_message_request_mode
        return RequestModeSetting(
            topic=topic,
            consumer_group=group,
            mode=mode,
            pop_share_queue_num=config.default_pop_share_queue_num,
        )

    def _share(
        self, asked: AssignmentQuery, queues: Queues, mode: RequestModeSetting
    ) -> Queues | None:
        if asked.message_model is MessageModel.BROADCASTING:
            return queues
        if not self._cell.value.server_load_balancer_enable:
            return queues
        strategy = STRATEGIES.get(asked.strategy_name or "")
        members = sorted(self._clients.consumer_ids(asked.consumer_group))
        if strategy is None or asked.client_id not in members:
            # One that is not known here yet must not give up what it has.
            log.warning("no queues of %s for %s: %s", asked.topic, asked.client_id, asked)
            return None
        index = members.index(asked.client_id)
        if mode.mode is RequestMode.POP:
            return pop_share(strategy, queues, index, len(members), mode.pop_share_queue_num)
        return strategy(queues, index, len(members))


def pop_share(
    strategy: Strategy, queues: Queues, index: int, members: int, shared_with: int
) -> Queues:
    """The queues a member pops from: several may pop from one.

    Args:
        strategy: how they would be shared if each had one owner.
        queues: all of them, sorted.
        index: which of the members.
        members: how many there are.
        shared_with: how many members after it in the list have their queues in common with it;
            0 or less is all, and then a queue stands for a whole broker.
    """
    if shared_with <= 0 or shared_with >= members - 1:
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        topic = queues[0].topic if queues else ""
        return [MessageQueue(topic, name, WHOLE_BROKER) for name in brokers]
    if members > len(queues):
        return [queues[index % len(queues)]] if queues else []
    friends = [(index + step) % members for step in range(shared_with + 1)]
    return [queue for friend in friends for queue in strategy(queues, friend, members)]
