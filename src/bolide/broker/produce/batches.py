"""Batches of messages in one send: as records of their own, or as one record.

In a topic with `queue.type=BatchCQ` a batch whose header has a unique id, as those of 5.x clients
have, becomes an inner batch, one record. The messages of any other batch get records of their own.
"""

import re
from collections.abc import Mapping
from itertools import islice

from bolide.broker.produce.addressing import BrokerProperties, without_transaction
from bolide.broker.timers.recurring import check_batch
from bolide.broker.timers.timetable import refuse_in_batch
from bolide.model.message import SysFlag
from bolide.model.properties import PropertyName, delay_level_of, parse_number
from bolide.protocol.batch import BadBatch, BatchItem, iter_batch
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.compression import BadCompressedBody, CodecMissing, decompress
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.inner_batch import INNER_FLAGS, count_items, unwrap
from bolide.protocol.property_string import NAME_END, PAIR_END, decode_properties, encode_properties
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.refusals import MessageIllegal
from bolide.store.batch_queue import MAX_BATCH
from bolide.store.tables import has_batch_queues

_INNER_BATCH = int(SysFlag.INNER_BATCH)
_INNER_NAMES = re.compile(
    f"(?:^|{PAIR_END})(?:{PropertyName.INNER_COUNT}|{PropertyName.INNER_BASE}){NAME_END}".encode()
)
_TIMED = (
    PropertyName.TIMER_DELAY_SEC,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.START_DELIVER_TIME,
    PropertyName.CRON,
)


def split_batch(
    header: SendHeader,
    draft: RecordDraft,
    own: BrokerProperties,
    *,
    max_size: int,
    max_count: int,
) -> list[RecordDraft]:
    """Return the messages of a batch as drafts with all their properties.

    Args:
        own: the properties that the broker adds.

    Raises:
        MessageIllegal: the batch is empty, too large, or has messages that no batch may have.
        BadBatch: the body is no batch.
    """
    if len(draft.body) > max_size:
        raise MessageIllegal(
            f"a batch of {len(draft.body)} bytes is over the limit of {max_size}: send less,"
            " or raise maxMessageSize"
        )
    properties = decode_properties(header.properties) | own.properties
    # Clients of 5.x also set an id for the batch; each message has its own.
    properties.pop(PropertyName.UNIQUE_ID, None)
    draft = without_transaction(draft, properties)
    draft = draft._replace(sys_flag=draft.sys_flag & ~INNER_FLAGS)
    common = encode_properties(properties).encode()
    items = islice(iter_batch(draft.body), max_count + 1)
    drafts = [_item_draft(item, draft, common) for item in items]
    if len(drafts) > max_count:
        raise MessageIllegal(
            f"a batch of over {max_count} messages: send fewer, or raise maxBatchCount"
        )
    if not drafts:
        raise MessageIllegal("a batch without messages")
    check_batch(draft.body, drafts)
    if b"TIMER_DEL" in draft.body or b"__STARTDELIVER" in draft.body:
        refuse_in_batch(drafts)
    return drafts


def _item_draft(item: BatchItem, draft: RecordDraft, common: bytes) -> RecordDraft:
    own = bytes(item.properties)
    if _INNER_NAMES.search(own):
        raise MessageIllegal("a message of a batch cannot be a batch itself")
    end = b"" if not own or own.endswith(PAIR_END.encode()) else PAIR_END.encode()
    return draft._replace(body=item.body, properties=own + end + common, flag=item.flag)


def inner_draft(
    header: SendHeader, draft: RecordDraft, count: int, topic: TopicConfig, own: BrokerProperties
) -> tuple[RecordDraft, str] | None:
    """Return a batch as one draft and its unique id; None if it is not stored as one record.

    Args:
        count: number of messages in the batch, which has been checked.
        own: the properties that the broker adds.

    Raises:
        MessageIllegal: the batch is too large or has a delivery time.
    """
    if not has_batch_queues(topic):
        return None
    properties = decode_properties(header.properties)
    unique_id = properties.get(PropertyName.UNIQUE_ID)
    if unique_id is None:
        return None
    if count > MAX_BATCH:
        raise MessageIllegal(f"a batch of over {MAX_BATCH} messages: send fewer")
    if delay_level_of(properties) or any(name in properties for name in _TIMED):
        raise MessageIllegal("a batch has no delivery time: send its messages one by one")
    properties |= own.properties
    for name in (PropertyName.INNER_BASE, PropertyName.POP_CHECKPOINT):
        properties.pop(name, None)
    properties[PropertyName.INNER_COUNT] = str(count)
    draft = without_transaction(draft, properties)
    text = encode_properties(properties).encode()
    return draft._replace(properties=text, sys_flag=draft.sys_flag | INNER_FLAGS), unique_id


def check_inner_batch(
    draft: RecordDraft, properties: Mapping[str, str], topic: TopicConfig, max_size: int
) -> None:
    """Check a single send that claims to be an inner batch.

    Raises:
        MessageIllegal: the sysFlag bit, the property and the body contradict each other, or the
            topic takes no batches in one record.
    """
    count = properties.get(PropertyName.INNER_COUNT)
    is_inner = bool(draft.sys_flag & _INNER_BATCH)
    if count is None and not is_inner:
        return
    if not is_inner or count is None:
        raise MessageIllegal(
            f"{PropertyName.INNER_COUNT} and the sysFlag bit of inner batches go together:"
            " send a batch by SEND_BATCH_MESSAGE"
        )
    # Cheap checks first: counting may take long.
    claimed = parse_number(count) or 0
    if not has_batch_queues(topic) or not 0 < claimed <= MAX_BATCH:
        raise MessageIllegal(
            f"a batch of {count} messages in one record is not for topic {topic.topic_name!r}:"
            f" it needs queue.type=BatchCQ, and 1 to {MAX_BATCH} messages"
        )
    try:
        found = count_items(decompress(draft.body, draft.sys_flag, max_size), claimed)
    except (BadBatch, BadCompressedBody, CodecMissing) as exc:
        raise MessageIllegal(f"the body is no batch: {exc}") from exc
    if found != claimed or PropertyName.INNER_BASE in properties:
        raise MessageIllegal(f"{PropertyName.INNER_COUNT} is {count}, the body has {found}")


def message_of(record: Record, unique_id: str | None) -> Record | None:
    """Find the message that a consumer means by the position of its record and its own id.

    Returns:
        The record itself unless it is an inner batch, the message in it, or None.
    """
    if not record.sys_flag & _INNER_BATCH:
        return record
    messages = [message for message in unwrap(record) if message is not record]
    if len(messages) == 1:
        return messages[0]
    name = PropertyName.UNIQUE_ID
    found = (each for each in messages if each.decode_properties().get(name) == unique_id)
    return next(found, None)
