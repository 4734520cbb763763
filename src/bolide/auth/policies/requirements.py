"""What each request needs: the table of resources and actions by request code.

The rules are those of RocketMQ 5.5 (`DefaultAuthorizationContextBuilder` and the annotations of its
request headers). RocketMQ lets every authenticated user send a request for which it has no rule.
Here such a request needs `Cluster:Update` unless it only reads (`OPEN_TO_USERS` lists those), and
so does a code that the table does not know. `tests/interop/policy_cases.py` has all differences.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from bolide.auth.policies.decisions import Need
from bolide.auth.policies.model import Action, Resource, ResourceType
from bolide.auth.request_bodies import UnreadableBody, read_body
from bolide.auth.request_purposes import PURPOSES, READ_BY_REPLICAS, Purpose, is_reply
from bolide.model.names import group_of_retry_topic, is_internal, is_retry_topic
from bolide.protocol.bodies.heartbeat import Heartbeat
from bolide.protocol.bodies.locks import LockRequest
from bolide.protocol.bodies.pop import BatchAcks
from bolide.protocol.bodies.topics import TopicConfigList
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
PUB, SUB, GET = frozenset({Action.PUB}), frozenset({Action.SUB}), frozenset({Action.GET})
CREATE, UPDATE, DELETE = (
    frozenset({Action.CREATE}),
    frozenset({Action.UPDATE}),
    frozenset({Action.DELETE}),
)
_SUB_GET, _SUB_UPDATE = SUB | GET, SUB | UPDATE


class Named(NamedTuple):
    """A field of the header that names a resource, or several."""

    type: ResourceType
    field: str
    is_required: bool = True
    separator: str = ""


class Rule(NamedTuple):
    """The actions needed on the resources that fields name; on the cluster if none does."""

    actions: frozenset[Action]
    fields: tuple[Named, ...] = ()


_topic, _group = Named(TOPIC, "topic"), Named(GROUP, "consumerGroup")
_group_field = Named(GROUP, "group")
_maybe_topic = Named(TOPIC, "topic", is_required=False)
_cluster = Named(CLUSTER, "clusterName", is_required=False)

RULES: Mapping[int, Rule] = {
    # Messages
    Code.POP_MESSAGE: Rule(SUB, (_group, _topic)),
    Code.ACK_MESSAGE: Rule(SUB, (_group, _topic)),
    Code.CHANGE_MESSAGE_INVISIBLETIME: Rule(SUB, (_group, _topic)),
    Code.PEEK_MESSAGE: Rule(SUB, (_topic, _group)),
    Code.NOTIFICATION: Rule(SUB, (_group, _topic)),
    Code.POLLING_INFO: Rule(GET, (_group, _topic)),
    Code.VIEW_MESSAGE_BY_ID: Rule(GET, (_maybe_topic,)),
    Code.CONSUME_MESSAGE_DIRECTLY: Rule(SUB, (_group, _maybe_topic)),
    Code.RESUME_CHECK_HALF_MESSAGE: Rule(UPDATE, (_maybe_topic,)),
    # Topics
    Code.UPDATE_AND_CREATE_TOPIC: Rule(CREATE, (_topic,)),
    Code.DELETE_TOPIC_IN_BROKER: Rule(DELETE, (_topic,)),
    Code.GET_TOPIC_CONFIG: Rule(GET, (_topic,)),
    Code.GET_TOPIC_STATS_INFO: Rule(GET, (_topic,)),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: Rule(GET, (_topic,)),
    Code.QUERY_CONSUME_QUEUE: Rule(
        GET, (_maybe_topic, Named(GROUP, "consumerGroup", is_required=False))
    ),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: Rule(GET, (_topic,)),
    # Offsets
    Code.SEARCH_OFFSET_BY_TIMESTAMP: Rule(GET, (_topic,)),
    Code.GET_MAX_OFFSET: Rule(GET, (_topic,)),
    Code.GET_MIN_OFFSET: Rule(GET, (_topic,)),
    Code.GET_EARLIEST_MSG_STORETIME: Rule(GET, (_topic,)),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: Rule(UPDATE, (_group_field, _topic)),
    Code.CLONE_GROUP_OFFSET: Rule(UPDATE, (Named(GROUP, "destGroup"), _maybe_topic)),
    Code.QUERY_CORRECTION_OFFSET: Rule(
        GET,
        (
            Named(GROUP, "filterGroups", is_required=False, separator=","),
            Named(GROUP, "compareGroup"),
            _topic,
        ),
    ),
    Code.QUERY_CONSUME_TIME_SPAN: Rule(GET, (_topic, _group_field)),
    # Groups
    Code.DELETE_SUBSCRIPTIONGROUP: Rule(DELETE, (Named(GROUP, "groupName"),)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: Rule(GET, (_group_field,)),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: Rule(UPDATE, (_group_field, _topic)),
    Code.GET_CONSUMER_CONNECTION_LIST: Rule(GET, (_group,)),
    Code.GET_CONSUMER_RUNNING_INFO: Rule(GET, (_group,)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Rule(GET, (_topic, _group_field)),
    Code.GET_CONSUME_STATS: Rule(
        GET,
        (_group, _maybe_topic, Named(TOPIC, "topicList", is_required=False, separator=";")),
    ),
    Code.QUERY_TOPICS_BY_CONSUMER: Rule(GET, (_group_field,)),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: Rule(GET, (_group_field, _maybe_topic)),
    # Broker and cluster: read
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: Rule(GET),
    Code.GET_ALL_PRODUCER_INFO: Rule(GET),
    Code.GET_BROKER_CONSUME_STATS: Rule(GET),
    Code.GET_PRODUCER_CONNECTION_LIST: Rule(GET),
    Code.VIEW_BROKER_STATS_DATA: Rule(GET),
    Code.GET_BROKER_MEMBER_GROUP: Rule(GET, (_cluster,)),
    Code.GET_KV_CONFIG: Rule(GET),
    Code.GET_KVLIST_BY_NAMESPACE: Rule(GET),
    Code.QUERY_DATA_VERSION: Rule(GET, (_cluster,)),
    Code.AUTH_GET_USER: Rule(GET),
    Code.AUTH_LIST_USER: Rule(GET),
    Code.AUTH_GET_ACL: Rule(GET),
    Code.AUTH_LIST_ACL: Rule(GET),
    Code.CONTROLLER_GET_REPLICA_INFO: Rule(GET),
    Code.CONTROLLER_GET_NEXT_BROKER_ID: Rule(GET, (_cluster,)),
    # Broker and cluster: change; the codes without a resource have the default, Cluster:Update
    Code.REGISTER_BROKER: Rule(UPDATE, (_cluster,)),
    Code.UNREGISTER_BROKER: Rule(UPDATE, (_cluster,)),
    Code.BROKER_HEARTBEAT: Rule(UPDATE, (_cluster,)),
    Code.DELETE_TOPIC_IN_NAMESRV: Rule(UPDATE, (_cluster,)),
    Code.REMOVE_BROKER: Rule(UPDATE, (Named(CLUSTER, "brokerClusterName", is_required=False),)),
    Code.CLEAN_BROKER_DATA: Rule(UPDATE, (_cluster,)),
    Code.CONTROLLER_ELECT_MASTER: Rule(UPDATE, (_cluster,)),
    Code.CONTROLLER_APPLY_BROKER_ID: Rule(UPDATE, (_cluster,)),
    Code.CONTROLLER_REGISTER_BROKER: Rule(UPDATE, (_cluster,)),
    # Ours
    Code.BOLIDE_LIST_TIMERS: Rule(GET),
    Code.BOLIDE_LIST_TRANSACTIONS: Rule(GET),
    Code.BOLIDE_LIST_FILTER_FUNCTIONS: Rule(GET),
    Code.BOLIDE_GET_FILTER_FUNCTION: Rule(GET),
}
"""What requests need whose header names the resources."""

DEFAULT = Rule(UPDATE)
"""What other requests need: `Update` on the server's own cluster."""

_ANSWERED_FOR_THE_SENDER = frozenset({
    Code.CHECK_CLIENT_CONFIG, Code.QUERY_ASSIGNMENT,
    # Whose permissions may be asked for is decided by the handler.
    Code.BOLIDE_WHO_AM_I, Code.BOLIDE_CAN_I,
})  # fmt: skip
_WITH_RECEIPTS = frozenset({Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME})
_READS_MESSAGES = frozenset({
    Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.PEEK_MESSAGE,
    Code.NOTIFICATION, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID, Code.CONSUME_MESSAGE_DIRECTLY,
    Code.CONSUMER_SEND_MSG_BACK,
})  # fmt: skip
_UNKNOWN = "parse authorization context error."
_MAX_NEEDS = 2000
"""Resources of one request; each costs a decision on the event loop."""
_OURS = range(6000, 7000)


def _fields_of(request: Frame) -> Mapping[str, str]:
    return request.fields or {}


def _topic_or_group(
    topic: str | None, actions: frozenset[Action], of_group: frozenset[Action]
) -> Iterator[Need]:
    if topic and is_retry_topic(topic):
        yield Need(Resource(GROUP, group_of_retry_topic(topic)), of_group)
    else:
        yield Need(Resource(TOPIC, topic), actions)


def _of_group(group: str | None) -> Resource:
    return Resource(GROUP, group_of_retry_topic(group) if group else group)


def _consumed(
    topic: str | None, group: str | None, actions: frozenset[Action], *, has_receipt: bool = False
) -> Iterator[Need]:
    """A consumer's topic and group; a retry topic belongs to its group.

    RocketMQ does not look at retry topics here, so that a group could read those of others.
    """
    of_topic = _consumed_topic(topic, group, actions, has_receipt=has_receipt)
    needs = [*of_topic, Need(_of_group(group), actions)]
    if topic and is_retry_topic(topic):
        needs.reverse()  # denials name what RocketMQ checks first
    yield from needs


def _consumed_topic(
    topic: str | None, group: str | None, actions: frozenset[Action], *, has_receipt: bool = False
) -> Iterator[Need]:
    """A consumer's topic.

    Popped messages are retried in `%RETRY%group+topic` or `%RETRY%group_topic`. The second may as
    well belong to a group of that name, so only who has a receipt of a message is taken for the
    first group: an acknowledgement reads nothing.
    """
    if not topic or not is_retry_topic(topic):
        yield Need(Resource(TOPIC, topic), actions)
        return
    owner = group_of_retry_topic(topic)
    if not group or owner == group:
        yield Need(Resource(GROUP, owner), actions)
        return
    for mark in "+_" if has_receipt else "+":
        if owner.startswith(group + mark):
            yield Need(Resource(GROUP, group), actions)
            yield Need(Resource(TOPIC, owner.removeprefix(group + mark)), actions)
            return
    yield Need(Resource(GROUP, owner), actions)


# ---- requests whose needs depend on more than the names of fields


def _route(request: Frame) -> Iterator[Need]:
    return _topic_or_group(_fields_of(request).get("topic"), PUB | _SUB_GET, _SUB_GET)


def _send(request: Frame) -> Iterator[Need]:
    return _topic_or_group(_fields_of(request).get("topic"), PUB, SUB)


def _short_send(request: Frame) -> Iterator[Need]:
    return _topic_or_group(_fields_of(request).get("b"), PUB, SUB)


def _recall(request: Frame) -> Iterator[Need]:
    yield Need(Resource(TOPIC, _fields_of(request).get("topic")), PUB)


def _end_transaction(request: Frame) -> Iterator[Need]:
    topic = _fields_of(request).get("topic", "")
    if topic.strip():  # 4.9 clients do not name the topic
        yield Need(Resource(TOPIC, topic), PUB)


def _send_back(request: Frame) -> Iterator[Need]:
    yield Need(_of_group(_fields_of(request).get("group")), SUB)


def _pull(request: Frame) -> Iterator[Need]:
    fields = _fields_of(request)
    return _consumed(fields.get("topic"), fields.get("consumerGroup"), SUB)


def _query_message(request: Frame) -> Iterator[Need]:
    yield Need(Resource(TOPIC, _fields_of(request).get("topic")), _SUB_GET)


def _heartbeat(request: Frame) -> Iterator[Need]:
    for group in read_body(request, Heartbeat).consumer_data_set:
        yield Need(_of_group(group.group_name), SUB)
        for subscription in group.subscription_data_set:
            yield from _consumed_topic(subscription.topic, group.group_name, SUB)


def _unregister(request: Frame) -> Iterator[Need]:
    group = _fields_of(request).get("consumerGroup", "")
    if group.strip():
        yield Need(_of_group(group), SUB)


def _consumers_of_group(request: Frame) -> Iterator[Need]:
    yield Need(_of_group(_require(request, "consumerGroup")), _SUB_GET)


def _query_offset(request: Frame) -> Iterator[Need]:
    return _consumed(_require(request, "topic"), _require(request, "consumerGroup"), _SUB_GET)


def _commit_offset(request: Frame) -> Iterator[Need]:
    return _consumed(_require(request, "topic"), _require(request, "consumerGroup"), _SUB_UPDATE)


def _lock(request: Frame) -> Iterator[Need]:
    lock = read_body(request, LockRequest)
    yield Need(_of_group(lock.consumer_group), SUB)
    for topic in dict.fromkeys(queue.topic for queue in lock.mq_set):
        yield from _consumed_topic(topic, lock.consumer_group, SUB)


def _batch_ack(request: Frame) -> Iterator[Need]:
    for ack in read_body(request, BatchAcks).acks:
        yield from _consumed(ack.topic, ack.consumer_group, SUB, has_receipt=True)


def _topic_list(request: Frame) -> Iterator[Need]:
    for topic in read_body(request, TopicConfigList).topic_config_list:
        yield Need(Resource(TOPIC, topic.topic_name), CREATE)


_READERS: Mapping[int, Callable[[Frame], Iterator[Need]]] = {
    Code.GET_ROUTEINFO_BY_TOPIC: _route,
    Code.SEND_MESSAGE: _send,
    Code.SEND_MESSAGE_V2: _short_send,
    Code.SEND_BATCH_MESSAGE: _short_send,
    Code.SEND_REPLY_MESSAGE: _send,
    Code.SEND_REPLY_MESSAGE_V2: _short_send,
    Code.RECALL_MESSAGE: _recall,
    Code.END_TRANSACTION: _end_transaction,
    Code.CONSUMER_SEND_MSG_BACK: _send_back,
    Code.PULL_MESSAGE: _pull,
    Code.LITE_PULL_MESSAGE: _pull,
    Code.QUERY_MESSAGE: _query_message,
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _unregister,
    Code.GET_CONSUMER_LIST_BY_GROUP: _consumers_of_group,
    Code.QUERY_CONSUMER_OFFSET: _query_offset,
    Code.UPDATE_CONSUMER_OFFSET: _commit_offset,
    Code.LOCK_BATCH_MQ: _lock,
    Code.UNLOCK_BATCH_MQ: _lock,
    Code.BATCH_ACK_MESSAGE: _batch_ack,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _topic_list,
}

OPEN_TO_USERS: frozenset[int] = frozenset(
    code
    for code, purpose in PURPOSES.items()
    if code not in RULES
    and code not in _READERS
    and (
        (purpose is Purpose.QUERY and code not in _OURS)
        or code in READ_BY_REPLICAS
        or code in _ANSWERED_FOR_THE_SENDER
    )
)
"""Requests that every authenticated user may send, as in RocketMQ: they change nothing."""


def needs_of(request: Frame, cluster: str) -> list[Need]:
    """All permissions that a request needs; none for one that every user may send.

    Args:
        cluster: the name of the server's own cluster.

    Raises:
        NoPermission: the request does not name what it is about, or cannot be read.
    """
    if is_reply(request, cluster):
        return []
    try:
        return internal_guarded(request.code, _needs_of(request, cluster), cluster)
    except UnreadableBody as exc:
        raise NoPermission(f"{_UNKNOWN} {exc}") from exc


def _needs_of(request: Frame, cluster: str) -> list[Need]:
    reader = _READERS.get(request.code)
    if reader is not None:
        try:
            return _limited(reader(request))
        except (ProtocolError, ValueError, TypeError) as exc:
            raise NoPermission(_UNKNOWN) from exc
    if request.code in OPEN_TO_USERS:
        return []
    rule = RULES.get(request.code, DEFAULT)
    return _limited(_named(rule, request)) or [Need(Resource(CLUSTER, cluster), rule.actions)]


def _limited(needs: Iterator[Need]) -> list[Need]:
    """Raises UnreadableBody if there are too many."""
    found = list(islice(needs, _MAX_NEEDS + 1))
    if len(found) > _MAX_NEEDS:
        raise UnreadableBody(
            f"it names more than {_MAX_NEEDS} topics and groups; send several requests"
        )
    return found


def internal_guarded(code: int, needs: list[Need], cluster: str) -> list[Need]:
    """Replace the need of a topic that only the broker uses, if a request reads its messages.

    Messages of all topics lie there, so that policies about topics cannot decide.
    """
    if code not in _READS_MESSAGES:
        return needs
    return [
        Need(Resource(CLUSTER, cluster), GET | UPDATE)
        if each.resource.type is TOPIC and is_internal(each.resource.name or "")
        else each
        for each in needs
    ]


def needs_of_found(request: Frame, topic: str) -> list[Need]:
    """What a request needs for the message that it names by offset; RocketMQ does not look at it.

    Args:
        topic: the topic of the message found.
    """
    fields = _fields_of(request)
    if request.code == Code.CONSUMER_SEND_MSG_BACK:
        return list(_consumed_topic(topic, fields.get("group"), SUB))
    if request.code == Code.CONSUME_MESSAGE_DIRECTLY:
        return list(_consumed_topic(topic, fields.get("consumerGroup"), SUB))
    if request.code == Code.VIEW_MESSAGE_BY_ID and fields.get("topic", "").strip():
        return list(_topic_or_group(topic, GET, GET))
    if request.code == Code.END_TRANSACTION:
        return needs_of_send(topic)
    if request.code == Code.RESUME_CHECK_HALF_MESSAGE and fields.get("topic") is not None:
        return list(_topic_or_group(topic, UPDATE, UPDATE))
    return []  # it needed the cluster


def needs_of_send(topic: str) -> list[Need]:
    """What a send to a topic needs."""
    return list(_topic_or_group(topic, PUB, SUB))


def needs_of_action(resource: Resource, action: Action, cluster: str) -> list[Need]:
    """What requests need that do this with a resource, such as a send or a pull."""
    actions = frozenset({action})
    if resource.type is GROUP:
        return [Need(_of_group(resource.name), actions)]
    if resource.type is not TOPIC:
        return [Need(resource, actions)]
    if action is Action.PUB:
        return needs_of_send(resource.name or "")
    needs = list(_consumed_topic(resource.name, None, actions))
    return internal_guarded(Code.PULL_MESSAGE, needs, cluster) if action is Action.SUB else needs


def _named(rule: Rule, request: Frame) -> Iterator[Need]:
    group = _fields_of(request).get("consumerGroup")
    for named in rule.fields:
        text = _fields_of(request).get(named.field, "")
        if not text.strip():  # an empty name is nobody's: handlers take it for no name
            if named.is_required:
                raise NoPermission(_UNKNOWN)
            continue
        texts = filter(None, text.split(named.separator)) if named.separator else [text]
        for each in texts:
            if named.type is TOPIC and is_retry_topic(each):
                has_receipt = request.code in _WITH_RECEIPTS
                yield from _consumed_topic(each, group, rule.actions, has_receipt=has_receipt)
            else:
                yield Need(Resource(named.type, each), rule.actions)


def _require(request: Frame, field: str) -> str:
    text = _fields_of(request).get(field)
    if text is None:
        raise NoPermission(_UNKNOWN)
    return text
