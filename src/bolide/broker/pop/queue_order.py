"""The order in which a pop visits the queues of its topic and of the retry topics.

A pop of a priority topic visits the queues by priority, retries last; any other pop begins at a
random queue, and reads retries first or last by chance.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from bolide.broker.metadata.group_attributes import priority_factor
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.topic_attributes import is_priority_topic
from bolide.broker.pop.revival import RetryTopics
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.pop import PopHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOrder:
    """Decides which queues a pop visits, and in which order."""

    cell: ConfigCell[BrokerConfig]
    groups: GroupTable
    retry_topics: RetryTopics

    def queues(self, header: PopHeader, topic: TopicConfig) -> Iterator[tuple[str, int]]:
        """Return topic and number of each queue to visit."""
        config, chance = self.cell.value, random.randrange(100)  # noqa: S311
        by_priority = self._by_priority(header, topic, chance)
        retry_chance = config.pop_from_retry_probability
        if by_priority:
            retry_chance = config.pop_from_retry_probability_for_priority
        normal = [(topic.topic_name, header.queue_id)]
        if header.queue_id < 0:
            normal = self._ordered(topic, by_priority=by_priority)
        if header.order:
            return iter(normal)
        retries = [
            target
            for config in self.retry_topics.readable(header.consumer_group, topic.topic_name)
            for target in self._ordered(config, by_priority=by_priority)
        ]
        first = chance < retry_chance
        return iter([*retries, *normal] if first else [*normal, *retries])

    def _by_priority(self, header: PopHeader, topic: TopicConfig, chance: int) -> bool:
        if header.order or not is_priority_topic(topic):
            return False
        group = self.groups.find(header.consumer_group)
        return group is not None and chance < priority_factor(group)

    def _ordered(self, topic: TopicConfig, *, by_priority: bool) -> list[tuple[str, int]]:
        count = topic.read_queue_nums
        numbers = list(range(count))
        if self.cell.value.priority_order_asc:  # the highest number is the highest priority
            numbers.reverse()
        begin = random.randrange(count) if count and not by_priority else 0  # noqa: S311
        return [(topic.topic_name, number) for number in numbers[begin:] + numbers[:begin]]
