"""Inner batches: records that hold a batch of messages."""

from hypothesis import given
from hypothesis import strategies as st

from bolide.model.message import CompressionType, Message, SysFlag
from bolide.protocol.batch import encode_batch
from bolide.protocol.compression import compress
from bolide.protocol.inner_batch import INNER_FLAGS, count_items, unwrap, unwrap_records
from bolide.protocol.record import (
    Placement,
    Record,
    RecordDraft,
    encode_record,
    iter_records,
    place_record,
    read_record,
)
from tests.support.batches import batch_draft, items
from tests.support.store import V4, V6, draft

batches = st.lists(
    st.builds(
        lambda body, value, flag: Message.unchecked("Bulk", body, {"own": value}, flag),
        st.binary(max_size=40),
        st.text("abcäö", min_size=1, max_size=9),
        st.integers(-(2**31), 2**31 - 1),
    ),
    min_size=1,
    max_size=8,
)


def record_bytes(given_draft: RecordDraft, queue_offset: int = 7) -> bytes:
    record = encode_record(given_draft)
    place_record(record, 0, Placement(queue_offset, 4096, 1_700_000_000_123))
    return bytes(record)


def read(data: bytes) -> Record:
    record = read_record(data)
    assert isinstance(record, Record)
    return record


def facts(records: list[Record]) -> list[tuple[int, int, bytes, dict[str, str]]]:
    return [(r.queue_offset, r.flag, bytes(r.body), r.decode_properties()) for r in records]


@given(batches, st.booleans(), st.booleans())
def test_the_messages_of_a_batch_have_their_own_content_and_the_place_of_the_record(
    messages: list[Message], is_compressed: bool, is_v6: bool
) -> None:
    body, flags = encode_batch(messages), INNER_FLAGS
    if is_compressed:
        body, flags = compress(body, CompressionType.ZLIB), flags | CompressionType.ZLIB.flags
    host = V6 if is_v6 else V4
    wrapped = read(record_bytes(draft("Bulk", body, sys_flag=flags, born_host=host)))
    found = unwrap(wrapped)
    assert facts(found) == [
        (7 + number, message.flag, message.body, dict(message.properties))
        for number, message in enumerate(messages)
    ]
    assert {(r.physical_offset, r.store_timestamp) for r in found} == {(4096, 1_700_000_000_123)}
    assert not any(r.sys_flag & (INNER_FLAGS | SysFlag.COMPRESSED) for r in found)
    again = list(iter_records(unwrap_records(record_bytes(draft("Bulk", body, sys_flag=flags)))))
    assert facts(again) == facts(found)
    assert [r.size for r in again] == [r.size for r in unwrap(read(
        record_bytes(draft("Bulk", body, sys_flag=flags))))]  # fmt: skip


def test_records_around_a_batch_stay_as_they_are() -> None:
    plain = record_bytes(draft("Bulk", b"plain"), 3)
    batch = record_bytes(batch_draft(items(4, 3)), 4)
    found = list(iter_records(unwrap_records(plain + batch + plain)))
    assert [(r.queue_offset, bytes(r.body)) for r in found] == [
        (3, b"plain"), (4, b"4"), (5, b"5"), (6, b"6"), (3, b"plain"),
    ]  # fmt: skip


def test_messages_below_an_offset_are_left_out() -> None:
    data = record_bytes(batch_draft(items(4, 3)), 4)
    assert [r.queue_offset for r in iter_records(unwrap_records(data, 5))] == [5, 6]


def test_a_batch_that_cannot_be_read_is_one_message() -> None:
    good = encode_batch(items(0, 3))
    for size in range(1, len(good)):
        broken = record_bytes(draft("Bulk", good[:size], sys_flag=INNER_FLAGS))
        if size in {len(encode_batch(items(0, count))) for count in (1, 2)}:
            continue  # whole messages are a batch too
        record = read(broken)
        assert unwrap(record) == [record]
        (alone,) = iter_records(unwrap_records(broken))
        assert (bytes(alone.body), alone.sys_flag & INNER_FLAGS) == (good[:size], 0)


def test_both_bits_make_a_batch() -> None:
    for flag in (SysFlag.INNER_BATCH, SysFlag.NEEDS_UNWRAP):
        record = read(record_bytes(draft("Bulk", encode_batch(items(0, 2)), sys_flag=int(flag))))
        assert unwrap(record) == [record]
    assert count_items(encode_batch(items(0, 2)), 2) == 2
    assert count_items(encode_batch(items(0, 9)), 2) == 3  # no more are counted
