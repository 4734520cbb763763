"""Inner batches that the kernels meet in a log, compiled and in plain Python."""

import pytest

from bolide import kernel
from bolide.kernel import columns, records
from bolide.kernel.results import Stop
from bolide.model.message import SysFlag
from bolide.protocol.record import Placement, RecordDraft, encode_record, place_record
from tests.support.batches import batch_draft, items
from tests.support.store import draft

BOTH = [
    pytest.param(kernel.scan, kernel.Columns, id="chosen"),
    pytest.param(records.scan, columns.Columns, id="plain"),
]


def log_of(*drafts: RecordDraft) -> tuple[bytes, list[int]]:
    """Records behind each other from physical offset 0 on, and where each begins."""
    data, starts = bytearray(), []
    for queue_offset, each in enumerate(drafts):
        starts.append(len(data))
        record = encode_record(each)
        place_record(record, 0, Placement(queue_offset, len(data), 1_700_000_000_000))
        data += record
    return bytes(data), starts


@pytest.mark.parametrize(("scan", "make_columns"), BOTH)
def test_a_scan_tells_where_batches_are_and_makes_no_units_of_them(
    scan: type, make_columns: type
) -> None:
    prepared = batch_draft(items(0, 2))._replace(sys_flag=0xC0 | int(SysFlag.PREPARED))
    data, starts = log_of(
        draft("T"), batch_draft(items(0, 3)), draft("T"), batch_draft(items(3, 2)), prepared
    )
    found = scan(data, 0, len(data), 0)
    assert found.batches == [starts[1], starts[3]]
    assert [(run.topic, run.queue_offset) for run in found.runs] == [(b"T", 0), (b"T", 2)]
    assert (found.count, found.stop) == (5, Stop.END)
    part = scan(data, starts[2], len(data), 0)
    assert part.batches == [starts[3]]


@pytest.mark.parametrize(("scan", "make_columns"), BOTH)
def test_columns_stop_at_a_batch_and_go_on_behind_it(scan: type, make_columns: type) -> None:
    data, starts = log_of(draft("T"), batch_draft(items(0, 3)), draft("T"))
    table = make_columns()
    assert table.add(data) == (starts[1], Stop.BATCH, "")
    assert table.add(data, starts[1], physical_offset=0) == (starts[1], Stop.BATCH, "")
    assert table.add(data, starts[2]) == (len(data), Stop.END, "")
    assert table.rows == 2
    cut = table.add(data[: starts[2] - 1], starts[1])
    assert (cut[0], cut[1]) == (starts[1], Stop.DAMAGED)


def test_both_kernels_find_the_same_in_a_mixed_log() -> None:
    drafts = [batch_draft(items(n, n % 3 + 1)) if n % 2 else draft(f"T{n % 4}") for n in range(40)]
    data, _ = log_of(*drafts)
    assert kernel.scan(data, 0, len(data), 0) == records.scan(data, 0, len(data), 0)
