"""How far queues are filled and how far groups have consumed them, with the times to it.

Times of messages may have to be read from the disk, so everything here blocks: what belongs to
the event loop is gathered first, then a thread works it out.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import QueueTimeSpan
from bolide.protocol.bodies.stats import QueueProgress
from bolide.protocol.bodies.topics import TopicOffset
from bolide.store.contract import Store


class Position(NamedTuple):
    """Where a group is in a queue: behind the last message it consumed, and the last it pulled."""

    queue: MessageQueue
    consumed: int = 0
    pulled: int = 0


def topic_offset(store: Store, queue: MessageQueue) -> TopicOffset:
    topic, queue_id = queue.topic, queue.queue_id
    end = store.max_offset(topic, queue_id)
    return TopicOffset(
        min_offset=store.min_offset(topic, queue_id),
        max_offset=end,
        last_update_timestamp=max(store.stored_at(topic, queue_id, end - 1), 0),
    )


def queue_progress(store: Store, position: Position) -> QueueProgress:
    """The time is that of the last message consumed, 0 without one."""
    topic, queue_id = position.queue.topic, position.queue.queue_id
    return QueueProgress(
        broker_offset=store.max_offset(topic, queue_id),
        consumer_offset=position.consumed,
        pull_offset=max(position.consumed, position.pulled),
        last_timestamp=max(store.stored_at(topic, queue_id, position.consumed - 1), 0),
    )


def time_span(store: Store, position: Position, now: float) -> QueueTimeSpan:
    """Times of a queue's first and last message, of the last one consumed, and how old the next
    one is."""
    topic, queue_id = position.queue.topic, position.queue.queue_id
    end, consumed = store.max_offset(topic, queue_id), position.consumed
    first = store.earliest_time(topic, queue_id)
    last = store.stored_at(topic, queue_id, end - 1)
    done = store.stored_at(topic, queue_id, consumed - 1) if consumed > 0 else first
    waiting = consumed < end
    since = store.stored_at(topic, queue_id, consumed) if waiting else -1
    return QueueTimeSpan(
        message_queue=position.queue,
        min_time_stamp=first,
        max_time_stamp=last,
        consume_time_stamp=done,
        delay_time=max(int(now * 1000) - since, 0) if since > 0 else 0,
        min_time_stamp_str=_date(first),
        max_time_stamp_str=_date(last),
        consume_time_stamp_str=_date(done),
    )


def _date(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{milliseconds % 1000:03d}"
