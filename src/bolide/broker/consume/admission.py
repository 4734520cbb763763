"""Admission of pulls: permissions, subscription and filter, checked before the read."""

from dataclasses import dataclass

from bolide.broker.filters.filters import Filters
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import BROKER_GROUPS, READ, RETRY_PREFIX
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.refusals import (
    InvalidParameter,
    NoPermission,
    SubscriptionNotFound,
    SubscriptionOutdated,
)
from bolide.remoting.dispatch import Request
from bolide.store.reading import MessageFilter

_COMMIT, _HAS_SUBSCRIPTION = 1, 4
_TOOLS = ("TOOLS_CONSUMER", "CID_RMQ_SYS_")


@dataclass(frozen=True, slots=True)
class Admitted:
    """The configuration and filter of an admitted pull."""

    group: GroupConfig
    topic: TopicConfig
    wanted: MessageFilter


class PullAdmission:
    """Checks pulls against the metadata tables; not thread-safe, one event loop."""

    def __init__(
        self,
        *,
        cell: ConfigCell[BrokerConfig],
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        filters: Filters,
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._filters = filters

    def admit(self, request: Request[PullHeader]) -> Admitted:
        """Check a pull and build its filter.

        Raises:
            Refusal: the pull is not allowed.
            NotCompiled: the filter expression must be compiled first.
        """
        header = request.header
        group, topic = self._check(request)
        wanted = self._wanted(request, group)
        if header.topic.startswith(RETRY_PREFIX):
            wanted = self._filters.retry_filter(header.consumer_group, wanted)
        return Admitted(group, topic, wanted)

    def _check(self, request: Request[PullHeader]) -> tuple[GroupConfig, TopicConfig]:
        header, config = request.header, self._cell.value
        if not config.broker_permission & READ:
            raise NoPermission(f"the broker[{config.broker_ip1}] pulling message is forbidden")
        lite = request.frame.code == RequestCode.LITE_PULL_MESSAGE
        if lite and not config.lite_pull_message_enable:
            raise NoPermission(
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden"
            )
        if header.sys_flag & _COMMIT and header.consumer_group in BROKER_GROUPS:
            raise NoPermission(f"the offsets of {header.consumer_group} are the broker's own")
        group = self._groups.require(header.consumer_group)
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {header.consumer_group}")
        topic = self._topics.require(header.topic)
        if not topic.perm & READ:
            raise NoPermission(f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise InvalidParameter(
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]"
                f" consumer:[{request.connection.peer}]"
            )
        return group, topic

    def _wanted(self, request: Request[PullHeader], group: GroupConfig) -> MessageFilter:
        header = request.header
        if self._cell.value.reject_pull_consumer_enable:
            self._refuse_pull_consumer(request)
        if header.sys_flag & _HAS_SUBSCRIPTION:
            return self._filters.pull_filter(header.expression_type, header.subscription)
        members = self._clients.consumer_group(header.consumer_group)
        if members is None:
            raise SubscriptionNotFound(
                f"the consumer's group info not exist: no member of {header.consumer_group!r} has"
                " sent a heartbeat"
            )
        if (
            members.message_model is MessageModel.BROADCASTING
            and not group.consume_broadcast_enable
        ):
            raise NoPermission(
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            )
        if not self._groups.is_readable(header.consumer_group, header.topic):
            raise NoPermission(
                f"the consumer group[{header.consumer_group}] is forbidden for"
                f" topic[{header.topic}]"
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            raise SubscriptionNotFound(
                f"the consumer's subscription not exist: group {header.consumer_group!r} has not"
                f" subscribed to {header.topic!r}; all members must subscribe to the same topics"
            )
        if subscription.sub_version < header.sub_version:
            raise SubscriptionOutdated("the consumer's subscription not latest")
        return self._filters.subscription_filter(
            header.consumer_group, subscription, header.sub_version
        )

    def _refuse_pull_consumer(self, request: Request[PullHeader]) -> None:
        group = request.header.consumer_group
        members = self._clients.consumer_group(group)
        pushes = members is not None and members.consume_type is not ConsumeType.CONSUME_ACTIVELY
        known = members is not None and any(
            member.connection is request.connection for member in members.members
        )
        if not (pushes or known or group.startswith(_TOOLS)):
            raise SubscriptionNotFound(
                f"the consumer's group info not exist, or the pull consumer {group!r} is rejected"
                " by server (rejectPullConsumerEnable)"
            )
