"""Offsets in a file, as Java's broadcasting clients keep them; those at brokers are in interop."""

from pathlib import Path

import pytest

from bolide.client.consuming.offsets import LocalOffsets
from bolide.model.message_queue import MessageQueue
from tests.support.aio import on_loop

FIRST, SECOND = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)

# As LocalFileOffsetStore of RocketMQ 5.3 writes it.
JAVA_FILE = """{
\t"offsetTable":{{
\t\t"brokerName":"broker-a",
\t\t"queueId":1,
\t\t"topic":"T"
\t}:42,{
\t\t"brokerName":"broker-a",
\t\t"queueId":0,
\t\t"topic":"T"
\t}:7
\t}
}"""


def store_in(directory: Path) -> LocalOffsets:
    return LocalOffsets(directory, "10.0.0.1@DEFAULT", "G")


@on_loop
async def test_offsets_are_there_again_after_a_restart(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert await store.read(FIRST) is None
    await store.write({FIRST: 5}, wait=False)
    await store.write({SECOND: 6}, wait=True)
    again = store_in(tmp_path)
    assert (await again.read(FIRST), await again.read(SECOND)) == (5, 6)


@on_loop
async def test_the_file_lies_where_java_has_it_and_java_can_read_it(tmp_path: Path) -> None:
    await store_in(tmp_path).write({FIRST: 5}, wait=True)
    file = tmp_path / "10.0.0.1@DEFAULT" / "G" / "offsets.json"
    assert (
        file.read_text() == '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}'
    )


@on_loop
async def test_a_file_of_java_is_read(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.path.parent.mkdir(parents=True)
    store.path.write_text(JAVA_FILE)
    assert (await store.read(FIRST), await store.read(SECOND)) == (7, 42)


@on_loop
async def test_a_broken_file_falls_back_to_its_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await store_in(tmp_path).write({FIRST: 5}, wait=True)
    store = store_in(tmp_path)
    await store.write({FIRST: 6}, wait=True)
    store.path.write_text("{")
    assert await store_in(tmp_path).read(FIRST) == 5
    assert "cannot be read" in caplog.text


@on_loop
async def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    await store.write({FIRST: 5}, wait=True)
    store.path.unlink()
    await store.write({FIRST: 5}, wait=True)
    assert not store.path.exists()
