"""Conversion of records to columns by both kernels, and their equivalence."""

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import columns
from bolide.kernel.column_buffers import ColumnBuffers, Pairs, Strings, Walk, Wanted
from bolide.kernel.results import Stop
from bolide.model.message import CompressionType, Host
from bolide.protocol.compression import compress
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import encode_blank
from tests.golden.test_record_golden import Case, cases, host
from tests.unit.kernel.drafts import DRAFT, ENCODED, STORED_AT, V6, log_of, record
from tests.unit.kernel.test_twins import logs, mutated

try:
    from bolide.kernel import _columns

    MISSING = ""
except ImportError as exc:
    MISSING = f"no compiled kernel: {exc}; install Cython and a C compiler, then run make test"

Make = Callable[..., columns.Columns]
Row = dict[str, Any]

needs_compiled = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="session", params=["plain", pytest.param("compiled", marks=needs_compiled)])
def make(request: pytest.FixtureRequest) -> Make:
    """Run each test on the plain-Python and on the compiled kernel."""
    return columns.Columns if request.param == "plain" else _columns.Columns


# Reading the buffers back


def numbers(kind: str, data: Any) -> list[int]:
    raw = bytes(memoryview(data))
    return list(struct.unpack(f"={len(raw) // struct.calcsize(kind)}{kind}", raw))


def texts(strings: Strings) -> list[bytes | None]:
    data, bounds = bytes(strings.data), numbers("i", strings.offsets)
    found: list[bytes | None] = [data[start:end] for start, end in pairwise(bounds)]
    if strings.valid is not None:
        bits = bytes(strings.valid)
        found = [item if bits[row // 8] >> row % 8 & 1 else None for row, item in enumerate(found)]
    return found


def pairs_of(pairs: Pairs) -> list[list[tuple[bytes | None, bytes | None]]]:
    both = [*zip(texts(pairs.names), texts(pairs.values), strict=True)]
    assert len(both) == pairs.total
    return [both[start:end] for start, end in pairwise(numbers("i", pairs.offsets))]


def read_back(found: ColumnBuffers) -> dict[str, list[Any]]:
    read: dict[str, list[Any]] = {}
    for name, column in zip(found._fields[1:], found[1:], strict=True):
        if isinstance(column, Strings):
            read[name] = texts(column)
        elif isinstance(column, Pairs):
            read[name] = pairs_of(column)
        elif column is not None:
            read[name] = numbers("q" if name.endswith(("_offset", "_timestamp")) else "i", column)
    return read


def rows_of(found: ColumnBuffers) -> list[Row]:
    read = read_back(found)
    assert {len(column) for column in read.values()} == {found.rows}
    return [dict(zip(read, row, strict=True)) for row in zip(*read.values(), strict=True)]


def rows(make: Make, data: bytes, wanted: Wanted | None = None, **how: Any) -> list[Row]:
    taker = make(wanted or Wanted())
    walk = taker.add(data, **how)
    assert walk == Walk(len(data), Stop.END, "")
    return rows_of(taker.cut())


def row_of(make: Make, **changes: Any) -> Row:
    (row,) = rows(make, record(DRAFT._replace(**changes), 7, 4096))
    return row


# Columns


def test_every_field_of_a_record_has_its_column(make: Make) -> None:
    draft = DRAFT._replace(flag=-3, sys_flag=8, reconsume_times=2)
    assert rows(make, record(draft, 7, 4096)) == [
        {
            "topic": b"TopicTest",
            "queue_id": 3,
            "queue_offset": 7,
            "physical_offset": 4096,
            "message_id": b"0A00000100002A9F0000000000001000",
            "offset_message_id": b"0A00000100002A9F0000000000001000",
            "keys": b"k1 k2",
            "tags": b"TagA",
            "body": b"hello",
            "born_timestamp": 1700000000000_000,
            "store_timestamp": STORED_AT * 1000,
            "born_host": b"10.0.0.5:54321",
            "store_host": b"10.0.0.1:10911",
            "reconsume_times": 2,
            "sys_flag": 8,
            "flag": -3,
            "properties": [(b"TAGS", b"TagA"), (b"KEYS", b"k1 k2")],
        }
    ]


def test_the_unique_key_is_the_message_id(make: Make) -> None:
    row = row_of(make, properties=b"UNIQ_KEY\x01ABC\x02")
    assert row["message_id"] == b"ABC"
    assert row["offset_message_id"] == b"0A00000100002A9F0000000000001000"


def test_hosts_of_both_families(make: Make) -> None:
    mapped = pack_host(Host("::1", 10911))
    row = row_of(make, born_host=V6, store_host=mapped)
    assert (row["born_host"], row["store_host"]) == (b"[2001:db8::1]:10911", b"[::1]:10911")
    assert row["offset_message_id"] == b"00" * 15 + b"01" + b"00002A9F" + b"0000000000001000"
    assert row["sys_flag"] == 0x30


def test_a_long_topic_is_one_of_version_2(make: Make) -> None:
    assert row_of(make, topic=b"t" * 200)["topic"] == b"t" * 200


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (b"", []),
        (b"a\x011", [(b"a", b"1")]),
        (b"a\x011\x02b\x012\x02a\x013\x02", [(b"a", b"3"), (b"b", b"2")]),
        (b"a\x01\x02b\x012\x02", [(b"b", b"2")]),
        (b"\x011\x02a\x02\x02b\x012\x013\x02", [(b"b", b"2\x013")]),
        ("é\x01ü\x02".encode(), [("é".encode(), "ü".encode())]),
        (b"\xfe\x01x\x02\xff\x01y\xff\x02", [("\ufffd".encode(), "y\ufffd".encode())]),
        (b"a\x01\xe2\x82\x02", [(b"a", "\ufffd".encode())]),
    ],
)
def test_properties_are_read_as_elsewhere(
    make: Make, text: bytes, pairs: list[tuple[bytes, bytes]]
) -> None:
    row = row_of(make, properties=text)
    assert row["properties"] == pairs
    assert (row["keys"], row["tags"]) == (None, None)


@pytest.mark.parametrize(
    ("one", "other", "pairs"),
    [
        (b"a\x01b\x02c", b"\x01d\x02", [[(b"a", b"b")], []]),
        (b"a\x01", b"b\x02", [[], []]),
        (b"a\x011", b"b\x012", [[(b"a", b"1")], [(b"b", b"2")]]),
    ],
)
def test_properties_of_a_message_do_not_run_on_into_the_next(
    make: Make, one: bytes, other: bytes, pairs: list[list[tuple[bytes, bytes]]]
) -> None:
    log = log_of((DRAFT._replace(properties=text), n) for n, text in enumerate((one, other)))
    assert [row["properties"] for row in rows(make, log)] == pairs


def test_more_properties_than_are_usual(make: Make) -> None:
    names = [b"n%d" % (number % 150) for number in range(200)]
    text = b"".join(b"%s\x01%d\x02" % (name, place) for place, name in enumerate(names))
    found = dict(row_of(make, properties=text + b"KEYS\x01k\x02")["properties"])
    assert found == {b"n%d" % n: b"%d" % (n + 150 if n < 50 else n) for n in range(150)} | {
        b"KEYS": b"k"
    }


def test_properties_can_be_left_out(make: Make) -> None:
    taker = make(properties=False)
    taker.add(ENCODED)
    found = taker.cut()
    assert found.properties is None
    assert (texts(found.keys), texts(found.tags)) == ([b"k1 k2"], [b"TagA"])


def test_keys_and_tags_are_null_where_there_are_none(make: Make) -> None:
    drafts = [
        DRAFT._replace(properties=b"KEYS\x01k%d\x02" % number if number % 3 else b"")
        for number in range(1300)
    ]
    found = rows(make, log_of((draft, n) for n, draft in enumerate(drafts)))
    assert [row["keys"] for row in found] == [
        b"k%d" % number if number % 3 else None for number in range(1300)
    ]
    assert {row["tags"] for row in found} == {None}


def test_times_that_are_no_times_end_where_the_type_does(make: Make) -> None:
    last = (2**63 - 1) // 1000 * 1000
    assert row_of(make, born_timestamp=2**63 - 1)["born_timestamp"] == last
    assert row_of(make, born_timestamp=-(2**63))["born_timestamp"] == -last


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_compressed_body_is_inflated(make: Make, kind: CompressionType) -> None:
    row = row_of(make, body=compress(b"plain" * 100, kind), sys_flag=kind.flags | 8)
    assert row["body"] == b"plain" * 100
    assert row["sys_flag"] == kind.flags - 1 + 8


def test_a_body_that_does_not_inflate_stays(make: Make) -> None:
    taker = make()
    taker.add(record(DRAFT._replace(sys_flag=1), 7, 0))
    assert taker.left_compressed == 1
    (row,) = rows_of(taker.cut())
    assert (row["body"], row["sys_flag"]) == (b"hello", 1)
    assert taker.left_compressed == 0


@pytest.mark.parametrize("case", cases("record"))
def test_records_of_java_become_rows(make: Make, case: Case) -> None:
    (row,) = rows(make, bytes.fromhex(case["hex"]), physical_offset=4096, check_crc=True)
    assert row["topic"] == case["topic"].encode()
    assert row["body"] == bytes.fromhex(str(case.get("plain", case["body"])))
    assert row["sys_flag"] == case["sys_flag"] - ("plain" in case)
    assert (row["born_host"], row["store_host"]) == tuple(
        str(host(case[name])).encode() for name in ("born_host", "store_host")
    )
    assert row["properties"] == [
        (name.encode(), value.encode()) for name, value in case["properties"].items()
    ]
    for name in ("flag", "queue_id", "queue_offset", "physical_offset", "reconsume_times"):
        assert row[name] == case[name]
    for name in ("born_timestamp", "store_timestamp"):
        assert row[name] == case[name] * 1000


# Which records become rows


def test_queue_offsets_outside_of_the_range_are_passed_over(make: Make) -> None:
    log = log_of((DRAFT, number) for number in range(10))
    found = rows(make, log, Wanted(first_offset=103, end_offset=106), offset_delta=100)
    assert [row["queue_offset"] for row in found] == [103, 104, 105]


def test_store_times_outside_of_the_range_are_passed_over(make: Make) -> None:
    log = log_of((DRAFT, number) for number in range(5))  # a second apart
    found = rows(make, log, Wanted(since=STORED_AT + 1000, until=STORED_AT + 3000))
    assert [row["queue_offset"] for row in found] == [1, 2]


def test_a_topic_is_judged_once(make: Make) -> None:
    asked = []

    def is_wanted(topic: bytes) -> bool:
        asked.append(topic)
        return topic in {b"a", b"\xff"}

    topics = [b"a", b"b", b"a", b"", b"\xff", b"b", b""]
    log = log_of((DRAFT._replace(topic=topic), n) for n, topic in enumerate(topics))
    found = rows(make, log, Wanted(topic=is_wanted))
    assert [row["topic"] for row in found] == [b"a", b"a", "\ufffd".encode()]
    assert asked == [b"a", b"b", b"", b"\xff"]


@pytest.mark.parametrize(("kind", "is_delivered"), [(0, True), (4, False), (8, True), (12, False)])
def test_half_and_rolled_back_messages_can_be_left_out(
    make: Make, kind: int, is_delivered: bool
) -> None:
    data = record(DRAFT._replace(sys_flag=kind), 7, 0)
    assert len(rows(make, data, Wanted(undelivered=False))) == is_delivered
    assert len(rows(make, data)) == 1


# The walk


def test_it_is_full_by_rows_and_goes_on_where_it_was(make: Make) -> None:
    log, size = log_of((DRAFT, number) for number in range(5)), len(ENCODED)
    taker = make(max_rows=2)
    assert taker.add(log) == Walk(2 * size, Stop.FULL, "")
    assert (taker.rows, taker.is_full) == (2, True)
    assert [row["queue_offset"] for row in rows_of(taker.cut())] == [0, 1]
    assert (taker.rows, taker.is_full) == (0, False)
    assert taker.add(log, 2 * size, 3 * size) == Walk(3 * size, Stop.END, "")
    assert taker.add(log, 3 * size + 0) == Walk(4 * size, Stop.FULL, "")
    assert [row["queue_offset"] for row in rows_of(taker.cut())] == [2, 3]


def test_it_is_full_by_the_size_of_plain_bodies(make: Make) -> None:
    packed = DRAFT._replace(body=compress(bytes(1000), CompressionType.ZLIB), sys_flag=0x301)
    log = log_of([(packed, 0), (packed, 1), (packed, 2)])
    properties = len(packed.properties)
    taker = make(max_size=1001 + properties)
    assert taker.add(log).stop is Stop.FULL
    assert (taker.rows, taker.size) == (2, 2 * (1000 + properties))


def test_it_is_full_by_the_size_of_properties_too(make: Make) -> None:
    large = DRAFT._replace(properties=b"a\x01" + b"x" * 30_000)
    taker = make(max_size=100_000)
    assert taker.add(log_of((large, number) for number in range(10))).stop is Stop.FULL
    assert taker.rows == 4


def test_rows_of_several_buffers_make_one_set_of_columns(make: Make) -> None:
    taker = make()
    for number in range(1500):
        taker.add(record(DRAFT, number, 0))
    assert [row["queue_offset"] for row in rows_of(taker.cut())] == [*range(1500)]


def test_columns_given_out_do_not_change_later(make: Make) -> None:
    taker = make()
    taker.add(ENCODED)
    first = taker.cut()
    before = rows_of(first)
    taker.add(log_of((DRAFT._replace(body=b"other"), number) for number in range(2000)))
    taker.cut()
    assert rows_of(first) == before


def test_no_rows_make_empty_columns(make: Make) -> None:
    assert rows(make, b"") == []


@pytest.mark.parametrize(
    ("behind", "stop", "reason"),
    [
        (encode_blank(100), Stop.BLANK, ""),
        (bytes(8), Stop.EMPTY, ""),
        (bytes(7), Stop.DAMAGED, "needs 8 bytes, 7 are left"),
        (ENCODED[:-1], Stop.DAMAGED, "needs 126 bytes, 125 are left"),
        (b"\1" + bytes(20), Stop.DAMAGED, "unknown magic 0x00000000"),
    ],
)
def test_the_walk_says_why_it_stopped(make: Make, behind: bytes, stop: Stop, reason: str) -> None:
    taker = make()
    assert taker.add(ENCODED + behind) == Walk(len(ENCODED), stop, reason)
    assert taker.rows == 1


def test_a_record_of_another_place_is_not_sound(make: Make) -> None:
    assert make().add(ENCODED, physical_offset=4096).stop is Stop.END
    reason = "its physical offset is 4096, but it lies at 4097"
    assert make().add(ENCODED, physical_offset=4097) == Walk(0, Stop.DAMAGED, reason)


def test_bodies_of_rows_are_compared_with_their_checksum_if_asked(make: Make) -> None:
    changed = ENCODED.replace(b"hello", b"jello")
    assert make().add(changed).stop is Stop.END
    assert make().add(changed, check_crc=True).stop is Stop.DAMAGED
    assert make(Wanted(end_offset=7)).add(changed, check_crc=True).stop is Stop.END


@pytest.mark.parametrize("cut", range(len(ENCODED)))
def test_a_record_cut_anywhere_ends_the_walk(make: Make, cut: int) -> None:
    log = log_of([(DRAFT, 0), (DRAFT, 1)])[: len(ENCODED) + cut]
    walk = make().add(log)
    assert walk.end == len(ENCODED)
    assert walk.stop is (Stop.DAMAGED if cut else Stop.END)


@pytest.mark.parametrize(("position", "end", "base"), [(-1, 9, 0), (0, 127, 0), (0, 9, -1)])
def test_positions_outside_of_the_buffer_are_refused(
    make: Make, position: int, end: int, base: int
) -> None:
    with pytest.raises(ValueError, match="of 126 bytes"):
        make().add(ENCODED, position, end, physical_offset=base)


# The twins

wanteds = st.builds(
    Wanted,
    first_offset=st.sampled_from([-(2**63), 0, 2]),
    end_offset=st.sampled_from([2**63, 3]),
    since=st.sampled_from([-(2**63), STORED_AT]),
    until=st.sampled_from([2**63, STORED_AT]),
    undelivered=st.booleans(),
    topic=st.sampled_from([None, lambda topic: topic != b"TopicTest"]),
)


def outcomes(make: Make, data: bytes, wanted: Wanted, limit: int, **how: Any) -> list[object]:
    """All observable results of adding a buffer, cut whenever the columns are full."""
    taker = make(wanted, max_rows=limit, max_size=120)
    seen: list[object] = []
    position = 0
    while True:
        walk = taker.add(bytearray(data), position, **how)
        seen += [walk, taker.rows, taker.size, taker.left_compressed]
        seen.append(read_back(taker.cut()))
        if walk.stop is not Stop.FULL:
            return seen
        position = walk.end


@needs_compiled
@given(
    log=logs(),
    wanted=wanteds,
    limit=st.integers(1, 4),
    is_placed=st.booleans(),
    check_crc=st.booleans(),
    delta=st.sampled_from([0, 0, 5, -(2**63), 2**63 - 1]),
)
def test_both_give_the_same(
    log: tuple[bytes, int], wanted: Wanted, limit: int, is_placed: bool, check_crc: bool, delta: int
) -> None:
    data, start = log
    how = {"check_crc": check_crc, "offset_delta": delta}
    how["physical_offset"] = start if is_placed else None  # type: ignore[assignment]
    plain = outcomes(columns.Columns, data, wanted, limit, **how)
    assert outcomes(_columns.Columns, data, wanted, limit, **how) == plain


@needs_compiled
@given(data=st.one_of(st.binary(max_size=200), mutated(ENCODED), mutated(ENCODED + ENCODED)))
def test_both_give_the_same_for_anything(data: bytes) -> None:
    plain = outcomes(columns.Columns, data, Wanted(), 3)
    assert outcomes(_columns.Columns, data, Wanted(), 3) == plain


@needs_compiled
@pytest.mark.parametrize("at", range(len(ENCODED)))
def test_both_give_the_same_for_every_byte_changed(at: int) -> None:
    for value in (0, 1, 0x7F, 0x80, 0xFF):
        data = bytearray(ENCODED + ENCODED)
        data[at] = value
        plain = outcomes(columns.Columns, bytes(data), Wanted(), 3)
        assert outcomes(_columns.Columns, bytes(data), Wanted(), 3) == plain
