"""Messages, send results and pulls of our client in the words of `facts`."""

from bolide import SendResult, StoredMessage
from bolide.client.consumer.pull.pull_request import PullResult
from tests.interop.matrix import facts


def message_told(message: StoredMessage) -> facts.Message:
    return facts.Message(
        body=message.body.decode(),
        topic=message.topic,
        id=message.message_id,
        queue=message.queue_id,
        offset=message.queue_offset,
        tags=message.tags or None,
        keys=" ".join(message.keys) or None,
        reconsumed=message.reconsume_times,
        born=message.born_timestamp,
        stored=message.store_timestamp,
        properties=dict(message.properties),
    )


def result_told(result: SendResult) -> facts.Sent:
    return facts.Sent(
        status=result.status.name,
        id=result.message_id,
        offset_id=result.offset_message_id,
        queue=result.queue.queue_id,
        offset=result.queue_offset,
    )


def pull_told(result: PullResult, took: int = 0) -> facts.Pulled:
    return facts.Pulled(
        status=result.status.name,
        next=result.next_offset,
        min=result.min_offset,
        max=result.max_offset,
        bodies=[message.body.decode() for message in result.messages],
        took=took,
    )
