"""Half messages: the latest copy of one, and what has become of it.

A broker appends a half message anew at each check of its producer, or when it is set aside, and
each copy has another offset message id. What stays is the unique id of the message, which is the
transaction id; the key index finds all copies by it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from bolide.admin.errors import MessageNotFound
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.model.properties import PropertyName, parse_number
from bolide.operations.cluster import Cluster
from bolide.operations.errors import BadInput, NotFound
from bolide.operations.views import reason_of
from bolide.protocol.bodies.transactions import OpenTransaction
from bolide.protocol.message_id import BadMessageId
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.errors import RemotingError

_LOOK_AHEAD = 500
"""Open transactions among which a copy is looked for that the index does not have yet."""


class TransactionState(StrEnum):
    """What became of a half message."""

    OPEN = "open"
    SET_ASIDE = "set_aside"
    """Its producers were asked too often; it waits until somebody decides or resumes the check."""
    ENDED = "ended"
    """It was committed or rolled back."""


@dataclass(frozen=True, slots=True)
class FoundHalf:
    """The latest copy of a half message that is known, and what has become of it."""

    message: StoredMessage
    state: TransactionState | None
    """None if the broker does not tell."""


async def find_half(cluster: Cluster, message_id: str, broker: str = "") -> FoundHalf:
    """Find a half message by the unique id, or by the offset message id of one of its copies.

    If several transactions have the same unique id, one that is not decided comes first.

    Raises:
        BadInput: the id is malformed.
        NotFound: there is no such half message.
    """
    copies = await _copies(cluster, message_id, broker)
    if not copies:
        given = await _at(cluster, message_id)
        copies = [given, *await _copies(cluster, given.unique_id or "", broker)]
        copies = [each for each in copies if _is_same(each, given)]
    found = [await _follow(cluster, each) for each in _latest(copies)]
    return min(found, key=lambda each: _RANK[each.state])


_RANK = {
    TransactionState.OPEN: 0,
    TransactionState.SET_ASIDE: 1,
    None: 2,
    TransactionState.ENDED: 3,
}


async def _copies(cluster: Cluster, unique_id: str, broker: str) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    if not unique_id:
        return found
    for topic in (HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
        try:
            found += await cluster.admin.messages.by_unique_id(topic, unique_id)
        except (MessageNotFound, TopicNotFound):
            continue
    return [each for each in found if broker in {"", each.broker_name}]


async def _at(cluster: Cluster, message_id: str) -> StoredMessage:
    """The half message at an offset message id."""
    try:
        message = await cluster.admin.messages.view(message_id)
    except BadMessageId as error:
        raise BadInput("message_id", reason_of(error)) from error
    except (MessageNotFound, RemotingError) as error:
        raise NotFound(f"there is no half message {message_id}: list the open ones") from error
    if message.topic not in {HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC}:
        raise NotFound(f"message {message_id} is no half message: list the open ones")
    return message


def _latest(copies: Iterable[StoredMessage]) -> list[StoredMessage]:
    """The latest copy of each transaction, the newest first."""
    latest: list[StoredMessage] = []
    for each in sorted(
        copies, key=lambda copy: (copy.store_timestamp, copy.physical_offset), reverse=True
    ):
        if not any(_is_same(each, other) for other in latest):
            latest.append(each)
    return latest


def _is_same(half: StoredMessage, other: StoredMessage) -> bool:
    """Whether two half messages belong to one transaction.

    One set aside by RocketMQ does not tell where its first copy was.
    """
    if (half.unique_id, half.store_host) != (other.unique_id, other.store_host):
        return False
    origin, other_origin = _origin(half), _origin(other)
    return origin is None or other_origin is None or origin == other_origin


def _origin(half: StoredMessage) -> int | None:
    """The queue offset of the first copy."""
    origin = parse_number(half.properties.get(PropertyName.PREPARED_QUEUE_OFFSET))
    if origin is None and half.topic == HALF_TOPIC:
        return half.queue_offset
    return origin


async def _follow(cluster: Cluster, half: StoredMessage) -> FoundHalf:
    """What has become of the latest copy; a copy that was written just now is followed."""
    is_aside = half.topic == TRANS_CHECK_MAX_TIME_TOPIC
    try:
        if await _listed(cluster, half, set_aside=is_aside, within=1):
            state = TransactionState.SET_ASIDE if is_aside else TransactionState.OPEN
            return FoundHalf(half, state)
        # The index may lag, or be switched off.
        newer = await _listed(cluster, half, set_aside=False, within=_LOOK_AHEAD)
    except BolideError:
        return FoundHalf(half, None)
    if newer is None:
        return FoundHalf(half, TransactionState.ENDED)
    try:
        message = await cluster.admin.messages.view(newer.msg_id)
    except BolideError:  # ended, and deleted by now
        return FoundHalf(half, TransactionState.ENDED)
    return FoundHalf(message, TransactionState.OPEN)


async def _listed(
    cluster: Cluster, half: StoredMessage, *, set_aside: bool, within: int
) -> OpenTransaction | None:
    """The entry of a transaction in the list of a broker, at the place of this copy or later."""
    is_here = within == 1
    page = await cluster.admin.transactions.page(
        str(half.store_host),
        set_aside=set_aside,
        group=None if is_here else half.properties.get(PropertyName.PRODUCER_GROUP),
        topic=None if is_here else half.properties.get(PropertyName.REAL_TOPIC),
        begin=half.queue_offset if is_here or half.topic == HALF_TOPIC else 0,
        limit=within,
    )
    for each in page.transactions:
        if each.half_offset == half.queue_offset if is_here else _matches(each, half):
            return each
    return None


def _matches(each: OpenTransaction, half: StoredMessage) -> bool:
    return each.transaction_id is not None and each.transaction_id == half.unique_id
