"""Traffic of all kinds against a broker, and what its statistics then say."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.batch import encode_batch
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, ProducerGroup, Subscription
from bolide.protocol.bodies.routes import KvTable
from bolide.protocol.bodies.stats import BrokerConsumeStats, BrokerStats, StatsWindow
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.runtime import BrokerConsumeStatsHeader, StatsHeader
from bolide.protocol.headers.send import SendReply
from bolide.protocol.headers.topics import CreateTopicHeader
from bolide.protocol.headers.transactions import EndTransactionHeader
from bolide.protocol.message_id import OffsetId
from bolide.protocol.refusals import ServerError
from tests.support.batches import items
from tests.support.popping import PopClient

CLUSTER, T, P, AGAIN, G = "DefaultCluster", "Counted", "Popped", "PoppedTwice", "counters"
OPS, RETRY, DELAYED, HALF, TIMERS = (
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    f"%RETRY%{G}", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer",
)  # fmt: skip

COUNTS = {
    "TOPIC_PUT_NUMS": (T, P, RETRY, DELAYED, HALF, TIMERS, f"%DLQ%{G}"),
    "GROUP_GET_NUMS": (f"{T}@{G}", f"{P}@{G}", f"{DELAYED}@SCHEDULE_CONSUMER"),
    "GROUP_ACK_NUMS": (f"{P}@{G}",),
    "GROUP_CK_NUMS": (f"{P}@{G}",),
    "SNDBCK_PUT_NUMS": (f"{T}@{G}",),
    "SNDBCK2DLQ_TIMES": (f"null@{T}@{G}@SEND_BACK_TO_DLQ",),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (CLUSTER,),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (CLUSTER,),
    "BROKER_ACK_NUMS": (CLUSTER,),
    "BROKER_CK_NUMS": (CLUSTER,),
    "QUEUE_PUT_NUMS": (f"{DELAYED}@0",),
    "QUEUE_GET_NUMS": (f"{DELAYED}@0@SCHEDULE_CONSUMER",),
    "CHANNEL_ACTIVITY": ("CONNECT",),
}
"""Sums and averages are compared."""

SIZES = {"TOPIC_PUT_SIZE": (P,), "GROUP_GET_SIZE": (f"{T}@{G}", f"{P}@{G}")}
"""Compared as counts are. Records of other topics have properties of their own in each broker."""

TIMES = {
    "TOPIC_PUT_LATENCY": (f"0@{T}", f"1@{T}"),
    "GROUP_GET_LATENCY": (f"0@{T}@{G}", f"-1@{P}@{G}"),
    "CONSUMER_REGISTER_TIME": (CLUSTER,),
    "PRODUCER_REGISTER_TIME": (CLUSTER,),
}
"""In milliseconds, which differ."""

OTHER = {"BROKER_PUT_NUMS": (CLUSTER,), "TOPIC_PUT_NUMS": (OPS,), "TOPIC_PUT_SIZE": (T,)}

UNKNOWN = {
    "TOPIC_PUT_NUMS": "Nowhere",
    "TOPIC_PUT_LATENCY": f"0@{RETRY}",  # no client sent to it
    "GROUP_GET_NUMS": f"{T}@nobody",
    "COMMERCIAL_SEND_TIMES": CLUSTER,
    "GROUP_GET_FROM_DISK_NUMS": f"{T}@{G}",
    "BROKER_GET_FROM_DISK_NUMS": CLUSTER,
    "NO_SUCH_NAME": T,
}
"""What neither broker has."""

PREPARED, COMMIT, ROLLBACK = 4, 8, 12

Found = dict[tuple[str, str], BrokerStats]


@dataclass(frozen=True)
class Counted:
    """A broker after the operations, with its answers."""

    address: str
    found: Found
    runtime: Mapping[str, str]
    consumption: BrokerConsumeStats
    stored: int
    """Bytes of the records of a topic."""

    def minute(self, name: str, key: str) -> StatsWindow | None:
        stats = self.found.get((name, key))
        return stats.stats_minute if stats else None

    def sum(self, name: str, key: str) -> int:
        found = self.minute(name, key)
        return found.sum if found else 0


async def operate(address: str) -> None:
    """Send, pull, pop, fail and acknowledge; wait for what comes later."""
    async with registered(address) as client:
        for number in range(6):
            await send(client, T, number)
        await client.send(
            T, encode_batch(items(100, 4)), queue_id=1, batch=True, properties=unique(20)
        )
        await send(client, T, 30, {PropertyName.DELAY_LEVEL: "1"})
        await send(client, T, 31, {PropertyName.TIMER_DELAY_MS: "1500"})
        await transact(client, 32, COMMIT)
        await transact(client, 33, ROLLBACK)
        for number in range(40, 45):
            await send(client, P, number)
        await consume(client)
        await pop(client)
        async with asyncio.timeout(15):
            while not await all_there(client):  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0.2)


async def all_there(client: PopClient) -> bool:
    """Whether the delayed message, the timer message and the retry are in their topics."""
    return await end_of(client, RETRY) >= 1 and await end_of(client, T) >= 9


async def end_of(client: PopClient, topic: str) -> int:
    frame = await client.call(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    return int((frame.fields or {})["offset"])


@asynccontextmanager
async def registered(address: str) -> AsyncIterator[PopClient]:
    """A client that is a producer and a consumer."""
    topics = [Subscription(topic=each, sub_version=1) for each in (T, P, RETRY)]
    beat = Heartbeat(
        client_id="127.0.0.1@counters",
        producer_data_set=[ProducerGroup("producers")],
        consumer_data_set=[ConsumerGroup(group_name=G, subscription_data_set=topics)],
    )
    async with PopClient(address, G) as client:
        for group in (G, "others"):
            body = fastjson.encode(GroupConfig(group_name=group, retry_max_times=2))
            await client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        for topic, queues in ((T, 2), (P, 1)):
            await create_topic(client, topic, queues)
        await client.call(RequestCode.HEART_BEAT, body=fastjson.encode(beat))
        yield client


async def create_topic(client: PopClient, topic: str, queues: int) -> None:
    header = CreateTopicHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues,
        perm=6, topic_filter_type="SINGLE_TAG", order=False,
    )  # fmt: skip
    await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def unique(number: int) -> dict[str, str]:
    return {PropertyName.UNIQUE_ID: f"{number:032X}"}


async def send(
    client: PopClient, topic: str, number: int, properties: Mapping[str, str] | None = None
) -> SendReply:
    given = unique(number) | dict(properties or {})
    return await client.send(topic, b"%03d" % number, properties=given)


async def transact(client: PopClient, number: int, state: int) -> None:
    """Send a half message and end its transaction."""
    half = await client.send(
        T, b"%03d" % number, sys_flag=PREPARED,
        properties=unique(number)
        | {PropertyName.TRANSACTION_PREPARED: "true", PropertyName.PRODUCER_GROUP: "producers"},
    )  # fmt: skip
    header = EndTransactionHeader(
        producer_group="producers",
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=OffsetId.decode(half.msg_id).physical_offset,
        commit_or_rollback=state,
        msg_id=f"{number:032X}",
        transaction_id=half.transaction_id,
    )
    await client.call(RequestCode.END_TRANSACTION, header)


async def consume(client: PopClient) -> None:
    """Pull twice, the second time nothing; send one message back and one to the dead letters."""
    found = await client.pull(T, consumer_group=G, max_msg_nums=4)
    assert len(found.records) == 4
    await client.pull(T, 99, consumer_group=G)
    committed = {"consumerGroup": G, "topic": T, "queueId": "0", "commitOffset": "2"}
    await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, committed)
    await client.send_back(found.records[0], G, delay_level=1, origin_topic=T)
    await client.send_back(found.records[1], G, delay_level=-1, origin_topic=T)


async def pop(client: PopClient) -> None:
    """Pop four messages in two pops; acknowledge two, and keep one for longer."""
    first = await client.pop(P, max_msg_nums=3)
    second = await client.pop(P, max_msg_nums=1)
    assert (len(first.messages), len(second.messages)) == (3, 1)
    await client.ack(P, first.messages[0])
    await client.ack(P, second.messages[0])
    await client.change(P, first.messages[1], 60_000)


def all_keys() -> Iterator[tuple[str, str]]:
    for names in (COUNTS, SIZES, TIMES, OTHER):
        yield from ((name, key) for name, keys in names.items() for key in keys)
    yield from UNKNOWN.items()


async def ask(address: str, asked: Iterable[tuple[str, str]]) -> Counted:
    async with PopClient(address, G) as client:
        found: Found = {}
        for name, key in asked:
            try:
                frame = await client.call(
                    RequestCode.VIEW_BROKER_STATS_DATA, StatsHeader(name, key)
                )
            except ServerError as exc:
                assert f"The stats <{name}> <{key}> not exist" in str(exc)
            else:
                found[name, key] = fastjson.decode(frame.body, BrokerStats)
        runtime = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        consumption = await client.call(
            RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsHeader(is_order=False)
        )
        return Counted(
            address,
            found,
            fastjson.decode(runtime.body, KvTable).table,
            fastjson.decode(consumption.body, BrokerConsumeStats),
            sum([await size_of(client, queue_id) for queue_id in range(2)]),
        )


async def size_of(client: PopClient, queue_id: int) -> int:
    pulled = await client.pull(T, consumer_group="others", queue_id=queue_id)
    return sum(record.size for record in pulled.records)
