"""What consumers that pull answer when their client instance or a broker asks."""

import time
from collections.abc import Callable, Iterable, Mapping

from bolide.client.consuming.consume_counters import ConsumptionCounters
from bolide.client.consuming.consumer_settings import ConsumerSettings
from bolide.client.consuming.held_queue import HeldQueue
from bolide.client.consuming.membership import Membership
from bolide.client.consuming.running_info import running_consumer
from bolide.client.instance import ClientInstance
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import RunningConsumer
from bolide.protocol.bodies.heartbeat import ConsumeType


class PullMember(Membership):
    """A member that takes its messages itself.

    Args:
        progress: how far each queue was consumed.
        helds: the queues of which messages are held.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: ConsumerSettings,
        *,
        progress: Callable[[], Mapping[MessageQueue, int]],
        helds: Callable[[], Iterable[HeldQueue]] = tuple,
    ) -> None:
        super().__init__(
            instance,
            group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            model=settings.message_model,
            begin=settings.start(time.time()).begin,
        )
        self.counters = ConsumptionCounters(time.time)
        self._progress = progress
        self._helds = helds
        self._started = time.time()

    def progress(self) -> dict[MessageQueue, int]:
        return dict(self._progress())

    def running(self) -> RunningConsumer:
        return running_consumer(self, self._helds(), self.counters, {}, started=self._started)
