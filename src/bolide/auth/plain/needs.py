"""What a request needs: an admin, or permissions on topics and groups (`PlainAccessValidator`).

RocketMQ 4.9 checks nine requests by topic and group, wants an admin for five, and serves all others
to every known account. Here the same holds for requests that read, while every request that changes
something has its rule; `tests/interop/plain_acl_cases.py` has the differences. Groups appear as
their retry topics, as in RocketMQ.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from bolide.auth.plain.accounts import Permission
from bolide.auth.policies.model import Action, Resource, ResourceType
from bolide.auth.request_bodies import read_body
from bolide.auth.request_purposes import PURPOSES, READ_BY_REPLICAS, Purpose, is_reply
from bolide.model.names import is_internal, is_retry_topic, retry_topic
from bolide.protocol.bodies.heartbeat import Heartbeat
from bolide.protocol.bodies.locks import LockRequest
from bolide.protocol.bodies.pop import AssignmentQuery, BatchAcks
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.frame import Frame
from bolide.protocol.pop_info import normal_topic
from bolide.protocol.refusals import InvalidParameter


class Need(NamedTuple):
    """One permission on a topic, or on a group by its retry topic."""

    resource: str
    """Empty: any topic; the account's default permission decides."""
    permission: Permission


class Needs(NamedTuple):
    """All that a request needs, beside a known account."""

    needs_admin: bool = False
    permissions: tuple[Need, ...] = ()


ADMIN = Needs(needs_admin=True)
KNOWN_ACCOUNT = Needs()

_SUB, _PUB = Permission.SUB, Permission.PUB


def needs_of(request: Frame, cluster: str = "") -> Needs:
    """Say what a request needs.

    Args:
        cluster: the broker's own one.

    Raises:
        UnreadableBody: the body does not say what the request is about.
    """
    if is_reply(request, cluster):
        return KNOWN_ACCOUNT
    rule = _RULES.get(request.code)
    if rule is not None:
        needs = Needs(permissions=tuple(rule(request)))
        return internal_guarded(needs) if request.code in _READS_MESSAGES else needs
    return KNOWN_ACCOUNT if request.code in _FOR_ALL_ACCOUNTS else ADMIN


def needs_of_found(request: Frame, topic: str) -> Needs:
    """Say what a request needs for the message that it names by its position.

    Args:
        topic: the topic of the message found.
    """
    if request.code == Code.END_TRANSACTION:
        return Needs(permissions=(send_need(topic),))
    if request.code == Code.RESUME_CHECK_HALF_MESSAGE:
        return ADMIN
    return internal_guarded(Needs(permissions=(Need(topic, _SUB),)))


def needs_of_action(resource: Resource, action: Action) -> tuple[Needs, int | None]:
    """What a send, a pull or another request needs that does this with a topic or group.

    Returns:
        The needs, and the code of the request if the action stands for one.

    Raises:
        InvalidParameter: the resource is of another kind, for which accounts have no permissions.
    """
    name = resource.name or ""
    if resource.type not in {ResourceType.TOPIC, ResourceType.GROUP}:
        raise InvalidParameter(f"{resource} is neither Topic:name nor Group:name")
    if action not in {Action.PUB, Action.SUB}:
        reads = action in {Action.GET, Action.LIST}
        return (KNOWN_ACCOUNT if reads else ADMIN), None
    if resource.type is ResourceType.GROUP:
        return Needs(permissions=(Need(retry_topic(name), Permission[action.name]),)), None
    if action is Action.PUB:
        return Needs(permissions=(send_need(name),)), Code.SEND_MESSAGE_V2
    return internal_guarded(Needs(permissions=(Need(name, _SUB),))), Code.PULL_MESSAGE


def send_need(topic: str) -> Need:
    """What a send to a topic needs."""
    return Need(topic, _SUB if is_retry_topic(topic) else _PUB)


def internal_guarded(needs: Needs) -> Needs:
    """Ask for an admin instead, if one of the topics is one that only the broker uses.

    Messages of all topics lie there, so that permissions on topics cannot decide.
    """
    return ADMIN if any(is_internal(each.resource) for each in needs.permissions) else needs


# ---- requests that say what they are about in their fields


def _send(topic_field: str) -> Callable[[Frame], Iterable[Need]]:
    def rule(request: Frame) -> Iterable[Need]:
        topic = _field(request, topic_field)
        if topic is not None:
            yield send_need(topic)

    return rule


def _group(group_field: str) -> Callable[[Frame], Iterable[Need]]:
    def rule(request: Frame) -> Iterable[Need]:
        group = _field(request, group_field)
        if group is not None:
            yield Need(retry_topic(group), _SUB)

    return rule


def _read(request: Frame) -> Iterable[Need]:
    """SUB of a topic and of a group."""
    return _subscription(_field(request, "topic"), _field(request, "consumerGroup"))


def _receipt(request: Frame) -> Iterable[Need]:
    """The same, where the topic may be one in which a group's popped messages are retried.

    Only here: `%RETRY%a_b` may belong to group a and topic b, or to group a_b, so that one who may
    read a and b must not read it. An acknowledgement has a receipt of the message besides.
    """
    topic, group = _field(request, "topic"), _field(request, "consumerGroup")
    return _subscription(topic and normal_topic(topic, group or ""), group)


def _topic(permission: Permission) -> Callable[[Frame], Iterable[Need]]:
    def rule(request: Frame) -> Iterable[Need]:
        topic = _field(request, "topic")
        if topic is not None:
            yield Need(topic, permission)

    return rule


def _any_topic(request: Frame) -> Iterable[Need]:
    """The message at a position of the log may be of any topic."""
    yield Need("", _SUB)


# ---- requests that say it in their bodies


def _heartbeat(request: Frame) -> Iterable[Need]:
    for group in read_body(request, Heartbeat).consumer_data_set:
        yield Need(retry_topic(group.group_name), _SUB)
        for each in group.subscription_data_set:
            yield Need(each.topic, _SUB)


def _locks(request: Frame) -> Iterable[Need]:
    yield Need(retry_topic(read_body(request, LockRequest).consumer_group), _SUB)


def _batch_ack(request: Frame) -> Iterable[Need]:
    for each in read_body(request, BatchAcks).acks:
        yield from _subscription(each.topic, each.consumer_group)


def _assignment(request: Frame) -> Iterable[Need]:
    query = read_body(request, AssignmentQuery)
    return _subscription(query.topic, query.consumer_group)


_RULES: dict[int, Callable[[Frame], Iterable[Need]]] = {
    Code.SEND_MESSAGE: _send("topic"),
    Code.SEND_MESSAGE_V2: _send("b"),
    Code.SEND_BATCH_MESSAGE: _send("b"),
    Code.SEND_REPLY_MESSAGE: _send("topic"),
    Code.SEND_REPLY_MESSAGE_V2: _send("b"),
    Code.CONSUMER_SEND_MSG_BACK: _group("group"),
    Code.END_TRANSACTION: _topic(_PUB),
    Code.RECALL_MESSAGE: _topic(_PUB),
    Code.PULL_MESSAGE: _read,
    Code.LITE_PULL_MESSAGE: _read,
    Code.POP_MESSAGE: _read,
    Code.PEEK_MESSAGE: _read,
    Code.ACK_MESSAGE: _receipt,
    Code.BATCH_ACK_MESSAGE: _batch_ack,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _receipt,
    Code.NOTIFICATION: _read,
    Code.POLLING_INFO: _read,
    Code.UPDATE_CONSUMER_OFFSET: _read,
    Code.QUERY_ASSIGNMENT: _assignment,
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _group("consumerGroup"),
    Code.GET_CONSUMER_LIST_BY_GROUP: _group("consumerGroup"),
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.QUERY_MESSAGE: _topic(_SUB),
    Code.VIEW_MESSAGE_BY_ID: _any_topic,
}

_READS_MESSAGES = frozenset({
    Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.PEEK_MESSAGE,
    Code.NOTIFICATION, Code.QUERY_MESSAGE,
})  # fmt: skip
_OURS_FOR_ADMINS = {
    Code.BOLIDE_LIST_TIMERS, Code.BOLIDE_LIST_TRANSACTIONS, Code.BOLIDE_LIST_FILTER_FUNCTIONS,
}  # fmt: skip
_FOR_ALL_ACCOUNTS: frozenset[int] = frozenset(
    {code for code, purpose in PURPOSES.items() if purpose is Purpose.QUERY} - _OURS_FOR_ADMINS
    | READ_BY_REPLICAS
    | {Code.QUERY_CONSUMER_OFFSET, Code.CHECK_CLIENT_CONFIG}
)
"""Requests that change nothing and that RocketMQ 4.9 serves to every known account."""


def _subscription(topic: str | None, group: str | None) -> Iterable[Need]:
    if topic is not None:
        yield Need(topic, _SUB)
    if group is not None:
        yield Need(retry_topic(group), _SUB)


def _field(request: Frame, name: str) -> str | None:
    """A field; handlers refuse a request that lacks one of those read here."""
    return request.fields.get(name) if request.fields else None
