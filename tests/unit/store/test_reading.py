import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.kernel import COMPILED
from bolide.kernel.units import UNIT
from bolide.store.config import FlushMode
from bolide.store.consume_queue import ConsumeQueue
from bolide.store.errors import NotInMemory
from bolide.store.message_store import MessageStore
from bolide.store.reading import MessageFilter, ReadLimits, ReadStatus, read_queue
from tests.support.store import body_of, draft, small_config


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = small_config(tmp_path, log_size=65536, queue_units=50)
    with MessageStore(config, background=False) as store:
        yield store


def queue_of(store: MessageStore) -> ConsumeQueue:
    queue = store.queues.find(b"T", 0)
    assert queue
    return queue


def make_cold(store: MessageStore) -> None:
    """Let nothing be read from the mapping any more."""
    store.log._hot_from = store.log.written


def spoil_unit(store: MessageStore, number: int, unit: tuple[int, int, int]) -> None:
    tail = queue_of(store).tail
    data = tail.take(tail.base, 1000)
    data[number * UNIT.size : (number + 1) * UNIT.size] = UNIT.pack(*unit)
    tail.reset(tail.base, data)


def test_cold_records_are_read_in_blocks_and_come_out_the_same(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(2)
    sent = [choice.randbytes(choice.choice([10, 500, 5000])) for _ in range(100)]
    for body in sent:
        store.append(draft(body=body))
        store.append(draft("noise", body=bytes(200)))
    limits = ReadLimits(max_count=1000, max_size=10**9)
    warm = [bytes(record) for record in store.read("T", 0, 0, limits).records]
    make_cold(store)
    reads, read_block = [], store.log.read_block

    def counted(*args: int, may_block: bool) -> memoryview | None:
        reads.append(args)
        return read_block(*args, may_block=may_block)

    monkeypatch.setattr(store.log, "read_block", counted)
    found = store.read("T", 0, 0, limits)
    assert [bytes(record) for record in found.records] == warm
    assert [body_of(record) for record in found.records] == sent
    assert len(reads) < 20


def test_what_is_in_memory_is_read_from_the_mapping_however_old_it_is(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not COMPILED:
        pytest.skip("only the compiled kernel can ask the system")
    for number in range(50):
        store.append(draft(body=b"%d" % number))
    make_cold(store)
    monkeypatch.setattr("bolide.store.commit_log.read_at", lambda *_, **__: pytest.fail("copied"))
    found = store.read("T", 0, 0, may_block=False)
    assert [body_of(record) for record in found.records] == [b"%d" % n for n in range(32)]
    found.records.clear()


def test_a_record_larger_than_a_block_is_read_whole(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path, log_size=300_000), background=False) as store:
        store.append(draft(body=b"x" * 200_000))
        store.append(draft(body=b"y"))
        make_cold(store)
        found = store.read("T", 0, 0)
        assert [len(body_of(record)) for record in found.records] == [200_000, 1]


def test_a_cold_read_that_may_not_block_asks_for_a_thread(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.store.descriptors._ONLY_CACHED", None)
    monkeypatch.setattr("bolide.store.reading.is_resident", lambda *_: False)
    store.append(draft())
    assert store.read("T", 0, 0, may_block=False).status is ReadStatus.FOUND
    make_cold(store)
    with pytest.raises(NotInMemory):
        store.read("T", 0, 0, may_block=False)
    assert store.read("T", 0, 0).status is ReadStatus.FOUND


@pytest.mark.parametrize("size", [1, 7, 8, 35, 36, 90, 2**31 - 2])
def test_a_unit_with_a_wrong_size_is_passed_over(store: MessageStore, size: int) -> None:
    for body in (b"0", b"1", b"2"):
        store.append(draft(body=body))
    place = queue_of(store).unit(1)
    assert place
    spoil_unit(store, 1, (place.physical_offset, size, 0))
    first = store.read("T", 0, 0)
    rest = store.read("T", 0, first.next_offset)
    assert [body_of(record) for record in first.records + rest.records] == [b"0", b"2"]
    assert rest.next_offset == 3


def test_a_unit_that_points_into_a_record_is_passed_over(store: MessageStore) -> None:
    size = store.append(draft(body=b"0")).size
    store.append(draft(body=b"1"))
    for wrong in (1, size - 1, size + 1):
        spoil_unit(store, 0, (wrong, size, 0))
        assert [body_of(record) for record in store.read("T", 0, 0).records] == [b"1"]


def test_a_record_that_says_it_lies_elsewhere_is_passed_over(store: MessageStore) -> None:
    store.append(draft(body=b"0"))
    second = store.append(draft(body=b"1"))
    view = store.log.files[0].view
    view[second.physical_offset + 35] ^= 1
    found = store.read("T", 0, 0)
    assert [body_of(record) for record in found.records] == [b"0"]
    assert found.next_offset == 2


def test_messages_whose_file_is_gone_are_being_removed(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path), background=False) as store:
        for number in range(3):
            store.append(draft(body=bytes([number]) * 3000))
        store.log.retire(store.log.files[0])
        found = store.read("T", 0, 0, ReadLimits(max_scanned=1, max_count=1))
        assert (found.status, found.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 1)
        found = store.read("T", 0, 0)
        assert found.status is ReadStatus.FOUND
        assert [body_of(record)[0] for record in found.records] == [1, 2]
        found.records.clear()


def test_a_unit_that_is_not_there_sends_the_reader_on(store: MessageStore, tmp_path: Path) -> None:
    for _ in range(1000):
        store.append(draft())
    store.maintenance.checkpoint()
    store.close()
    config = small_config(tmp_path, log_size=65536, queue_units=50)
    with MessageStore(config, background=False) as again:
        queue = queue_of(again)
        queue._descriptors.close()
        (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
        found = again.read("T", 0, 0)
        assert (found.status, found.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 1)
        queue.min_offset = 50
        found = read_queue(again.log, queue, 50, ReadLimits(), MessageFilter(), may_block=True)
        assert found.status is ReadStatus.FOUND
        found.records.clear()


def test_blank_units_are_passed_over(store: MessageStore) -> None:
    store.append(draft(body=b"0"))
    queue_of(store).fill(3)
    store.append(draft(body=b"3"))
    found = store.read("T", 0, 0)
    assert [body_of(record) for record in found.records] == [b"0", b"3"]
    found = store.read("T", 0, 1, ReadLimits(max_count=1, max_scanned=2))
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 3)


def test_only_what_is_written_is_read(tmp_path: Path) -> None:
    config = small_config(tmp_path, mode=FlushMode.SYNC)
    with MessageStore(config, background=False) as store:
        store.append(draft(body=b"0"))
        store.flush()
        store.append(draft(body=b"1"))
        found = store.read("T", 0, 0)
        assert [body_of(record) for record in found.records] == [b"0"]
        assert found.max_offset == 1
        assert store.read("T", 0, 1).status is ReadStatus.OFFSET_OVERFLOW_ONE
        found.records.clear()
