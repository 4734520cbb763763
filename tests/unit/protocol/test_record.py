from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.model.message import Host, StoredMessage, SysFlag
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import (
    Blank,
    Placement,
    Record,
    RecordDraft,
    body_crc,
    encode_blank,
    encode_message,
    encode_record,
    iter_records,
    place_record,
    read_record,
)
from bolide.protocol.record_errors import (
    BadChecksum,
    BadLengths,
    BadMagic,
    BadRecord,
    RecordTooLarge,
    TruncatedRecord,
)

V4 = pack_host(Host("10.0.0.5", 54321))
V6 = pack_host(Host("2001:db8::1", 10911))
DRAFT = RecordDraft(
    topic=b"TopicTest",
    body=b"hello",
    properties=b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02",
    queue_id=3,
    born_timestamp=1700000000000,
    born_host=V4,
    store_host=pack_host(Host("10.0.0.1", 10911)),
)
PLACE = Placement(queue_offset=7, physical_offset=4096, store_timestamp=1700000000123)
ENCODED = bytes.fromhex(
    "0000007e daa320a7 3610a686 00000003 00000000 0000000000000007 0000000000001000 00000000"
    "0000018bcfe56800 0a0000050000d431 0000018bcfe5687b 0a00000100002a9f 00000000 0000000000000000"
    "00000005 68656c6c6f 09 546f70696354657374 0015 54414753015461674102 4b455953016b31206b3202"
)
MESSAGE = StoredMessage(
    "TopicTest",
    b"hello",
    {"TAGS": "TagA", "KEYS": "k1 k2"},
    queue_id=3,
    queue_offset=7,
    physical_offset=4096,
    sys_flag=0,
    born_timestamp=1700000000000,
    born_host=Host("10.0.0.5", 54321),
    store_timestamp=1700000000123,
    store_host=Host("10.0.0.1", 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body_crc=907060870,
    size=126,
    version=1,
)


def placed(draft: RecordDraft, place: Placement = PLACE) -> bytes:
    record = encode_record(draft)
    place_record(record, 0, place)
    return bytes(record)


def read(data: bytes, position: int = 0) -> Record:
    record = read_record(data, position, check_crc=True)
    assert isinstance(record, Record)
    return record


def test_the_record_of_the_specification() -> None:
    assert placed(DRAFT) == ENCODED
    assert read(ENCODED).message() == MESSAGE
    assert encode_message(MESSAGE) == ENCODED
    assert body_crc(b"hello") == 907060870


INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.sampled_from([Host("10.0.0.5", 54321), Host("2001:db8::1", 10911)])
NAMES = st.text("abcé中🚀", min_size=1, max_size=5)


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    def some(strategy: st.SearchStrategy[Any]) -> Any:
        return data.draw(strategy)

    draft = RecordDraft(
        some(st.text(max_size=50) | st.text("t", min_size=100, max_size=300)).encode(),
        some(st.binary(max_size=100)),
        some(st.binary(max_size=100)),
        some(INT),
        some(LONG),
        pack_host(some(HOSTS)),
        pack_host(some(HOSTS)),
        some(INT),
        some(INT),
        some(INT),
        some(LONG),
    )
    place = Placement(some(LONG), some(LONG), some(LONG))
    record = read(placed(draft, place))
    assert Placement(record.queue_offset, record.physical_offset, record.store_timestamp) == place
    again = draft._replace(sys_flag=record.sys_flag)
    assert again == RecordDraft(
        record.topic.encode(),
        bytes(record.body),
        bytes(record.properties),
        *(getattr(record, name) for name in RecordDraft._fields[3:]),
    )


@given(
    st.builds(
        StoredMessage,
        NAMES,
        st.binary(max_size=50),
        st.dictionaries(NAMES, NAMES, max_size=3),
        queue_id=INT,
        queue_offset=LONG,
        physical_offset=LONG,
        sys_flag=st.sampled_from([0, 1, 0x4]),
        born_timestamp=LONG,
        born_host=st.just(Host("10.0.0.5", 1)),
        store_timestamp=LONG,
        store_host=st.just(Host("10.0.0.1", 2)),
        reconsume_times=INT,
        prepared_transaction_offset=LONG,
        body_crc=st.just(0),
        size=st.just(0),
        version=st.just(1),
    )
)
def test_a_message_is_read_back(message: StoredMessage) -> None:
    data = encode_message(message)
    found = read(data).message()
    assert (found.topic, found.body, found.properties) == (
        message.topic,
        message.body,
        message.properties,
    )
    assert encode_message(found) == data


@pytest.mark.parametrize(
    ("born", "store", "size", "flags"),
    [(V4, V4, 91, 0), (V6, V4, 103, 0x10), (V4, V6, 103, 0x20), (V6, V6, 115, 0x30)],
)
def test_the_hosts_decide_the_ipv6_bits(born: bytes, store: bytes, size: int, flags: int) -> None:
    draft = RecordDraft(b"", b"", b"", 0, 0, born, store, sys_flag=0x30 | SysFlag.COMMIT)
    record = read(placed(draft))
    assert record.size == size
    assert record.sys_flag == flags | SysFlag.COMMIT
    assert (record.born_host, record.store_host) == (born, store)
    assert record.store_timestamp == PLACE.store_timestamp


@pytest.mark.parametrize(("length", "version", "size"), [(127, 1, 218), (128, 2, 220)])
def test_a_long_topic_makes_version_2(length: int, version: int, size: int) -> None:
    message = read(placed(DRAFT._replace(topic=b"t" * length, body=b"", properties=b""))).message()
    assert (message.version, message.size, message.topic) == (version, size, "t" * length)


@pytest.mark.parametrize(
    ("part", "limit"), [("topic", 32767), ("properties", 32767), ("body", 4 * 1024 * 1024)]
)
def test_limits(part: str, limit: int) -> None:
    def with_part(size: int) -> RecordDraft:
        return RecordDraft(**(DRAFT._asdict() | {part: bytes(size)}))

    assert encode_record(with_part(limit))
    with pytest.raises(RecordTooLarge) as caught:
        encode_record(with_part(limit + 1))
    assert (caught.value.part, caught.value.size, caught.value.limit) == (part, limit + 1, limit)


def test_the_limit_of_the_body_is_the_brokers() -> None:
    assert encode_record(DRAFT, max_body_size=5)
    with pytest.raises(RecordTooLarge, match="body of 5 bytes is over the limit of 4"):
        encode_record(DRAFT, max_body_size=4)


def test_a_record_is_placed_where_it_lies() -> None:
    buffer = memoryview(bytearray(b"before" + encode_record(DRAFT) + b"after"))
    place_record(buffer, 6, PLACE)
    assert bytes(buffer) == b"before" + ENCODED + b"after"
    assert read(bytes(buffer), 6).message() == MESSAGE


def test_body_and_properties_are_not_copied() -> None:
    buffer = bytearray(ENCODED)
    record = read_record(buffer)
    assert isinstance(record, Record)
    buffer[ENCODED.index(b"hello")] = ord("j")
    assert bytes(record.body) == b"jello"


@pytest.mark.parametrize("cut", range(len(ENCODED)))
def test_a_cut_at_any_byte_is_truncated(cut: int) -> None:
    with pytest.raises(TruncatedRecord) as caught:
        read_record(ENCODED + ENCODED[:cut], len(ENCODED))
    assert caught.value.position == len(ENCODED)
    assert caught.value.available == cut
    assert caught.value.needed == (8 if cut < 8 else len(ENCODED))


@pytest.mark.parametrize("size", range(8, len(ENCODED)))
def test_a_size_too_small_does_not_add_up(size: int) -> None:
    with pytest.raises(BadLengths):
        read_record(size.to_bytes(4, "big") + ENCODED[4:])


@pytest.mark.parametrize("size", range(8))
def test_a_size_below_its_own_header_does_not_add_up(size: int) -> None:
    with pytest.raises(BadLengths):
        read_record(size.to_bytes(4, "big") + ENCODED[4:])


def test_a_size_too_large_does_not_add_up() -> None:
    with pytest.raises(BadLengths):
        read_record((127).to_bytes(4, "big") + ENCODED[4:] + b"\0")


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (84, b"\x80\0\0\0"),  # body
        (93, b"\x80"),  # topic
        (93, b"\xff"),
        (103, b"\xff\xff"),  # properties
    ],
)
def test_a_negative_length_does_not_add_up(at: int, value: bytes) -> None:
    data = bytearray(ENCODED)
    data[at : at + len(value)] = value
    with pytest.raises(BadLengths):
        read_record(data)


def test_a_negative_topic_length_is_refused_even_where_the_sum_is_right() -> None:
    body = b"x" * 20
    data = bytearray(placed(DRAFT._replace(topic=b"", properties=b"", body=body)))
    at = 88 + len(body)
    data[at] = 0x100 - 10  # points back into the body, where a length is put that fits
    data[at - 9 : at - 7] = (len(data) - (at - 7)).to_bytes(2, "big")
    with pytest.raises(BadLengths):
        read_record(data)


def test_zeros_are_no_record() -> None:
    with pytest.raises(BadMagic) as caught:
        read_record(bytes(200), 8)
    assert (caught.value.position, caught.value.magic) == (8, 0)


def test_a_changed_body_is_found_when_asked_for() -> None:
    data = ENCODED.replace(b"hello", b"jello")
    assert isinstance(read_record(data), Record)
    with pytest.raises(BadChecksum):
        read_record(data, check_crc=True)


def test_the_crc_of_an_empty_body_is_not_looked_at() -> None:
    data = bytearray(placed(DRAFT._replace(body=b"")))
    data[8:12] = b"\1\2\3\4"
    assert isinstance(read_record(data, check_crc=True), Record)


def test_blank_records() -> None:
    assert encode_blank(0x1234).hex() == "00001234cbd43194"
    assert read_record(ENCODED + encode_blank(8), len(ENCODED)) == Blank(8)
    assert read_record(encode_blank(1 << 30) + b"rest") == Blank(1 << 30)
    with pytest.raises(BadLengths):
        read_record(b"\0\0\0\7" + encode_blank(8)[4:])
    with pytest.raises(ValueError, match="7 are left"):
        encode_blank(7)


def test_records_back_to_back() -> None:
    other = placed(DRAFT._replace(body=b"", topic=b"t" * 200), Placement(8, 4222, 0))
    found = list(iter_records(memoryview(ENCODED + other + ENCODED), check_crc=True))
    assert [record.queue_offset for record in found] == [7, 8, 7]
    assert found[2].message() == MESSAGE
    assert list(iter_records(b"")) == []


def test_a_bad_record_is_raised_after_the_good_ones() -> None:
    found = iter_records(ENCODED + ENCODED[:50])
    assert next(found).message() == MESSAGE
    with pytest.raises(TruncatedRecord):
        next(found)


def test_a_blank_among_records_is_refused() -> None:
    with pytest.raises(BadMagic, match="0xcbd43194"):
        list(iter_records(encode_blank(8)))


def test_bytes_that_are_no_text_are_replaced() -> None:
    message = read(placed(DRAFT._replace(topic=b"T\xff", properties=b"a\x01\xfe\x02"))).message()
    assert (message.topic, message.properties) == ("T\ufffd", {"a": "\ufffd"})


@given(st.binary(max_size=200), st.integers(0, len(ENCODED)))
def test_random_bytes_are_read_or_refused(noise: bytes, at: int) -> None:
    for data in (noise, ENCODED[:at] + noise + ENCODED[at + len(noise) :], ENCODED[:8] + noise):
        try:
            for record in iter_records(data):
                record.message()
        except BadRecord as refused:
            assert 0 <= refused.position < len(data)
            assert refused.reason
