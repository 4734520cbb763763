"""What questions find where a queue has lost units; the rest is in `tests/contract`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.model.message import SysFlag
from bolide.protocol.headers.offsets import Boundary
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits
from tests.support.clock import FakeClock
from tests.support.store import draft, small_config


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Messages at seconds 0 to 9 and 20 to 29, and ten lost ones between them."""
    clock = FakeClock(0.0)
    with MessageStore(small_config(tmp_path), clock=clock, background=False) as store:
        for gap in (10, 0):
            for _ in range(10):
                store.append(draft())
                clock.advance(1)
            clock.advance(gap)
            if gap:
                queue = store.queues.find(b"T", 0)
                assert queue
                queue.fill(20)
        yield store


def test_lost_messages_have_no_time(store: MessageStore) -> None:
    assert store.stored_at("T", 0, 9) == 9000
    assert store.stored_at("T", 0, 10) == store.stored_at("T", 0, 19) == -1
    assert store.stored_at("T", 0, 20) == 20_000


def test_a_search_by_time_is_not_led_astray_by_lost_messages(store: MessageStore) -> None:
    for second in (*range(10), *range(21, 30)):
        assert store.offset_at("T", 0, second * 1000) == second
    # Reading from the first lost one leads to what follows it.
    assert store.offset_at("T", 0, 9_001) == store.offset_at("T", 0, 20_000) == 10
    assert store.offset_at("T", 0, 29_001) == 30
    for second in (*range(10), *range(20, 30)):
        assert store.offset_at("T", 0, second * 1000, Boundary.UPPER) == second


def test_bytes_that_are_no_record_are_not_taken_for_the_size_of_one(tmp_path: Path) -> None:
    config = small_config(tmp_path, log_size=64 * 1024)
    with MessageStore(config, background=False) as store:
        place = store.append(draft(body=(60_000).to_bytes(4) * 20)).physical_offset
        wide = store.append(draft(body=bytes(50_000)))
    sizes: list[int] = []

    class Watched(MessageStore):
        def record_at(self, physical_offset: int, *, may_block: bool = True) -> memoryview | None:
            read = self.log.read

            def note(at: int, size: int, *, may_block: bool = True) -> memoryview | None:
                sizes.append(size)
                return read(at, size, may_block=may_block)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self.log, "read", note)
                return super().record_at(physical_offset, may_block=may_block)

    with Watched(config, background=False) as store:
        assert all(store.record_at(at) is None for at in range(place + 1, wide.physical_offset))
        assert max(sizes) < 100
        assert store.record_at(wide.physical_offset) is not None


def test_old_messages_are_read_in_smaller_portions(tmp_path: Path) -> None:
    config = small_config(
        tmp_path, log_size=64 * 1024, max_transfer_count_memory=5, max_transfer_count_disk=2
    )
    with MessageStore(config, background=False) as store:
        for _ in range(10):
            store.append(draft())
        assert len(store.read("T", 0, 0).records) == 5
        store.config.apply({"accessMessageInMemoryMaxRatio": "0"})
        assert len(store.read("T", 0, 0).records) == 2
        assert len(store.read("T", 0, 0, ReadLimits(max_count=7)).records) == 7


def test_sizes_and_counts_are_those_of_the_files(tmp_path: Path) -> None:
    config = small_config(tmp_path, log_size=4096, queue_units=8)
    with MessageStore(config, background=False) as store:
        for number in range(30):
            last = store.append(draft(queue_id=number % 3, properties={"KEYS": "k"}))
        store.append(draft(sys_flag=int(SysFlag.PREPARED)))
        store.maintenance.checkpoint()
        sizes = store.sizes()
    assert sizes.log_bytes > last.end
    assert sizes.log_files == len(list((tmp_path / "commitlog").iterdir()))
    assert (sizes.queues, sizes.messages) == (3, 30)
    assert sizes.queue_files == len(list((tmp_path / "consumequeue").glob("T/*/*"))) == 6
    files = list((tmp_path / "index").iterdir())
    assert (sizes.index_files, sizes.index_bytes) == (
        len(files),
        sum(file.stat().st_size for file in files),
    )


def test_messages_that_retention_took_do_not_count(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path), background=False) as store:
        for _ in range(60):
            store.append(draft())
        store.flush()
        store.log.retire(store.log.files[0])
        store.queues.raise_minimum(store.log.min_offset)
        sizes = store.sizes()
        assert sizes.messages == 60 - store.min_offset("T", 0) < 60
        assert sizes.log_bytes == store.log.end - store.log.min_offset
