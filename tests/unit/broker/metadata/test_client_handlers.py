"""Client requests, over a real connection."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.auth.access import Identity
from bolide.broker.metadata.client_handlers import ClientHandlers, Identify
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import (
    ConsumerConnections,
    ConsumerIds,
    ProducerConnections,
    ProducerTable,
)
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import (
    ClientCheck,
    ConsumeFromWhere,
    ConsumerGroup,
    ConsumeType,
    Heartbeat,
    MessageModel,
    ProducerGroup,
    Subscription,
)
from bolide.protocol.bodies.locks import LockReply, LockRequest
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.clients import (
    ConsumerGroupHeader,
    ProducerGroupHeader,
    UnregisterClientHeader,
)
from bolide.protocol.refusals import ConsumerNotOnline, ServerError, SubscriptionMalformed
from bolide.version import ROCKETMQ_VERSION
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.broker_tables import BrokerTables, Caller, served

Q = [MessageQueue("T", "broker-a", n) for n in range(3)]


def heartbeat(
    *topics: str, group: str = "g", client_id: str = "a", unit_mode: bool = False
) -> Heartbeat:
    wanted = [Subscription(topic=topic, sub_version=1) for topic in topics]
    return Heartbeat(
        client_id=client_id,
        producer_data_set=[ProducerGroup("p")],
        consumer_data_set=[
            ConsumerGroup(group_name=group, subscription_data_set=wanted, unit_mode=unit_mode)
        ],
    )


def serving(
    tables: BrokerTables, identify: Identify | None = None
) -> AbstractAsyncContextManager[Caller]:
    handlers = ClientHandlers(
        clients=tables.clients,
        groups=tables.groups,
        topics=tables.topics,
        locks=tables.locks,
        filters=tables.filters,
        cell=tables.cell,
        identify=identify,
    )
    return served(tables, handlers)


async def send(caller: Caller, beat: Heartbeat) -> Frame:
    return await caller.call(RequestCode.HEART_BEAT, body=fastjson.encode(beat))


# ---- heartbeats


@on_loop
async def test_a_heartbeat_makes_the_group_its_retry_topic_and_a_member(
    tables: BrokerTables,
) -> None:
    async with serving(tables) as caller:
        answer = await send(caller, heartbeat("T"))
        assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        assert tables.groups.find("g") == GroupConfig(group_name="g")
        retry = tables.topics.require("%RETRY%g")
        assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
        assert tables.clients.find_consumer("g", "a") is caller.connection
        (member,) = tables.clients.producers("p")
        assert (member.language, member.version) == ("PYTHON", ROCKETMQ_VERSION)
        assert member.identity is None


@on_loop
async def test_a_producer_is_known_by_who_sent_its_latest_heartbeat(tables: BrokerTables) -> None:
    keys = iter(("alice", "bob"))
    async with serving(
        tables, lambda _, connection: Identity(next(keys), connection.peer)
    ) as caller:
        for name in ("alice", "bob"):
            await send(caller, heartbeat("T"))
            (member,) = tables.clients.producers("p")
            assert member.identity == Identity(name, caller.connection.peer)


@on_loop
async def test_the_retry_topic_is_as_the_group_says(tables: BrokerTables) -> None:
    await tables.groups.update(GroupConfig(group_name="g", retry_queue_nums=4))
    await tables.topics.update(TopicConfig(topic_name="ordered", order=True))
    async with serving(tables) as caller:
        await send(caller, heartbeat("T", "ordered", unit_mode=True))
    retry = tables.topics.require("%RETRY%g")
    assert (retry.write_queue_nums, retry.order, retry.topic_sys_flag) == (4, True, 2)


@on_loop
async def test_a_group_that_may_not_be_created_is_passed_over(tables: BrokerTables) -> None:
    strict = tables.restarted(auto_create_subscription_group=False)
    async with serving(strict) as caller:
        await send(caller, heartbeat("T"))
        assert strict.clients.consumer_group("g") is None
        assert strict.topics.find("%RETRY%g") is None
        assert strict.clients.producer_groups() == ["p"]


@on_loop
async def test_a_refused_pull_consumer_creates_nothing(tables: BrokerTables) -> None:
    strict = tables.restarted(reject_pull_consumer_enable=True)
    beat = heartbeat("T")
    beat.consumer_data_set[0].consume_type = ConsumeType.CONSUME_ACTIVELY
    async with serving(strict) as caller:
        await send(caller, beat)
    assert strict.groups.find("g") is None
    assert strict.topics.find("%RETRY%g") is None


@on_loop
async def test_v2_heartbeats_are_answered_with_changes_only(
    tables: BrokerTables,
) -> None:
    full, short = heartbeat("T"), heartbeat()
    full.heartbeat_fingerprint = short.heartbeat_fingerprint = 7
    short.without_sub = True
    async with serving(tables) as caller:
        answers = [(await send(caller, beat)).fields or {} for beat in (short, full, short)]
        assert [each["IS_SUB_CHANGE"] for each in answers] == ["true", "false", "false"]
        assert tables.clients.subscription("g", "T")
        full.heartbeat_fingerprint = 8
        assert (await send(caller, full)).fields == {
            "IS_SUPPORT_HEART_BEAT_V2": "true",
            "IS_SUB_CHANGE": "true",
        }


@on_loop
async def test_a_client_that_hangs_up_is_gone(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        await send(caller, heartbeat("T"))
        caller.connection.close()
        await until(lambda: not tables.clients.consumer_ids("g"))
        assert tables.clients.producer_groups() == []


@on_loop
async def test_requests_of_one_client_take_effect_in_order(tables: BrokerTables) -> None:
    leave = UnregisterClientHeader(client_id="a", producer_group="p", consumer_group="g")
    async with serving(tables) as caller:
        connection = await caller._client._connection(caller.server.address)
        beat = Frame(code=RequestCode.HEART_BEAT, body=fastjson.encode(heartbeat("T")))
        await connection.notify(beat)
        leaving = Frame(code=RequestCode.UNREGISTER_CLIENT, fields=leave.to_fields())
        await connection.call(leaving, PATIENCE)
        assert tables.clients.consumer_ids("g") == []
        assert tables.clients.producer_groups() == []
        await until(lambda: tables.topics.find("%RETRY%g"))


@on_loop
async def test_a_client_unregisters_from_the_groups_it_names(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        await send(caller, heartbeat("T"))
        header = UnregisterClientHeader(client_id="a", consumer_group="g")
        await caller.call(RequestCode.UNREGISTER_CLIENT, header)
        assert tables.clients.consumer_ids("g") == []
        assert tables.clients.producer_groups() == ["p"]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "request 34 needs a body: the JSON of a Heartbeat"),
        (b"{", "a key is missing at character 1"),
        (b"[]", "not a Heartbeat"),
        (b"{}", "clientID"),
        (b'{"clientID":"a","consumerDataSet":[5]}', "not a Heartbeat"),
        (
            b'{"clientID":"a","consumerDataSet":[{"groupName":"g","messageModel":3}]}',
            "not a Heartbeat: expected a MessageModel",
        ),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
@on_loop
async def test_a_body_that_cannot_be_read_is_refused_with_the_reason(
    tables: BrokerTables, body: bytes, fault: str
) -> None:
    async with serving(tables) as caller:
        with pytest.raises(ServerError, match=fault):
            await caller.call(RequestCode.HEART_BEAT, body=body)
        assert len(tables.groups) == 0
        await send(caller, heartbeat("T"))


@on_loop
async def test_a_long_heartbeat_is_read_too(tables: BrokerTables) -> None:
    topics = [f"T{n:05}" for n in range(2000)]
    async with serving(tables) as caller:
        await send(caller, heartbeat(*topics))
        assert tables.clients.subscription("g", topics[-1])


# ---- the members of a group


@on_loop
async def test_the_ids_of_a_group_are_listed(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        await send(caller, heartbeat("T"))
        header = ConsumerGroupHeader("g")
        answer = await caller.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        assert fastjson.decode(answer.body, ConsumerIds).consumer_id_list == ["a"]


@on_loop
async def test_a_group_without_consumers_has_no_ids(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        with pytest.raises(ServerError, match="no consumer for this group, g"):
            await caller.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader("g"))


@on_loop
async def test_the_consumers_of_a_group_are_shown(tables: BrokerTables) -> None:
    header = ConsumerGroupHeader("g")
    async with serving(tables) as caller:
        with pytest.raises(ConsumerNotOnline, match=r"consumer group\[g\] not online"):
            await caller.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        await send(caller, heartbeat("T"))
        answer = await caller.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        shown = fastjson.decode(answer.body, ConsumerConnections)
        assert shown.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert shown.message_model is MessageModel.CLUSTERING
        assert shown.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        assert shown.subscription_table == {"T": Subscription(topic="T", sub_version=1)}
        (connection,) = shown.connection_set
        assert connection.client_id == "a"
        assert connection.client_addr == caller.connection.peer


@on_loop
async def test_producers_are_shown_by_group_and_all_together(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        with pytest.raises(ServerError, match=r"producer group\[p\] not exist"):
            await caller.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader("p"))
        await send(caller, heartbeat())
        answer = await caller.call(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader("p")
        )
        shown = fastjson.decode(answer.body, ProducerConnections)
        assert [each.client_id for each in shown.connection_set] == ["a"]
        answer = await caller.call(RequestCode.GET_ALL_PRODUCER_INFO)
        (one,) = fastjson.decode(answer.body, ProducerTable).data["p"]
        assert (one.client_id, one.version) == ("a", ROCKETMQ_VERSION)
        assert one.last_update_timestamp == int(tables.clock.now * 1000)


# ---- locks and filters


async def lock(caller: Caller, client_id: str, *queues: MessageQueue) -> set[MessageQueue]:
    asked = LockRequest(consumer_group="g", client_id=client_id, mq_set=list(queues))
    answer = await caller.call(RequestCode.LOCK_BATCH_MQ, body=fastjson.encode(asked))
    return set(fastjson.decode(answer.body, LockReply).locked)


@on_loop
async def test_queues_are_locked_and_given_up(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        assert await lock(caller, "a", *Q[:2]) == set(Q[:2])
        assert await lock(caller, "b", *Q) == {Q[2]}
        assert await lock(caller, "c", *Q) == set()
        given = LockRequest(consumer_group="g", client_id="a", mq_set=Q)
        await caller.call(RequestCode.UNLOCK_BATCH_MQ, body=fastjson.encode(given))
        assert await lock(caller, "b", *Q) == set(Q)


@on_loop
async def test_an_empty_grant_is_an_empty_list_and_no_null(tables: BrokerTables) -> None:
    asked = LockRequest(consumer_group="g", client_id="a")
    async with serving(tables) as caller:
        answer = await caller.call(RequestCode.LOCK_BATCH_MQ, body=fastjson.encode(asked))
    assert answer.body == b'{"lockOKMQSet":[]}'


@on_loop
async def test_tags_and_sql_are_served_and_other_filters_are_refused(tables: BrokerTables) -> None:
    check = ClientCheck(
        client_id="a", group="g", subscription_data=Subscription(topic="T", sub_string="A || B")
    )
    async with serving(tables) as caller:
        await caller.call(RequestCode.CHECK_CLIENT_CONFIG, body=fastjson.encode(check))
        check.subscription_data.expression_type = "SQL92"
        with pytest.raises(SubscriptionMalformed, match="write OR"):
            await caller.call(RequestCode.CHECK_CLIENT_CONFIG, body=fastjson.encode(check))
        check.subscription_data.sub_string = "a like 'x'"
        told = await caller.call(RequestCode.CHECK_CLIENT_CONFIG, body=fastjson.encode(check))
        assert told.remark is not None
        assert "ends before \"like 'x'\", which is ignored" in told.remark
        check.subscription_data.expression_type = "XPATH"
        with pytest.raises(ServerError, match=r"does not support .* by XPATH"):
            await caller.call(RequestCode.CHECK_CLIENT_CONFIG, body=fastjson.encode(check))


# ---- arbitrary bodies

KEYS = st.sampled_from([
    "clientID", "consumerDataSet", "groupName", "subscriptionDataSet", "topic", "mqSet",
    "consumerGroup", "clientId", "subscriptionData", "$ref", "subVersion", "consumeType",
])  # fmt: skip
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
CODES = st.sampled_from([
    RequestCode.HEART_BEAT,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.CHECK_CLIENT_CONFIG,
])  # fmt: skip


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(bodies=st.lists(st.tuples(CODES, ODD.map(fastjson.encode) | st.binary(max_size=20))))
def test_no_body_brings_the_handlers_down(
    tmp_path: Path, bodies: list[tuple[RequestCode, bytes]]
) -> None:
    @on_loop
    async def run() -> None:
        async with serving(BrokerTables(tmp_path)) as caller:
            connection = await caller._client._connection(caller.server.address)
            for code, body in bodies:
                answer = await connection.call(Frame(code=code, body=body), PATIENCE)
                assert answer.code in {0, 1, 23, 29}
                assert answer.code == 0 or answer.remark
                assert "Error:" not in (answer.remark or "")

    run()
