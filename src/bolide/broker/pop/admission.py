"""Who may pop, and how long they wait."""

from bolide.broker.config import BrokerConfig
from bolide.broker.groups import GroupTable
from bolide.broker.pop.polling import ALL_QUEUES
from bolide.broker.topics import TopicTable
from bolide.config import ConfigCell
from bolide.model.names import READ
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.pop import NotificationHeader, PeekHeader, PollingHeader, PopHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission

MOST_MESSAGES = 32
"""That a pop may ask for."""
_LONGEST_POLL = 3_600_000

AnyHeader = PopHeader | PeekHeader | NotificationHeader | PollingHeader


class Admission:
    """Checks broker, topic, queue and group."""

    def __init__(
        self, cell: ConfigCell[BrokerConfig], topics: TopicTable, groups: GroupTable
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._groups = groups

    def admit(self, header: AnyHeader, peer: str, to: str) -> TopicConfig:
        """The topic; `to` names what they want to do.

        Raises:
            NoPermission, TopicNotFound, GroupNotFound, InvalidParameter: they may not; says why.
        """
        config = self._cell.value
        if not config.broker_permission & READ:
            raise NoPermission(f"the broker[{config.broker_ip1}] {to} is forbidden")
        topic = self._topics.require(header.topic)
        if not topic.perm & READ:
            raise NoPermission(f"the topic[{header.topic}] {to} is forbidden")
        if header.queue_id >= topic.read_queue_nums:
            raise InvalidParameter(
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer}]"
            )
        self._admit_group(header)
        return topic

    def _admit_group(self, header: AnyHeader) -> None:
        group = self._groups.require(header.consumer_group)
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {header.consumer_group}")
        if not self._groups.is_readable(header.consumer_group, header.topic):
            raise NoPermission(
                f"the consumer group[{header.consumer_group}] is forbidden for"
                f" topic[{header.topic}]"
            )


def remaining(header: PopHeader | NotificationHeader, now: int) -> int:
    """Milliseconds until the client gives up; the clock is its own."""
    if header.poll_time <= 0:
        return 0
    left = (header.born_time or now) + header.poll_time - now
    return min(left, header.poll_time, _LONGEST_POLL)


def waiting_queue(queue_id: int) -> int:
    """The queue that a pop waits for."""
    return queue_id if queue_id >= 0 else ALL_QUEUES
