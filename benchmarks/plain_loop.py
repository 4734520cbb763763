"""A consumer loop in plain Python that writes Parquet, the alternative to Spark.

Run as `python -m benchmarks.plain_loop NAME_SERVER TOPIC DIRECTORY`; prints the number of rows.
"""

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bolide import PullConsumer, StoredMessage
from bolide.arrow.schema import message_schema
from bolide.model.message_queue import MessageQueue

_BATCH = 10_000


async def copy(name_server: str, topic: str, directory: Path) -> int:
    """Copy one queue of the topic; the loop is slow, and one queue shows its rate."""
    async with PullConsumer("plain-loop", name_server=name_server) as consumer:
        queue = min(await consumer.fetch_subscribe_queues(topic))
        with pq.ParquetWriter(directory / "loop.parquet", message_schema()) as writer:
            return await _copy_queue(consumer, queue, writer)


async def _copy_queue(consumer: PullConsumer, queue: MessageQueue, writer: pq.ParquetWriter) -> int:
    offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
    held: list[StoredMessage] = []
    rows = 0
    while offset < end:
        result = await consumer.pull(queue, "*", offset, max_count=1024)
        held += result.messages
        offset = result.next_offset
        if len(held) >= _BATCH or offset >= end:
            writer.write_batch(_batch(held))
            rows += len(held)
            held = []
    return rows


def _batch(messages: list[StoredMessage]) -> pa.RecordBatch:
    rows = [
        {
            "topic": message.topic,
            "broker": message.broker_name,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "physical_offset": message.physical_offset,
            "message_id": message.message_id,
            "offset_message_id": message.offset_message_id,
            "keys": " ".join(message.keys),
            "tags": message.tags,
            "body": message.body,
            "born_timestamp": message.born_timestamp * 1000,
            "store_timestamp": message.store_timestamp * 1000,
            "born_host": str(message.born_host),
            "store_host": str(message.store_host),
            "reconsume_times": message.reconsume_times,
            "sys_flag": message.sys_flag,
            "flag": message.flag,
            "properties": list(message.properties.items()),
        }
        for message in messages
    ]
    return pa.RecordBatch.from_pylist(rows, schema=message_schema())


if __name__ == "__main__":
    print(asyncio.run(copy(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
