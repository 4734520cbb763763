from pathlib import Path

import pytest

from bolide.store.compaction.segments import (
    UNIT_SIZE,
    Entry,
    FileSizes,
    Segment,
    SegmentWriter,
    SparseUnit,
)
from bolide.store.disk import Disk

SIZES = FileSizes(5 * 46 * 4, 46 * 4)


@pytest.mark.parametrize(
    ("log", "queue", "sizes"),
    [
        (104857600, 10485760, (104857460, 10485746)),  # the defaults
        (4002, 509, (4048, 506)),
        (100, 509, (2530, 506)),
        (2530, 506, (3036, 506)),
        (2600, 506, (2530, 506)),
    ],
)
def test_sizes_are_rounded_as_rocketmq_rounds_them(
    log: int, queue: int, sizes: tuple[int, int]
) -> None:
    assert FileSizes.of(log, queue) == sizes


def test_a_unit_has_rocketmqs_bytes() -> None:
    unit = SparseUnit(1000, 200, 2598919, 1_700_000_000_000, 77)
    packed = unit.pack()
    fields = ["3e8", "c8", "27a807", "18bcfe56800", "4d", "1", "ffffffff", "0"]
    widths = (16, 8, 16, 16, 16, 4, 8, 8)
    assert packed.hex() == "".join(map(str.zfill, fields, widths))
    assert SparseUnit.unpack(packed) == unit
    for cut in range(UNIT_SIZE):
        assert SparseUnit.unpack(packed[:cut]) is None
    assert SparseUnit.unpack(bytes(UNIT_SIZE)) is None


def entry(queue_offset: int, size: int = 50) -> Entry:
    record = size.to_bytes(4) + bytes(size - 4)
    return Entry(record, queue_offset, 0, 0)


def writer_in(path: Path) -> SegmentWriter:
    return SegmentWriter(path / "log", path / "queue", SIZES, Disk(), [])


def test_a_full_queue_file_closes_the_segment(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.append([entry(number) for number in range(4)])
    first, second = writer.segments
    assert (first.count, first.first, first.last, first.is_full) == (3, 0, 2, True)
    assert (second.count, second.start) == (1, SIZES.log)
    closing = first.queue.read_bytes()[3 * UNIT_SIZE :]
    assert closing.hex() == "ff" * 8 + "00" * 30 + "ff" * 4 + "00" * 4
    assert first.log.read_bytes()[150:158].hex() == f"{SIZES.log - 150:08x}cbd43194"


def test_a_full_log_file_closes_the_segment(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.append([entry(0, SIZES.log - 8), entry(5, 500), entry(6, 500)])
    assert [(each.first, each.count) for each in writer.segments] == [(0, 1), (5, 1), (6, 1)]
    with pytest.raises(ValueError, match="does not fit"):
        writer.append([entry(7, SIZES.log - 7)])


def test_units_are_found_by_queue_offset(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.append([entry(10), entry(20), entry(30)])
    segment: Segment = writer.segments[0]
    assert [segment.find(offset) for offset in (0, 10, 11, 20, 30, 31)] == [0, 0, 1, 1, 2, 3]
    assert [unit.queue_offset for unit in segment.units(1, 9)] == [20, 30]
    places = [(unit.physical_offset, len(data)) for unit, data in segment.records()]
    assert places == [(0, 50), (50, 50), (100, 50)]
