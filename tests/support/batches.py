"""Topics with batch queues, and batches as clients of 5.x send them."""

from typing import Any

from bolide.model.message import Message
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.send import SendReply
from bolide.protocol.headers.topics import CreateTopicHeader
from bolide.protocol.inner_batch import INNER_FLAGS
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import RecordDraft
from tests.support.broker import BrokerClient, send_header
from tests.support.store import draft

BATCH_ID = "7F00000112345678ABCDEF0000010000"


async def create_batch_topic(
    client: BrokerClient,
    topic: str = "Bulk",
    queues: int = 1,
    attributes: str = "+queue.type=BatchCQ",
) -> None:
    header = CreateTopicHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
        attributes=attributes,
    )
    await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def items(first: int, count: int, **properties: str) -> list[Message]:
    """Messages whose bodies are numbers, with ids of their own."""
    return [
        Message.unchecked("Bulk", b"%d" % number, {"UNIQ_KEY": f"ID{number}"} | properties)
        for number in range(first, first + count)
    ]


async def send_batch(
    client: BrokerClient, messages: list[Message], *, batch_id: str = BATCH_ID, **given: Any
) -> SendReply:
    """Send a batch to queue 0; with an id of its own, as clients of 5.x do."""
    properties = ({"UNIQ_KEY": batch_id} if batch_id else {}) | given.pop("properties", {})
    header = send_header(
        "Bulk", batch=True, properties=encode_properties(properties), **given
    ).to_short()
    body = encode_batch(messages)
    answer = await client.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
    return SendReply.from_fields(answer.fields)


def batch_draft(
    messages: list[Message], topic: str = "Bulk", queue_id: int = 0, **properties: str
) -> RecordDraft:
    """An inner batch as the broker gives it to the store."""
    known = {"INNER_NUM": str(len(messages)), "UNIQ_KEY": BATCH_ID} | properties
    body = encode_batch(messages)
    return draft(topic, body, queue_id=queue_id, properties=known, sys_flag=INNER_FLAGS)
