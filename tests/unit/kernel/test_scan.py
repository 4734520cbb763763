import struct

import pytest

from bolide.kernel import Check, QueueRun, Stop
from bolide.protocol.record import RecordDraft, encode_blank
from bolide.protocol.record_seal import seal_record, with_seal_room
from bolide.protocol.tags import index_hash
from tests.golden.test_record_golden import Case, cases
from tests.unit.kernel.drafts import DRAFT, ENCODED, STORED_AT, log_of, record
from tests.unit.kernel.kernels import Kernel

TAG_A = 2598919
DELAYS = (0, 1000, 5000, 10_000)
SCHEDULED = DRAFT._replace(topic=b"SCHEDULE_TOPIC_XXXX")


def unit(physical_offset: int, size: int = len(ENCODED), code: int = TAG_A) -> bytes:
    return struct.pack(">qiq", physical_offset, size, code)


def entries_of(kernel: Kernel, draft: RecordDraft, delays: tuple[int, ...] = ()) -> list[bytes]:
    data = record(draft, 7, 0)
    return [run.entries for run in kernel.scan(data, 0, len(data), 0, delays=delays).runs]


def test_the_record_of_the_specification(kernel: Kernel) -> None:
    found = kernel.scan(ENCODED, 0, len(ENCODED), 4096)
    assert (found.end, found.stop, found.count) == (len(ENCODED), Stop.END, 1)
    assert (found.first_timestamp, found.last_timestamp) == (STORED_AT, STORED_AT)
    entry = bytes.fromhex("0000000000001000 0000007e 000000000027a807")
    assert found.runs == [QueueRun(b"TopicTest", 3, 7, entry)]
    assert found.keys == b"".join(
        struct.pack(">Iqq", index_hash("TopicTest", key), 4096, STORED_AT)
        for key in ("k1", "k2", "T#TagA")
    )


def test_a_queue_has_one_run_while_its_offsets_follow_each_other(kernel: Kernel) -> None:
    other = DRAFT._replace(queue_id=4)
    log = log_of([(DRAFT, 7), (other, 0), (DRAFT, 8), (other, 1), (DRAFT, 20), (DRAFT, 21)])
    size = len(ENCODED)
    assert kernel.scan(log, 0, len(log), 0).runs == [
        QueueRun(b"TopicTest", 3, 7, unit(0) + unit(2 * size)),
        QueueRun(b"TopicTest", 4, 0, unit(size) + unit(3 * size)),
        QueueRun(b"TopicTest", 3, 20, unit(4 * size) + unit(5 * size)),
    ]


def test_topics_that_are_not_utf_8_are_told_apart(kernel: Kernel) -> None:
    log = log_of([(DRAFT._replace(topic=topic), 0) for topic in (b"a\xfe", b"a\xff")])
    assert [run.topic for run in kernel.scan(log, 0, len(log), 0).runs] == [b"a\xfe", b"a\xff"]


def test_a_short_topic_of_version_2_is_whole(kernel: Kernel) -> None:
    long = DRAFT._replace(topic=b"t" * 200)
    data = record(long, 7, 0)
    short = data.replace(b"\0\xc8" + b"t" * 200, b"\0\x03" + b"t" * 3)
    short = (len(short)).to_bytes(4) + short[4:]
    assert kernel.scan(short, 0, len(short), 0).runs[0].topic == b"ttt"


@pytest.mark.parametrize(
    ("kind", "entries", "keys"), [(0, 1, 3), (4, 0, 3), (8, 1, 3), (12, 0, 0), (0x80, 0, 3)]
)
def test_the_transaction_type_says_what_is_queued_and_filed(
    kernel: Kernel, kind: int, entries: int, keys: int
) -> None:
    data = record(DRAFT._replace(sys_flag=kind | 0x1), 7, 0)
    found = kernel.scan(data, 0, len(data), 0)
    assert (len(found.runs), len(found.keys) // 20, found.count) == (entries, keys, 1)


@pytest.mark.parametrize(
    ("level", "due"),
    [(b"1", 1000), (b"3", 10_000), (b"4", 10_000), (b"999999999", 10_000), (b"002", 5000)],
)
def test_a_scheduled_message_is_queued_with_its_delivery_time(
    kernel: Kernel, level: bytes, due: int
) -> None:
    draft = SCHEDULED._replace(properties=b"DELAY\x01" + level)
    size = len(record(draft, 7, 0))
    assert entries_of(kernel, draft, DELAYS) == [unit(0, size, STORED_AT + due)]


@pytest.mark.parametrize(
    "level", [b"0", b"", b"-1", b"+1", b" 1", b"1_0", b"x", "٣".encode(), b"1" * 10, b"1" * 5000]
)
def test_what_is_no_delay_level_leaves_the_tags(kernel: Kernel, level: bytes) -> None:
    draft = SCHEDULED._replace(properties=b"TAGS\x01TagA\x02DELAY\x01" + level)
    assert entries_of(kernel, draft, DELAYS) == [unit(0, len(record(draft, 7, 0)))]


@pytest.mark.parametrize(
    ("topic", "delays"),
    [
        (b"SCHEDULE_TOPIC_XXXX", ()),
        (b"SCHEDULE_TOPIC_XXXX", (0,)),
        (b"SCHEDULE_TOPIC_XXXY", DELAYS),
    ],
)
def test_without_levels_or_elsewhere_a_delay_means_nothing(
    kernel: Kernel, topic: bytes, delays: tuple[int, ...]
) -> None:
    draft = DRAFT._replace(topic=topic, properties=b"TAGS\x01TagA\x02DELAY\x013")
    assert entries_of(kernel, draft, delays) == [unit(0, len(record(draft, 7, 0)))]


def test_a_damaged_store_time_overflows_as_in_java(kernel: Kernel) -> None:
    data = record(SCHEDULED._replace(properties=b"DELAY\x011"), 7, 0, 2**63 - 1)
    (run,) = kernel.scan(data, 0, len(data), 0, delays=DELAYS).runs
    assert struct.unpack(">qiq", run.entries)[2] == -(2**63) + 999


def test_the_last_queue_offset_has_none_behind_it(kernel: Kernel) -> None:
    log = log_of([(DRAFT, 2**63 - 1), (DRAFT, -(2**63))])
    runs = kernel.scan(log, 0, len(log), 0).runs
    assert [run.queue_offset for run in runs] == [2**63 - 1, -(2**63)]


def test_keys_are_left_out_if_not_asked_for(kernel: Kernel) -> None:
    assert kernel.scan(ENCODED, 0, len(ENCODED), 4096, keys=False).keys == b""


def test_the_walk_begins_and_ends_where_it_is_told(kernel: Kernel) -> None:
    log = log_of([(DRAFT, n) for n in range(4)], 4096)
    size = len(ENCODED)
    found = kernel.scan(log, size, 2 * size + 1, 4096)
    assert (found.end, found.stop, found.count) == (3 * size, Stop.END, 2)
    assert found.first_timestamp == STORED_AT + 1000
    assert found.last_timestamp == STORED_AT + 2000
    assert kernel.scan(log, 2 * size, size, 4096).end == 2 * size


@pytest.mark.parametrize(
    ("behind", "stop"),
    [
        (encode_blank(100), Stop.BLANK),
        (bytes(8), Stop.EMPTY),
        (bytes(7), Stop.DAMAGED),
        (bytes(4) + ENCODED[4:], Stop.DAMAGED),  # the size field was never stored
        (b"\1" + bytes(20), Stop.DAMAGED),
        (ENCODED[:-1], Stop.DAMAGED),
    ],
)
def test_the_walk_says_why_it_stopped(kernel: Kernel, behind: bytes, stop: Stop) -> None:
    found = kernel.scan(ENCODED + behind, 0, len(ENCODED + behind), 4096)
    assert (found.end, found.stop, found.count) == (len(ENCODED), stop, 1)
    assert bool(found.reason) == (stop is Stop.DAMAGED)


def test_a_record_of_another_place_is_not_sound(kernel: Kernel) -> None:
    found = kernel.scan(ENCODED, 0, len(ENCODED), 4097)
    assert (found.end, found.stop, found.count) == (0, Stop.DAMAGED, 0)
    assert found.reason == "its physical offset is 4096, but it lies at 4097"
    assert (found.first_timestamp, found.last_timestamp, found.runs) == (0, 0, [])


@pytest.mark.parametrize(
    ("check", "stop"),
    [(Check.NONE, Stop.END), (Check.BODY, Stop.DAMAGED), (Check.SEAL, Stop.DAMAGED)],
)
def test_a_changed_body_is_found_by_its_checksum(kernel: Kernel, check: Check, stop: Stop) -> None:
    changed = _sealed().replace(b"hello", b"jello")
    assert kernel.scan(changed, 0, len(changed), 4096, check=check).stop is stop


def test_an_empty_body_has_no_checksum_to_compare(kernel: Kernel) -> None:
    data = bytearray(record(DRAFT._replace(body=b""), 7, 4096))
    data[8:12] = b"\1\2\3\4"
    assert kernel.scan(data, 0, len(data), 4096).stop is Stop.END


def test_a_seal_covers_what_the_body_checksum_does_not(kernel: Kernel) -> None:
    sealed = _sealed()
    changed = sealed.replace(b"TagA", b"TagB")
    assert kernel.scan(sealed, 0, len(sealed), 4096, check=Check.SEAL).stop is Stop.END
    assert kernel.scan(changed, 0, len(changed), 4096).stop is Stop.END
    assert kernel.scan(changed, 0, len(changed), 4096, check=Check.SEAL).stop is Stop.DAMAGED
    assert kernel.scan(ENCODED, 0, len(ENCODED), 4096, check=Check.SEAL).stop is Stop.DAMAGED


@pytest.mark.parametrize("case", cases("sealed", "5.x"))
def test_seals_of_java_hold(kernel: Kernel, case: Case) -> None:
    data = bytes.fromhex(case["hex"])
    found = kernel.scan(data, 0, len(data), case["physical_offset"], check=Check.SEAL)
    assert (found.stop, found.count) == (Stop.END, 1)


@pytest.mark.parametrize("case", cases("record"))
def test_records_of_java_are_sound(kernel: Kernel, case: Case) -> None:
    data = bytes.fromhex(case["hex"])
    found = kernel.scan(data, 0, len(data), case["physical_offset"])
    assert (found.stop, found.count, found.end) == (Stop.END, 1, len(data))


@pytest.mark.parametrize("cut", range(len(ENCODED)))
def test_a_record_cut_anywhere_ends_the_walk(kernel: Kernel, cut: int) -> None:
    log = log_of([(DRAFT, 0), (DRAFT, 1)])[: len(ENCODED) + cut]
    found = kernel.scan(log, 0, len(log), 0)
    assert (found.end, found.count) == (len(ENCODED), 1)
    assert found.stop is (Stop.DAMAGED if cut else Stop.END)


@pytest.mark.parametrize(
    ("position", "end", "physical_offset"),
    [(-1, 10, 0), (0, 127, 0), (0, 10, -1), (0, 1, 2**63 - 1)],
)
def test_positions_outside_of_the_buffer_are_refused(
    kernel: Kernel, position: int, end: int, physical_offset: int
) -> None:
    with pytest.raises(ValueError, match="of 126 bytes"):
        kernel.scan(ENCODED, position, end, physical_offset)


def test_an_empty_buffer_holds_nothing(kernel: Kernel) -> None:
    found = kernel.scan(b"", 0, 0, 0)
    assert (found.end, found.stop, found.count, found.runs, found.keys) == (0, Stop.END, 0, [], b"")


def _sealed() -> bytes:
    sealed = bytearray(
        record(DRAFT._replace(properties=with_seal_room(bytes(DRAFT.properties))), 7, 4096)
    )
    seal_record(sealed)
    return bytes(sealed)
