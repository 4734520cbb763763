"""Logical queues that this broker leads, and replies about them."""

from dataclasses import dataclass

import msgspec

from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.pull import PullReply
from bolide.protocol.headers.send import SendReply
from bolide.protocol.refusals import NotLeaderForQueue, ServerError
from bolide.protocol.static_topics.positions import (
    find_item,
    has_end,
    known_end,
    leads,
    led_queues,
    logical_offset,
    next_item,
    offset_delta,
    stored_offset,
)
from bolide.remoting.dispatch import Reply
from bolide.store.reading import ReadStatus

_LONG_MAX = 2**63 - 1
_GO_ON = ReadStatus.NO_MATCHED_MESSAGE.value
"""Remark that has clients go on at the offset of the reply."""


@dataclass(frozen=True, slots=True)
class LogicalQueue:
    """A logical queue that this broker leads, as it was when a request came."""

    mapping: QueueMappingDetail
    number: int
    items: list[QueueMappingItem]

    @property
    def leader(self) -> QueueMappingItem:
        return self.items[-1]

    @property
    def first(self) -> QueueMappingItem:
        """The item with the lowest offsets."""
        return self.at(0)

    @property
    def last(self) -> QueueMappingItem:
        """The item with the highest offsets; not the leader if that has no place yet."""
        return self.at(_LONG_MAX)

    def at(self, offset: int) -> QueueMappingItem:
        """The item with a logical offset; the first one for an offset before all of them."""
        item = find_item(self.items, offset)
        if item is None:
            raise ServerError(
                f"queue {self.number} of static topic {self.mapping.topic} has no place yet:"
                " wait until remappingStaticTopic has finished, or repeat it"
            )
        return item


def led_queue(mapping: QueueMappingDetail, number: int) -> LogicalQueue:
    """A logical queue of a topic. Raises NotLeaderForQueue."""
    items = mapping.hosted_queues.get(number)
    if items is None or not leads(mapping, items):
        raise NotLeaderForQueue(
            f"{mapping.topic}-{number} is not led by broker {mapping.bname}: get the route of the"
            " topic again"
        )
    return LogicalQueue(mapping, number, items)


def any_led_queue(mapping: QueueMappingDetail) -> LogicalQueue:
    """The queue for messages whose sender leaves the choice to the broker."""
    return led_queue(mapping, min(led_queues(mapping), default=-1))


# ---- replies


def sent_reply(queue: LogicalQueue, reply: Reply, *, is_half: bool = False) -> Reply:
    """The reply to a send, with logical queue id and offset.

    Args:
        is_half: the message is a half message, whose offset is that in the queue of half messages.
    """
    if not isinstance(reply.header, SendReply):
        return reply
    offset = reply.header.queue_offset
    offset = offset if is_half else stored_offset(queue.leader, offset)
    header = msgspec.structs.replace(reply.header, queue_id=queue.number, queue_offset=offset)
    return msgspec.structs.replace(reply, header=header)


def pulled_reply(
    queue: LogicalQueue, item: QueueMappingItem, requested: int, reply: Reply
) -> Reply:
    """The reply to a pull, with logical offsets.

    At the end of an item, the reply leads the client on to the next one.

    Args:
        item: the item from which messages were read.
        requested: the offset of the request, in the item's physical queue.
    """
    pulled, code, remark = reply.header, reply.code, reply.remark
    if not isinstance(pulled, PullReply):
        return reply
    after, low, high = pulled.next_begin_offset, pulled.min_offset, pulled.max_offset
    if code != ResponseCode.SUCCESS:
        is_leader = item.gen == queue.leader.gen
        if requested < low:
            is_first = item.gen == queue.first.gen
            after = low
            code = (
                ResponseCode.PULL_OFFSET_MOVED if is_first else ResponseCode.PULL_RETRY_IMMEDIATELY
            )
        elif requested >= high and not is_leader:
            successor = next_item(queue.items, item)
            if successor is None:  # the leader has no place yet
                code = ResponseCode.PULL_NOT_FOUND
            else:
                item = successor
                after = low = high = item.start_offset
                code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, _GO_ON
        elif requested > high and code == ResponseCode.PULL_OFFSET_MOVED:
            after = high
    if has_end(item):
        after = min(after, item.end_offset)
    header = msgspec.structs.replace(
        pulled,
        next_begin_offset=logical_offset(item, after),
        min_offset=logical_offset(item, low),
        max_offset=max(logical_offset(item, high), known_end(queue.items)),
        offset_delta=offset_delta(item),
    )
    return msgspec.structs.replace(reply, header=header, code=code, remark=remark)
