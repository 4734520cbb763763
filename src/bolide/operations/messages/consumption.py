"""What became of a message in the groups that consume its topic."""

import asyncio
from dataclasses import dataclass

from bolide.admin.errors import GroupUnknown, MessageNotFound
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.names import dead_letter_topic, is_system_group, retry_topic
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput
from bolide.operations.messages.filters import compile_filter, sql_matches
from bolide.operations.messages.finding import messages_of_id
from bolide.operations.messages.views import GroupState, MessageInGroup, StateReason
from bolide.operations.views import Page, failure_of, page_of, reason_of
from bolide.protocol.bodies.consumers import ConsumerConnections
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel, Subscription
from bolide.protocol.refusals import TopicNotFound

_AT_ONCE = 8
_ALL = "*"
_TAG, _SQL = "TAG", "SQL92"


@read("/messages/{topic}/ids/{message_id}/groups")
async def message_groups(
    cluster: Cluster,
    topic: str,
    message_id: str,
    *,
    search: str = "",
    page: int = 1,
    size: int = 20,
) -> Page[MessageInGroup]:
    """Tell for each consumer group what became of a message.

    The state follows from the committed offset of the group in the queue of the message, from its
    subscription, and from copies among its retries and dead letters. It is `unknown`, with the
    reason, where that does not tell: groups that broadcast keep their offsets themselves.

    Args:
        topic: the topic.
        message_id: an id of either kind.
        search: only groups whose name contains this.
        page: from 1.
        size: groups on a page, up to 50.
    """
    messages, _ = await messages_of_id(cluster, topic, message_id)
    groups, errors = await cluster.shared(
        f"messages:groups:{topic}",
        lambda: cluster.admin.topics.groups_and_failures(topic),
        seconds=2,
    )
    if errors and not groups:
        raise errors[0]
    wanted = [each for each in groups if search in each and not is_system_group(each)]
    failures = [failure_of("broker", each) for each in errors]
    cut = page_of(wanted, page=page, size=min(size, 50), failures=failures)
    limit = asyncio.Semaphore(_AT_ONCE)

    async def state(group: str) -> MessageInGroup:
        async with limit:
            return await state_in_group(cluster, messages[0], group)

    return Page(
        items=list(await asyncio.gather(*map(state, cut.items))),
        total=cut.total,
        page=cut.page,
        size=cut.size,
        failures=failures,
    )


async def state_in_group(cluster: Cluster, message: StoredMessage, group: str) -> MessageInGroup:
    """The state of a message in one group; what cannot be found out makes it unknown."""
    committed: int | BolideError | None
    try:
        committed = await cluster.admin.offsets.find_committed(group, message.queue)
    except BolideError as exc:
        committed = exc
    members, online = await _members(cluster, group)
    verdict = _verdict(message, committed, members)
    if verdict.state is GroupState.CONSUMED:
        verdict = await _failed_verdict(cluster, message, group) or verdict
    offset = committed if isinstance(committed, int) else None
    return MessageInGroup(
        group=group,
        state=verdict.state,
        reason=verdict.sentence(offset),
        committed_offset=offset,
        online=online,
        clients=[each.client_id or "" for each in members.connection_set] if members else [],
        tries=verdict.tries,
        reason_code=verdict.reason,
        filter=verdict.filter,
        distance=verdict.distance,
        problem=verdict.problem,
    )


@dataclass(frozen=True, slots=True)
class _Verdict:
    state: GroupState
    reason: StateReason
    filter: str | None = None
    distance: int | None = None
    problem: str | None = None
    tries: int | None = None

    def sentence(self, committed: int | None) -> str:
        """The reason in words."""
        passed = f"the group's offset {committed} is past it"
        failed = f"after {self.tries} failed {'try' if self.tries == 1 else 'tries'}"
        return {
            StateReason.BROADCASTS: "the group broadcasts: each client gets every message and"
            " keeps its own offset",
            StateReason.OFFSET_NOT_TOLD: f"its offset is not known: {self.problem}",
            StateReason.OFFSETS_OUTSIDE: "the group pulls, and keeps its offsets outside of the"
            " brokers",
            StateReason.NO_OFFSET: "the group has committed no offset in this queue: it has"
            " consumed nothing there, or its consumers keep their offsets themselves",
            StateReason.NEXT: "it is the next message of the group in this queue",
            StateReason.AHEAD: f"the group's offset {committed} is before it, {self.distance}"
            " messages away",
            StateReason.NO_MATCH: f"the group's filter {self.filter} does not match it",
            StateReason.PASSED: f"{passed}; and what it subscribes to is not known while no"
            " consumer is connected",
            StateReason.PASSED_NOT_TRIED: f"{passed}; its filter of type {self.filter} is not"
            " tried",
            StateReason.PASSED_AND_MATCHES: f"{passed}, and its filter {self.filter} matches",
            StateReason.PASSED_NO_MATCH: f"{passed}, and its filter {self.filter} does not match",
            StateReason.AMONG_DEAD_LETTERS: "a copy is among the dead letters of the group,"
            f" {failed}",
            StateReason.CONSUMED_AT_RETRY: f"consumed from the retry topic, {failed}",
            StateReason.AMONG_RETRIES: f"a copy waits in the retry topic of the group, {failed}",
        }[self.reason]


async def _members(cluster: Cluster, group: str) -> tuple[ConsumerConnections | None, bool | None]:
    """The connected consumers, and whether there are any; None if a broker does not tell."""
    try:
        found, errors = await cluster.shared(
            f"messages:members:{group}",
            lambda: cluster.admin.clients.consumers_and_failures(group),
            seconds=2,
        )
    except GroupUnknown:
        return None, False
    except BolideError:
        return None, None
    if found is None:
        return None, None if errors else False
    return found, True


def _verdict(
    message: StoredMessage,
    committed: int | BolideError | None,
    members: ConsumerConnections | None,
) -> _Verdict:
    if members is not None and members.message_model is MessageModel.BROADCASTING:
        return _Verdict(GroupState.UNKNOWN, StateReason.BROADCASTS)
    if isinstance(committed, BolideError):
        problem = reason_of(committed)
        return _Verdict(GroupState.UNKNOWN, StateReason.OFFSET_NOT_TOLD, problem=problem)
    if committed is None:
        pulls = members is not None and members.consume_type is ConsumeType.CONSUME_ACTIVELY
        reason = StateReason.OFFSETS_OUTSIDE if pulls else StateReason.NO_OFFSET
        return _Verdict(GroupState.UNKNOWN, reason)
    subscription = _subscription(message, members)
    if committed <= message.queue_offset:
        if subscription and _matches(message, subscription) is False:
            expression = subscription.sub_string
            return _Verdict(GroupState.FILTERED, StateReason.NO_MATCH, expression)
        distance = message.queue_offset - committed
        reason = StateReason.AHEAD if distance else StateReason.NEXT
        return _Verdict(GroupState.PENDING, reason, distance=distance)
    return _of_the_past(message, subscription)


def _of_the_past(message: StoredMessage, subscription: Subscription | None) -> _Verdict:
    if subscription is None:
        return _Verdict(GroupState.CONSUMED, StateReason.PASSED)
    matches = _matches(message, subscription)
    if matches is None:
        kind = subscription.expression_type
        return _Verdict(GroupState.CONSUMED, StateReason.PASSED_NOT_TRIED, kind)
    expression = subscription.sub_string
    if matches:
        return _Verdict(GroupState.CONSUMED, StateReason.PASSED_AND_MATCHES, expression)
    return _Verdict(GroupState.FILTERED, StateReason.PASSED_NO_MATCH, expression)


def _subscription(
    message: StoredMessage, members: ConsumerConnections | None
) -> Subscription | None:
    return members.subscription_table.get(message.topic) if members else None


def _matches(message: StoredMessage, subscription: Subscription) -> bool | None:
    """Whether a subscription takes a message; None if only the broker can tell."""
    if subscription.class_filter_mode:
        return None
    kind = subscription.expression_type or _TAG
    if kind == _TAG:
        tags = subscription.tags_set
        return not tags or _ALL in tags or message.tags in tags
    if kind != _SQL:
        return None
    try:
        return sql_matches(compile_filter(subscription.sub_string), message)
    except BadInput:
        return None


async def _failed_verdict(cluster: Cluster, message: StoredMessage, group: str) -> _Verdict | None:
    """The verdict of copies among the dead letters or the retries; None without any.

    What cannot be asked is not said: the offset still tells that the group has had it.
    """
    dead = await _copies(cluster, dead_letter_topic(group), message)
    if dead:
        tries = dead[-1].reconsume_times
        return _Verdict(GroupState.DEAD, StateReason.AMONG_DEAD_LETTERS, tries=tries)
    retries = await _copies(cluster, retry_topic(group), message)
    if not retries:
        return None
    last = max(retries, key=lambda each: each.reconsume_times)
    tries = last.reconsume_times
    try:
        committed = await cluster.admin.offsets.find_committed(group, last.queue)
    except BolideError:
        committed = None
    if committed is not None and committed > last.queue_offset:
        return _Verdict(GroupState.CONSUMED, StateReason.CONSUMED_AT_RETRY, tries=tries)
    return _Verdict(GroupState.RETRYING, StateReason.AMONG_RETRIES, tries=tries)


async def _copies(cluster: Cluster, topic: str, message: StoredMessage) -> list[StoredMessage]:
    """Copies of a message in another topic, by its unique id."""
    if message.unique_id is None:
        return []
    try:
        return await cluster.admin.messages.by_unique_id(
            topic, message.unique_id, on_failure=lambda _: None
        )
    except (MessageNotFound, TopicNotFound):
        return []
    except BolideError:
        return []
