"""Equivalence of the compiled and plain-Python kernels: results, errors and error texts."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bolide.errors import BolideError
from bolide.kernel import Check
from bolide.protocol.record import Record, RecordDraft, encode_blank
from bolide.protocol.record_seal import seal_record, with_seal_room
from tests.unit.kernel.drafts import DRAFT, ENCODED, STORED_AT, V4, V6, record
from tests.unit.kernel.kernels import MISSING, Kernel, kernel_named

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

Outcome = tuple[object, ...]

names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "KEY", "TAGSX", ""])
separators = st.sampled_from([b"", b" ", b"\x01", b"\x02", b"  ", b"\x02\x01"])
values = st.one_of(
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.integers(-3, 30).map(lambda number: str(number).encode()),
    st.binary(max_size=8),
)
pairs = st.tuples(
    names.map(str.encode), st.sampled_from([b"\x01", b"\x01", b""]), values, separators
)
properties = st.one_of(
    st.lists(pairs, max_size=5).map(lambda found: b"\x02".join(map(b"".join, found))),
    st.binary(max_size=40),
)
topics = st.one_of(
    st.sampled_from([b"TopicTest", b"SCHEDULE_TOPIC_XXXX", b"", b"t" * 127, b"t" * 128]),
    st.binary(max_size=12),
)
hosts = st.one_of(st.sampled_from([V4, V6]), st.binary(max_size=22))
ints = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**64), 2**64))
longs = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**65), 2**65))
drafts = st.builds(
    RecordDraft,
    topics,
    st.binary(max_size=70),
    properties,
    st.one_of(st.integers(0, 2), ints),
    longs,
    hosts,
    hosts,
    ints,
    st.one_of(st.integers(0, 0xFF), ints),
    ints,
    longs,
)
places = st.tuples(longs, longs, longs)
sound_drafts = st.builds(
    RecordDraft,
    topic=topics,
    body=st.binary(max_size=40),
    properties=properties,
    queue_id=st.integers(0, 1),
    born_timestamp=st.integers(0, 2**63 - 1),
    born_host=st.sampled_from([V4, V6]),
    store_host=st.sampled_from([V4, V6]),
    flag=st.integers(-1, 1),
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12, 0x80, 0xFF]),
    reconsume_times=st.integers(0, 16),
    prepared_transaction_offset=st.integers(0, 2**63 - 1),
)


@pytest.fixture(scope="module")
def twins() -> tuple[Kernel, Kernel]:
    return kernel_named("reference"), kernel_named("compiled")


def outcome(call: Callable[..., object], *arguments: Any, **options: Any) -> Outcome:
    """The result or exception of a call, and the content of the buffer afterwards."""
    given = [_fresh(each) for each in arguments]
    try:
        result: Outcome = (_plain(call(*given, **options)),)
    except (BolideError, ValueError, struct.error) as exc:
        result = (type(exc), str(exc), vars(exc))
    return *result, [bytes(each) for each in given if isinstance(each, bytearray)]


def _fresh(argument: object) -> object:
    return bytearray(argument) if isinstance(argument, bytearray) else argument


def _plain(result: object) -> object:
    """Views already compare by bytes; types must be equal too."""
    if isinstance(result, Record):
        return [(type(field), field) for field in result]
    return type(result), result


@given(draft=drafts, limit=st.integers(0, 80))
def test_room_for_a_record(twins: tuple[Kernel, Kernel], draft: RecordDraft, limit: int) -> None:
    expected, found = (outcome(kernel.record_size, draft, limit) for kernel in twins)
    assert found == expected


@given(
    draft=drafts, at=st.integers(-2, 30), room=st.integers(0, 400), place=st.tuples(*[longs] * 3)
)
def test_writing_a_record(
    twins: tuple[Kernel, Kernel],
    draft: RecordDraft,
    at: int,
    room: int,
    place: tuple[int, int, int],
) -> None:
    target = bytearray(room)
    expected, found = (outcome(kernel.write_record, target, at, draft, *place) for kernel in twins)
    assert found == expected


@given(topic=topics, text=properties)
def test_describing_a_message(twins: tuple[Kernel, Kernel], topic: bytes, text: bytes) -> None:
    expected, found = (outcome(kernel.describe, topic, text) for kernel in twins)
    assert found == expected


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Change, delete or insert a few bytes, mostly in length fields."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        how = draw(st.sampled_from(["set", "set", "cut", "put"]))
        if how == "set":
            changed[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif how == "cut":
            del changed[at : at + draw(st.integers(1, 9))]
        else:
            changed[at:at] = draw(st.binary(max_size=9))
    return bytes(changed)


damaged_records = st.one_of(
    sound_drafts.map(lambda draft: record(draft, 7, 0)).flatmap(mutated),
    st.binary(max_size=120),
    st.binary(max_size=120).map(lambda data: ENCODED[:8] + data),
)


@given(data=damaged_records, position=st.integers(-3, 5), check_crc=st.booleans())
@example(ENCODED, 0, True)
@example(encode_blank(8), 0, True)
def test_reading_what_may_be_no_record(
    twins: tuple[Kernel, Kernel], data: bytes, position: int, check_crc: bool
) -> None:
    expected, found = (
        outcome(kernel.read_record, data, position, check_crc=check_crc) for kernel in twins
    )
    assert found == expected


def sealed_record(
    draft: RecordDraft, queue_offset: int, physical_offset: int, stored_at: int
) -> bytes:
    roomy = draft._replace(properties=with_seal_room(bytes(draft.properties)))
    written = bytearray(record(roomy, queue_offset, physical_offset, stored_at))
    seal_record(written)
    return bytes(written)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """A log at a physical offset, with mostly valid records."""
    start = draw(st.sampled_from([0, 0, 4096, 2**62]))
    log, queue_offset = b"", 0
    for draft in draw(st.lists(sound_drafts, max_size=5)):
        stored_at = draw(st.sampled_from([STORED_AT, 0, -1, 2**63 - 1]))
        write = draw(st.sampled_from([record, sealed_record]))
        log += write(draft, queue_offset, start + len(log), stored_at)
        queue_offset += draw(st.sampled_from([0, 1, 1, 1, 2]))
    log += draw(st.sampled_from([b"", bytes(8), bytes(40), encode_blank(64), ENCODED, ENCODED[4:]]))
    return draw(st.one_of(st.just(log), mutated(log))), start


@given(
    log=logs(),
    position=st.integers(-1, 3),
    cut=st.integers(-1, 60),
    check=st.sampled_from(Check),
    delays=st.sampled_from([(), (0,), (0, 1000, 2**40)]),
    keys=st.booleans(),
)
def test_walking_over_a_log(
    twins: tuple[Kernel, Kernel],
    *,
    log: tuple[bytes, int],
    position: int,
    cut: int,
    check: Check,
    delays: tuple[int, ...],
    keys: bool,
) -> None:
    data, start = log
    at = 0 if position < 3 else position  # mostly where a record begins
    expected, found = (
        outcome(
            kernel.scan, data, at, len(data) - cut, start, check=check, delays=delays, keys=keys
        )
        for kernel in twins
    )
    assert found == expected


@given(data=st.binary(max_size=200), start=st.integers(-1, 2**63), check=st.sampled_from(Check))
def test_walking_over_anything(
    twins: tuple[Kernel, Kernel], data: bytes, start: int, check: Check
) -> None:
    if start == 2**63:
        start = 2**63 - 1  # the largest that is a long
    expected, found = (
        outcome(kernel.scan, data, 0, len(data), start, check=check) for kernel in twins
    )
    assert found == expected


files = st.binary(min_size=40, max_size=40 + 4 * 5 + 20 * 9)
slots_and_counts = st.tuples(st.integers(-1, 9), st.integers(-1, 10))


@given(
    data=files,
    numbers=slots_and_counts,
    count=st.integers(-1, 10),
    begin=st.integers(-(2**63), 2**63 - 1),
    keys=st.lists(st.binary(min_size=20, max_size=20), max_size=9).map(b"".join),
    cut=st.sampled_from([0, 0, 0, 1]),
)
def test_putting_keys_into_any_file(
    twins: tuple[Kernel, Kernel],
    *,
    data: bytes,
    numbers: tuple[int, int],
    count: int,
    begin: int,
    keys: bytes,
    cut: int,
) -> None:
    items = keys[: len(keys) - cut]
    expected, found = (
        outcome(kernel.put_keys, bytearray(data), *numbers, count, begin, items) for kernel in twins
    )
    assert found == expected


@given(
    chain=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 9)), max_size=9),
    noise=st.lists(st.tuples(st.integers(40, 239), st.integers(0, 255)), max_size=4),
    count=st.integers(1, 10),
    key_hash=st.integers(0, 3),
    seconds=st.tuples(st.integers(-3, 9), st.integers(-3, 9)),
    limit=st.integers(-1, 9),
)
def test_finding_keys_in_any_file(
    twins: tuple[Kernel, Kernel],
    *,
    chain: list[tuple[int, int, int]],
    noise: list[tuple[int, int]],
    count: int,
    key_hash: int,
    seconds: tuple[int, int],
    limit: int,
) -> None:
    data = bytearray(40 + 4 * 2 + 20 * 10)
    items = b"".join(struct.pack(">Iqq", *each[:2], 1 + each[2] * 1000) for each in chain)
    twins[0].put_keys(data, 2, 10, 1, 1, items)
    for at, value in noise:
        data[at] = value
    expected, found = (
        outcome(kernel.find_keys, data, 2, count, key_hash, seconds, limit) for kernel in twins
    )
    assert found == expected


@given(data=files, numbers=slots_and_counts)
def test_rebuilding_slots_of_any_file(
    twins: tuple[Kernel, Kernel], data: bytes, numbers: tuple[int, int]
) -> None:
    expected, found = (outcome(kernel.rebuild_slots, bytearray(data), *numbers) for kernel in twins)
    assert found == expected


@given(data=st.binary(max_size=100))
def test_checksums(twins: tuple[Kernel, Kernel], data: bytes) -> None:
    expected, found = (outcome(kernel.body_crc, data) for kernel in twins)
    assert found == expected


def test_the_twins_differ_where_they_should() -> None:
    """Check that the comparison detects differences."""
    reference = kernel_named("reference")
    assert outcome(reference.body_crc, b"a") != outcome(reference.body_crc, b"b")
    assert outcome(reference.read_record, b"a") != outcome(reference.read_record, b"bb")
    target = bytearray(200)
    assert outcome(reference.write_record, target, 0, DRAFT, 7, 0, 1) != outcome(
        reference.write_record, target, 0, DRAFT, 7, 0, 2
    )
