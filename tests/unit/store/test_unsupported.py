"""Stores of kinds that are not served: refused by name, and left as they are."""

from pathlib import Path

import pytest

from bolide.protocol.bodies.topics import TopicConfig
from bolide.store.config import StoreConfig
from bolide.store.errors import UnsupportedStore
from bolide.store.message_store import MessageStore
from bolide.store.tables import TOPICS, Table
from bolide.store.unsupported import refuse_unsupported, refuse_unsupported_topics
from tests.support.aio import on_loop
from tests.support.broker import broker_in


def contents(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")} - {"lock"}


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("consumequeue/CURRENT", "consumequeue: .*RocksDB.*made anew from the commit log"),
        ("config/topics/CURRENT", "config/topics: .*RocksDB.*rocksDBConfigToJson"),
        ("config/rdb/CURRENT", "config/rdb: .*RocksDB"),
        ("consumequeue/%LMQ%device/0/00", "light message queues .%LMQ%device."),
    ],
)
def test_a_store_with_what_is_not_served_is_refused(tmp_path: Path, file: str, named: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"MANIFEST-000005\n")
    before = contents(tmp_path)

    with pytest.raises(UnsupportedStore, match=named), MessageStore(StoreConfig(root=tmp_path)):
        pass
    assert contents(tmp_path) == before


@pytest.mark.parametrize("content", ["000009.sst", "000010.log"])
def test_a_database_beside_the_store_is_refused_if_there_is_something_in_it(
    tmp_path: Path, content: str
) -> None:
    """RocketMQ 5.5 has the database whether or not it uses it."""
    database = tmp_path / "rocksdbstore"
    database.mkdir()
    for name in ("CURRENT", "000004.log"):
        (database / name).touch()
    with MessageStore(StoreConfig(root=tmp_path)):
        pass
    (database / content).write_bytes(b"something")

    with pytest.raises(UnsupportedStore, match=r"rocksdbstore: .*let RocketMQ deliver them first"):
        MessageStore(StoreConfig(root=tmp_path)).__enter__()


@pytest.mark.parametrize("kind", ["message.type=LITE"])
@on_loop
async def test_a_broker_does_not_start_with_topics_of_a_kind_that_is_not_served(
    tmp_path: Path, kind: str
) -> None:
    name, _, value = kind.partition("=")
    table = Table(tmp_path / "store" / "config", TOPICS)
    table.value.topic_config_table = {
        f"Topic{n}": TopicConfig(topic_name=f"Topic{n}", attributes={name: value}) for n in range(7)
    }
    table.changed()
    table.save()

    with pytest.raises(UnsupportedStore, match=rf"{kind} \(Topic0, .*Topic4 and 2 more\).*delete"):
        async with broker_in(tmp_path):
            pass


def test_topics_of_kinds_that_are_served_are_taken() -> None:
    attributes = {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE", "message.type": "FIFO"}

    refuse_unsupported_topics([TopicConfig(topic_name="T", attributes=attributes)], Path("topics"))


@pytest.mark.parametrize(
    ("attribute", "directory"), [("BatchCQ", "consumequeue"), ("SimpleCQ", "batchconsumequeue")]
)
def test_queues_of_another_type_than_their_topic_are_refused(
    tmp_path: Path, attribute: str, directory: str
) -> None:
    (tmp_path / "config").mkdir()
    topic = f'{{"topicName":"Bulk","attributes":{{"queue.type":"{attribute}"}}}}'
    table = f'{{"topicConfigTable":{{"Bulk":{topic}}}}}'
    (tmp_path / "config" / "topics.json").write_text(table)
    (tmp_path / directory / "Bulk").mkdir(parents=True)
    refuse_unsupported(tmp_path)  # without a queue there is nothing to confuse
    (tmp_path / directory / "Bulk" / "0").mkdir()
    with pytest.raises(UnsupportedStore, match=f"queue.type={attribute} .Bulk.*move"):
        refuse_unsupported(tmp_path)
