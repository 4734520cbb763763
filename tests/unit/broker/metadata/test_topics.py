"""The topic table: topics created by sends and by administrators, durable over a crash."""

import asyncio
from collections.abc import Collection

import pytest

from bolide.model.names import SCHEDULE_TOPIC, TBW102
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.topics import TopicConfig, TopicConfigTable
from bolide.protocol.refusals import ServerError, TopicNotFound
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables


@pytest.fixture
def started(tables: BrokerTables) -> BrokerTables:
    tables.topics.create_system_topics()
    return tables


# ---- at start


def test_a_new_master_restores_topics_with_the_kind_of_queues_that_its_store_has(
    started: BrokerTables,
) -> None:
    topics = started.topics
    topics.restore({"Plain": 2, "Bulk": 3, "TBW102": 1}, {"Bulk", "Unused"})
    assert topics.require("Bulk").attributes == {"queue.type": "BatchCQ"}
    assert not topics.require("Plain").attributes
    assert "Unused" not in topics

    topics.restore({"Plain": 2, "Bulk": 3}, {"Plain", "Bulk"})  # it was created again meanwhile
    assert topics.require("Plain").attributes == {"queue.type": "BatchCQ"}
    assert started.restarted().topics.require("Plain").attributes == {"queue.type": "BatchCQ"}


def test_a_new_broker_has_its_own_topics(started: BrokerTables) -> None:
    queues = {topic.topic_name: (topic.write_queue_nums, topic.perm) for topic in started.topics}
    assert queues == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "rmq_sys_wheel_timer": (1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_bolide_pop": (1, 6),
        "rmq_sys_bolide_audit": (1, 0),
        "BOLIDE_PIPELINE_PROGRESS": (1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
    }


def test_topics_of_cluster_and_broker_are_closed_where_they_are_switched_off(
    tables: BrokerTables,
) -> None:
    closed = tables.restarted(cluster_topic_enable=False, broker_topic_enable=False)
    closed.topics.create_system_topics()
    assert closed.topics.require("DefaultCluster").perm == 1
    assert closed.topics.require("broker-a").perm == 1


def test_a_second_start_changes_nothing(started: BrokerTables) -> None:
    again = started.restarted()
    again.topics.create_system_topics()
    assert again.topics.data_version == started.topics.data_version
    assert again.topics.table == started.topics.table


def test_the_model_follows_the_setting_from_start_to_start(started: BrokerTables) -> None:
    off = started.restarted(auto_create_topic_enable=False)
    off.topics.create_system_topics()
    assert off.topics.require(TBW102).perm == 6
    on = off.restarted(auto_create_topic_enable=True)
    on.topics.create_system_topics()
    assert on.topics.require(TBW102).perm == 7
    more = on.restarted(default_topic_queue_nums=12)
    more.topics.create_system_topics()
    assert more.topics.require(TBW102).write_queue_nums == 12


def test_the_delay_topic_has_a_queue_for_each_level(started: BrokerTables) -> None:
    more = started.restarted()
    more.topics.create_system_topics(delay_levels=20)
    assert more.topics.require(SCHEDULE_TOPIC).write_queue_nums == 20
    fewer = more.restarted()
    fewer.topics.create_system_topics(delay_levels=4)
    assert fewer.topics.require(SCHEDULE_TOPIC).write_queue_nums == 20


# ---- created by sending


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (16, 8), (0, 1), (-1, 1)])
@on_loop
async def test_a_topic_gets_the_smaller_number_of_queues_and_never_none(
    started: BrokerTables, asked: int, made: int
) -> None:
    topic = await started.topics.create_on_send("T", TBW102, asked)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (made, made, 6)
    assert started.topics.find("T") is topic


@pytest.mark.parametrize(("setting", "made"), [("2", 2), ("12", 12), ("65535", 16)])
@on_loop
async def test_the_most_queues_of_a_new_topic_can_be_changed_at_run_time(
    started: BrokerTables, setting: str, made: int
) -> None:
    started.cell.apply({"defaultTopicQueueNums": setting})
    topic = await started.topics.create_on_send("T", TBW102, 16)
    assert topic.write_queue_nums == made


@on_loop
async def test_the_model_that_producers_see_follows_the_settings(started: BrokerTables) -> None:
    started.cell.apply({"defaultTopicQueueNums": "12", "autoCreateTopicEnable": "false"})
    await started.topics.follow_settings()
    model = started.restarted().topics.require(TBW102)
    assert (model.read_queue_nums, model.write_queue_nums, model.perm) == (12, 12, 6)


@on_loop
async def test_another_model_has_the_say_over_the_topics_made_after_it(
    started: BrokerTables,
) -> None:
    started.cell.apply({"defaultTopicQueueNums": "2"})
    topic = await started.topics.create_on_send("T", "DefaultCluster", 99)
    assert topic.write_queue_nums == 16


@on_loop
async def test_senders_that_come_at_once_share_one_creation(started: BrokerTables) -> None:
    changes: list[int] = []
    started.topics.on_change.add(lambda _: changes.append(len(started.topics)))
    before = started.topics.data_version.counter
    made = await asyncio.gather(
        *(started.topics.create_on_send("T", TBW102, n) for n in range(1, 9))
    )
    assert all(topic is made[0] for topic in made)
    assert started.topics.data_version.counter == before + 1
    assert changes == [len(started.topics)]


@on_loop
async def test_an_existing_topic_is_returned_even_if_creation_is_disabled(
    started: BrokerTables,
) -> None:
    await started.topics.update(TopicConfig(topic_name="T"))
    off = started.restarted(auto_create_topic_enable=False)
    assert (await off.topics.create_on_send("T", TBW102, 4)).topic_name == "T"


@on_loop
async def test_creation_is_refused_with_advice(started: BrokerTables) -> None:
    off = started.restarted(auto_create_topic_enable=False)
    with pytest.raises(TopicNotFound, match="autoCreateTopicEnable=true"):
        await off.topics.create_on_send("T", TBW102, 4)
    with pytest.raises(TopicNotFound, match="its template none-such does not exist"):
        await started.topics.create_on_send("T", "none-such", 4)
    with pytest.raises(TopicNotFound, match="BenchmarkTest lacks the permission"):
        await started.topics.create_on_send("T", "BenchmarkTest", 4)
    with pytest.raises(TopicNotFound, match=r"topic\[T\] not exist, apply first please: create it"):
        started.topics.require("T")


@on_loop
async def test_a_retry_topic_is_created_even_if_others_are_not(started: BrokerTables) -> None:
    off = started.restarted(auto_create_topic_enable=False)
    topic = await off.topics.create_on_send("%RETRY%g", TBW102, 4, unit=True)
    assert (topic.write_queue_nums, topic.perm, topic.topic_sys_flag) == (1, 6, 2)


@on_loop
async def test_unit_topics_are_marked(started: BrokerTables) -> None:
    topic = await started.topics.create_on_send("T", TBW102, 4, unit=True)
    assert topic.topic_sys_flag == 1


# ---- retry and dead-letter topics


@on_loop
async def test_a_retry_topic_becomes_ordered_and_stays_so(tables: BrokerTables) -> None:
    await tables.topics.create_retry("%RETRY%g", 3)
    ordered = await tables.topics.create_retry("%RETRY%g", 1, order=True)
    again = await tables.topics.create_retry("%RETRY%g", 1)
    assert ordered is again is tables.topics.find("%RETRY%g")
    assert again.order
    assert again.write_queue_nums == 3


# ---- changing


@on_loop
async def test_a_change_is_visible_only_after_it_is_on_disk(started: BrokerTables) -> None:
    seen_in_file: list[bool] = []
    started.topics.on_change.add(
        lambda _: seen_in_file.append(started.restarted().topics.find("T") is not None)
    )
    before = started.topics.data_version
    task = asyncio.ensure_future(started.topics.create_on_send("T", TBW102, 4))
    while not task.done():
        assert ("T" in started.topics) == (started.topics.data_version != before)
        assert "T" not in started.topics or seen_in_file == [True]
        await asyncio.sleep(0)
    assert seen_in_file == [True]
    assert started.restarted().topics.find("T") == started.topics.find("T")


@on_loop
async def test_a_full_disk_changes_nothing_and_is_reported(started: BrokerTables) -> None:
    version, topics = started.topics.data_version, list(started.topics)
    started.disk.is_full = True
    with pytest.raises(ServerError, match=r"nothing is changed, .*topics.json .*No space left"):
        await started.topics.create_on_send("T", TBW102, 4)
    assert (started.topics.data_version, list(started.topics)) == (version, topics)
    started.disk.is_full = False
    await started.topics.create_on_send("T", TBW102, 4)
    assert started.restarted().topics.find("T") is not None


@on_loop
async def test_every_change_moves_the_version_and_its_time(started: BrokerTables) -> None:
    before = started.topics.data_version
    started.clock.advance(5)
    await started.topics.update(TopicConfig(topic_name="T", perm=6))
    after = started.topics.data_version
    assert (after.counter, after.timestamp) == (before.counter + 1, before.timestamp + 5000)
    assert started.topics.table.data_version == after
    assert started.restarted().topics.data_version == after


@on_loop
async def test_an_update_without_a_change_has_no_effect(started: BrokerTables) -> None:
    await started.topics.update(TopicConfig(topic_name="T"))
    version = started.topics.data_version
    started.topics.on_change.add(lambda _: pytest.fail("nothing changed"))
    await started.topics.update_all([TopicConfig(topic_name="T")])
    assert started.topics.data_version == version


@on_loop
async def test_a_list_of_topics_is_one_change(started: BrokerTables) -> None:
    version = started.topics.data_version
    await started.topics.update_all(TopicConfig(topic_name=f"T{n}") for n in range(5))
    assert started.topics.data_version.counter == version.counter + 1
    assert "T4" in started.topics


@on_loop
async def test_the_table_for_peers_is_a_copy(started: BrokerTables) -> None:
    started.topics.table.topic_config_table.clear()
    assert len(started.topics) == 15


@on_loop
async def test_a_cancelled_caller_does_not_interrupt_a_change(started: BrokerTables) -> None:
    task = asyncio.ensure_future(started.topics.update(TopicConfig(topic_name="T")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert started.topics.find("T") == started.restarted().topics.find("T") is not None


# ---- deleting


@on_loop
async def test_a_deleted_topic_is_gone_from_the_file_too(started: BrokerTables) -> None:
    await started.topics.update(TopicConfig(topic_name="T"))
    assert await started.topics.delete("T")
    assert "T" not in started.topics
    assert started.restarted().topics.find("T") is None
    assert not await started.topics.delete("T")


@on_loop
async def test_a_topic_cannot_be_created_during_its_clean_up(started: BrokerTables) -> None:
    await started.topics.update(TopicConfig(topic_name="T"))
    go_on, cleaning = asyncio.Event(), asyncio.Event()

    async def clean() -> None:
        assert "T" not in started.topics
        cleaning.set()
        await go_on.wait()

    deletion = asyncio.ensure_future(started.topics.delete("T", clean))
    await cleaning.wait()
    creation = asyncio.ensure_future(started.topics.create_on_send("T", TBW102, 4))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not creation.done()
    go_on.set()
    assert await deletion
    assert await creation is started.topics.find("T")


@on_loop
async def test_cleaning_up_happens_for_unknown_topics_only(started: BrokerTables) -> None:
    cleaned: list[str] = []

    async def clean() -> None:
        cleaned.append("x")

    await started.topics.if_unknown(TBW102, clean)
    assert cleaned == []
    await started.topics.if_unknown("T", clean)
    assert cleaned == ["x"]


# ---- of a slave


@on_loop
async def test_a_slave_announces_the_topics_that_differ_a_few_at_a_time(
    started: BrokerTables,
) -> None:
    topics = started.topics
    told: list[Collection[str]] = []
    await topics.update(TopicConfig(topic_name="Gone"))
    await topics.update(TopicConfig(topic_name="Same"))
    topics.on_change.add(told.append)
    table = {each.topic_name: each for each in topics if each.topic_name != "Gone"}
    new = {f"T{at}": TopicConfig(topic_name=f"T{at}") for at in range(2000)}
    version = DataVersion(counter=7)
    given = TopicConfigTable(topic_config_table=table | new, data_version=version)
    assert await topics.adopt(given) == new.keys() | {"Gone"}
    assert max(map(len, told)) < 1000
    assert set().union(*told) == new.keys() | {"Gone"}
    assert topics.data_version == version
    assert "T1999" in topics

    told.clear()
    assert await topics.adopt(given) == set()
    assert told == []
