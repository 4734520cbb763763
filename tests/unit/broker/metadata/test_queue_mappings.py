"""The table of queue mappings: what it accepts, keeps and writes."""

import json

import pytest

from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.refusals import ServerError
from bolide.protocol.static_topics.positions import BadMapping
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables


def item(gen: int = 0, at: int = 0, broker: str = "broker-a") -> QueueMappingItem:
    return QueueMappingItem(gen=gen, queue_id=gen, bname=broker, logic_offset=at)


def mapping(epoch: int = 1, **queues: list[QueueMappingItem]) -> QueueMappingDetail:
    hosted = {int(name.removeprefix("q")): items for name, items in queues.items()}
    return QueueMappingDetail(
        topic="T", bname="broker-a", epoch=epoch, total_queues=2, hosted_queues=hosted
    )


@on_loop
async def test_a_mapping_is_there_after_a_restart(tables: BrokerTables) -> None:
    await tables.mappings.update(mapping(q0=[item()]))
    again = tables.restarted().mappings
    assert again.find("T") == mapping(q0=[item()])
    assert again.data_version == tables.mappings.data_version
    assert "T" in again
    assert len(again) == 1


@on_loop
async def test_the_file_has_the_names_and_keys_of_java(tables: BrokerTables) -> None:
    await tables.mappings.update(mapping(q0=[item()]))
    text = (tables.directory / "config" / "topicQueueMapping.json").read_text()
    assert '"hostedQueues":{0:[{' in text
    found = json.loads(text.replace("{0:", '{"0":'))
    assert set(found) == {"dataVersion", "topicQueueMappingInfoMap"}
    assert found["topicQueueMappingInfoMap"]["T"] == {
        "bname": "broker-a",
        "currIdMap": {},
        "dirty": False,
        "epoch": 1,
        "hostedQueues": {
            "0": [
                {
                    "bname": "broker-a",
                    "endOffset": -1,
                    "gen": 0,
                    "logicOffset": 0,
                    "queueId": 0,
                    "startOffset": 0,
                    "timeOfEnd": -1,
                    "timeOfStart": -1,
                }
            ]
        },
        "scope": "__global__",
        "topic": "T",
        "totalQueues": 2,
    }


@on_loop
async def test_queues_that_a_newer_mapping_does_not_name_are_kept(tables: BrokerTables) -> None:
    await tables.mappings.update(mapping(q0=[item()], q1=[item(1)]))
    await tables.mappings.update(mapping(2, q0=[item()]))
    found = tables.mappings.find("T")
    assert found is not None
    assert (found.epoch, found.hosted_queues) == (2, {0: [item()], 1: [item(1)]})


@on_loop
async def test_an_older_or_contradictory_mapping_changes_nothing(tables: BrokerTables) -> None:
    known = mapping(5, q0=[item()])
    await tables.mappings.update(known)
    other_scope = mapping(6, q0=[item()])
    other_scope.scope = "zone"
    for bad in (
        mapping(4, q0=[item()]),
        mapping(5, q1=[item(1)]),
        mapping(5, q0=[item(), item(1, 10_000, "broker-b")]),
        mapping(6, q0=[item(-1)]),
        other_scope,
    ):
        with pytest.raises(BadMapping):
            await tables.mappings.update(bad)
    assert tables.mappings.find("T") == known


@on_loop
async def test_a_forced_mapping_replaces_what_it_contradicts(tables: BrokerTables) -> None:
    await tables.mappings.update(mapping(5, q0=[item()], q1=[item(1)]))
    moved = [item(), item(1, 10_000, "broker-b")]
    await tables.mappings.update(mapping(4, q0=moved), force=True)
    found = tables.mappings.find("T")
    assert found is not None
    assert found.hosted_queues == {0: moved, 1: [item(1)]}


@on_loop
async def test_a_full_disk_leaves_the_table_as_it_is(tables: BrokerTables) -> None:
    tables.disk.is_full = True
    with pytest.raises(ServerError, match="cannot be written"):
        await tables.mappings.update(mapping(q0=[item()]))
    assert "T" not in tables.mappings
    tables.disk.is_full = False
    await tables.mappings.update(mapping(q0=[item()]))
    assert "T" in tables.mappings


@on_loop
async def test_changes_are_told_with_their_topics(tables: BrokerTables) -> None:
    told: list[set[str]] = []
    tables.mappings.on_change.add(lambda topics: told.append(set(topics)))
    await tables.mappings.update(mapping(q0=[item()]))
    await tables.mappings.update(mapping(q0=[item()]))  # no change
    await tables.mappings.delete("T")
    await tables.mappings.delete("T")
    assert told == [{"T"}, {"T"}]
    assert not tables.mappings


@on_loop
async def test_queues_are_replaced_only_in_the_mapping_that_was_read(tables: BrokerTables) -> None:
    await tables.mappings.update(mapping(5, q0=[item(), item(1, -1)], q1=[item(2)]))
    read = tables.mappings.find("T")
    assert read is not None
    await tables.mappings.update(mapping(5, q0=[item(), item(1, 10_000)], q1=[item(2)]))
    await tables.mappings.set_queues(read, {0: [item(1, -1)]})
    before = tables.mappings.find("T")
    assert before is not None
    assert before.hosted_queues[0] == [item(), item(1, 10_000)]
    await tables.mappings.set_queues(before, {0: [item(1, 10_000)], 1: None})
    after = tables.mappings.find("T")
    assert after is not None
    assert after.hosted_queues == {0: [item(1, 10_000)]}
