"""The table of topics with expiring messages."""

from errno import ENOSPC
from pathlib import Path

import pytest

from bolide.broker.consume.expiry import EXPIRING_TOPICS, Expiring
from bolide.model.names import retry_topic
from bolide.model.properties import PropertyName
from bolide.protocol.refusals import ServerError
from bolide.store.reading import EVERYTHING, MessageFilter
from bolide.store.tables import Table
from tests.support.aio import on_loop
from tests.support.clock import FakeClock
from tests.support.faults import FaultyDisk

EXPIRES = f"{PropertyName.EXPIRES_AT}\x0112\x02"


def loaded(directory: Path, existing: set[str] | None = None) -> Expiring:
    table = Table(directory, EXPIRING_TOPICS)
    table.load()
    exists = (lambda _: True) if existing is None else existing.__contains__
    return Expiring(table, now=FakeClock(), exists=exists)


@on_loop
async def test_a_topic_is_noted_with_its_first_message_that_expires(tmp_path: Path) -> None:
    expiring = loaded(tmp_path)
    assert expiring.is_new("T", EXPIRES)
    assert expiring.is_new("T", "", EXPIRES.encode())
    assert not expiring.is_new("T", "colour\x01red\x02", b"a batch")
    await expiring.add("T")

    for known in (expiring, loaded(tmp_path)):
        assert not known.is_new("T", EXPIRES)
        assert known.is_new("Other", EXPIRES)


@on_loop
async def test_records_of_other_topics_are_not_decoded(tmp_path: Path) -> None:
    expiring = loaded(tmp_path)
    retries = retry_topic("G")
    assert expiring.wanted(retries, EVERYTHING) is EVERYTHING
    await expiring.add("T")

    assert expiring.wanted("Other", EVERYTHING) is EVERYTHING
    assert expiring.wanted("T", EVERYTHING).record
    assert expiring.wanted(retries, EVERYTHING).record
    assert not expiring.is_new(retries, EXPIRES), "all topics of retries are looked at by now"


@on_loop
async def test_the_filter_of_the_consumer_counts_too(tmp_path: Path) -> None:
    expiring = loaded(tmp_path)
    await expiring.add("T")
    wanted = MessageFilter(code=lambda code: code == 5, record=lambda data: bytes(data) == b"yes")
    composed = expiring.wanted("T", wanted)

    assert composed.code is wanted.code
    assert composed.record
    assert composed.record(memoryview(b"yes")), "what is no record is for others to judge"
    assert not composed.record(memoryview(b"no"))


@on_loop
async def test_topics_that_are_gone_are_forgotten_with_the_next_one(tmp_path: Path) -> None:
    existing = {"T", "Other"}
    expiring = loaded(tmp_path, existing)
    await expiring.add("T")
    existing.remove("T")
    await expiring.add("Other")

    assert expiring.is_new("T", EXPIRES)
    assert not loaded(tmp_path).is_new("Other", EXPIRES)


@on_loop
async def test_a_topic_that_cannot_be_noted_gets_no_such_message(tmp_path: Path) -> None:
    disk = FaultyDisk()
    expiring = Expiring(Table(tmp_path, EXPIRING_TOPICS, disk=disk), now=FakeClock())

    with disk.failing("replace", ENOSPC), pytest.raises(ServerError, match="cannot be written"):
        await expiring.add("T")
    assert expiring.is_new("T", EXPIRES)
    await expiring.add("T")
    assert not loaded(tmp_path).is_new("T", EXPIRES)
