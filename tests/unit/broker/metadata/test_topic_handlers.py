"""Topic requests, over a real connection."""

import json
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from bolide.broker.metadata.topic_handlers import TopicHandlers
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupList, GroupSubscription
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, Subscription
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig, TopicConfigList
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.groups import GroupHeader, TopicGroupHeader
from bolide.protocol.headers.topics import CreateTopicHeader, TopicConfigHeader, TopicHeader
from bolide.protocol.refusals import InvalidParameter, ServerError, TopicNotFound
from bolide.store.contract import Store
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables, Caller, served
from tests.support.store import draft, small_config
from tests.support.threads import note_threads


def serving(
    tables: BrokerTables, store: Store | None = None
) -> AbstractAsyncContextManager[Caller]:
    handlers = TopicHandlers(
        topics=tables.topics,
        mappings=tables.mappings,
        groups=tables.groups,
        offsets=tables.offsets,
        clients=tables.clients,
        store=store or tables.store,
        cell=tables.cell,
    )
    return served(tables, handlers)


def asking_for(topic: str = "T", **changes: object) -> CreateTopicHeader:
    values: dict[str, object] = {
        "topic": topic,
        "default_topic": "TBW102",
        "read_queue_nums": 8,
        "write_queue_nums": 4,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
        "order": False,
    }
    return CreateTopicHeader(**values | changes)  # type: ignore[arg-type]


async def create(caller: Caller, header: CreateTopicHeader) -> None:
    await caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


# ---- creating and changing


@on_loop
async def test_a_mixed_topic_needs_the_setting(tables: BrokerTables) -> None:
    mixed = asking_for(attributes="+message.type=MIXED")
    async with serving(tables) as caller:
        with pytest.raises(InvalidParameter, match="enableMixedMessageType=true"):
            await create(caller, mixed)
    allowing = tables.restarted(enable_mixed_message_type=True)
    async with serving(allowing) as caller:
        await create(caller, mixed)
    found = allowing.topics.find("T")
    assert found is not None
    assert found.attributes == {"message.type": "MIXED"}


@on_loop
async def test_a_topic_is_created_and_shown(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        await create(caller, asking_for(order=True, attributes="+message.type=FIFO"))
        answer = await caller.call(RequestCode.GET_TOPIC_CONFIG, TopicConfigHeader(topic="T"))
    assert json.loads(answer.body) == {
        "attributes": {"message.type": "FIFO"},
        "order": True,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert tables.restarted().topics.require("T").order


@on_loop
async def test_a_change_keeps_the_attributes_it_does_not_name(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        await create(caller, asking_for(attributes="+message.type=FIFO,+queue.type=SimpleCQ"))
        await create(caller, asking_for(perm=4))
        changed = tables.topics.require("T")
        assert changed.perm == 4
        assert changed.attributes == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
        await create(caller, asking_for(attributes="-message.type"))
        assert tables.topics.require("T").attributes == {"queue.type": "SimpleCQ"}


@on_loop
async def test_the_same_again_moves_no_version(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        await create(caller, asking_for())
        version = tables.topics.data_version
        await create(caller, asking_for())
    assert tables.topics.data_version == version


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (asking_for("a b"), "illegal characters"),
        (asking_for("x" * 128), "at most 127"),
        (asking_for("TBW102"), "conflict with system topic"),
        (asking_for("broker-a"), "conflict with system topic"),
        (asking_for("rmq_sys_x"), "conflict with system topic"),
        (asking_for(perm=8), "permission 8"),
        (asking_for(perm=-1), "permission -1"),
        (asking_for(read_queue_nums=-1), "-1 queues are not possible"),
        (asking_for(write_queue_nums=2**31 - 1), "only 0 to 65536"),
        (asking_for(topic_filter_type="NO_TAG"), "'NO_TAG' is none of SINGLE_TAG, MULTI_TAG"),
        (asking_for(attributes="+colour=red"), "'\\+colour' is not known"),
    ],
)
@on_loop
async def test_an_invalid_change_is_refused(
    tables: BrokerTables, header: CreateTopicHeader, fault: str
) -> None:
    async with serving(tables) as caller:
        with pytest.raises(InvalidParameter, match=fault):
            await create(caller, header)
    assert len(tables.topics) == 0


async def create_all(caller: Caller, *topics: TopicConfig) -> None:
    body = fastjson.encode(TopicConfigList(list(topics)))
    await caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


@on_loop
async def test_a_list_is_created_as_a_whole_or_not_at_all(tables: BrokerTables) -> None:
    good = TopicConfig(topic_name="T", attributes={"+message.type": "DELAY"})
    async with serving(tables) as caller:
        with pytest.raises(InvalidParameter, match="'b d'"):
            await create_all(caller, good, TopicConfig(topic_name="b d"))
        assert len(tables.topics) == 0
        await create_all(caller, good, TopicConfig(topic_name="U", perm=2))
    assert tables.topics.require("T").attributes == {"message.type": "DELAY"}
    assert tables.topics.require("U").perm == 2
    assert tables.topics.data_version.counter == 1


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"topicConfigList":[{}]}', b"\0"])
@on_loop
async def test_an_invalid_list_is_refused(tables: BrokerTables, body: bytes) -> None:
    async with serving(tables) as caller:
        with pytest.raises(ServerError, match=r"\w"):
            await caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert len(tables.topics) == 0


# ---- deleting


async def delete(caller: Caller, topic: str) -> None:
    await caller.call(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic))


@on_loop
async def test_a_deleted_topic_takes_offsets_and_queues_along(
    tables: BrokerTables, tmp_path: Path
) -> None:
    await tables.topics.update_all(TopicConfig(topic_name=name) for name in ("T", "TT"))
    for topic in ("T", "TT"):
        tables.offsets.commit("g", topic, 0, 1)
    with MessageStore(small_config(tmp_path / "store"), background=False) as store:
        for topic in ("T", "TT"):
            store.append(draft(topic))
        async with serving(tables, store) as caller:
            await delete(caller, "T")
        assert store.topics() == {"TT"}
    again = tables.restarted()
    assert [topic.topic_name for topic in again.topics] == ["TT"]
    assert again.offsets.topics_of("g") == {"TT"}


@on_loop
async def test_queues_of_an_unknown_topic_are_removed(tables: BrokerTables) -> None:
    tables.store.append(draft("T"))
    tables.offsets.commit("g", "T", 0, 1)
    async with serving(tables) as caller:
        await delete(caller, "T")
    assert tables.store.topics() == set()
    assert tables.offsets.groups_of("T") == set()


@on_loop
async def test_pop_retry_topics_go_with_the_topic_but_not_another_groups_own(
    tables: BrokerTables,
) -> None:
    for group in ("g", "h"):
        tables.offsets.commit(group, "T", 0, 1)
    tables.groups.require("h_T")
    names = ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%h_T", "%RETRY%g")
    await tables.topics.update_all(TopicConfig(topic_name=name) for name in names)
    async with serving(tables) as caller:
        await delete(caller, "T")
    assert {topic.topic_name for topic in tables.topics} == {"%RETRY%h_T", "%RETRY%g"}


@pytest.mark.parametrize("topic", [" ", "TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"])
@on_loop
async def test_system_topics_cannot_be_deleted(tables: BrokerTables, topic: str) -> None:
    tables.topics.create_system_topics()
    before = len(tables.topics)
    async with serving(tables) as caller:
        with pytest.raises(InvalidParameter, match=r"system topic|blank"):
            await delete(caller, topic)
    assert len(tables.topics) == before


@on_loop
async def test_queues_of_unknown_topics_are_cleaned_up(tables: BrokerTables) -> None:
    await tables.topics.update(TopicConfig(topic_name="known"))
    for topic in ("known", "unknown", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "%LMQ%x"):
        tables.store.append(draft(topic))
    async with serving(tables) as caller:
        await caller.call(RequestCode.CLEAN_UNUSED_TOPIC)
    assert tables.store.topics() == {"known", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "%LMQ%x"}


# ---- listing


@on_loop
async def test_a_topic_that_is_not_there_is_not_shown(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        with pytest.raises(TopicNotFound, match=r"No topic in this broker\. topic: T"):
            await caller.call(RequestCode.GET_TOPIC_CONFIG, TopicConfigHeader(topic="T"))


@on_loop
async def test_all_topics_are_returned_with_their_version(tables: BrokerTables) -> None:
    await tables.topics.update(TopicConfig(topic_name="T"))
    async with serving(tables) as caller:
        answer = await caller.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer.fields == {"totalTopicNum": "1"}
    assert fastjson.decode(answer.body, MappedTopicConfigTable) == tables.topics.table
    assert json.loads(answer.body).keys() == {
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    }


@on_loop
async def test_all_topics_are_written_on_another_thread(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tables) as caller:
        threads = note_threads(monkeypatch, msgspec.json, "encode")
        await caller.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@on_loop
async def test_an_ipv6_address_is_written_in_brackets(tables: BrokerTables) -> None:
    async with serving(tables.restarted(broker_ip1="2001:db8::1")) as caller:
        answer = await caller.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupHeader("g"))
    assert fastjson.decode(answer.body, TopicList).broker_addr == "[2001:db8::1]:10911"


@on_loop
async def test_system_topics_are_listed(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        answer = await caller.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    listed = fastjson.decode(answer.body, TopicList).topic_list
    assert {"TBW102", "DefaultCluster", "broker-a", "CHECKPOINT_TOPIC"} <= set(listed)


@on_loop
async def test_groups_of_a_topic_and_topics_of_a_group_are_listed(tables: BrokerTables) -> None:
    tables.groups.require("online")
    tables.offsets.commit("offline", "T", 0, 1)
    wanted = Subscription(topic="T", sub_string="A", sub_version=3)
    data = ConsumerGroup(group_name="online", subscription_data_set=[wanted])
    beat = Heartbeat(client_id="a", consumer_data_set=[data])
    async with serving(tables) as caller:
        await caller.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        tables.clients.heartbeat(beat, caller.connection, "JAVA", 479)
        answer = await caller.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader("T"))
        assert fastjson.decode(answer.body, GroupList).group_list == ["offline", "online"]
        answer = await caller.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupHeader("offline"))
        assert fastjson.decode(answer.body, TopicList) == TopicList(
            topic_list=["T"], broker_addr="10.0.0.1:10911"
        )
        for topic, found in (("T", wanted), ("U", None)):
            header = TopicGroupHeader(topic=topic, group="online")
            answer = await caller.call(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
            assert fastjson.decode(answer.body, GroupSubscription) == GroupSubscription(
                group="online", topic=topic, subscription_data=found
            )
