from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.model.message import Host
from bolide.protocol.message_id import BadMessageId, OffsetId, UniqueId, UniqueIdMaker

V4_ID = "0A00000100002A9F0000000000001000"
V6_ID = "20010DB800000000000000000000000100002A9F0000000000001000"
LOOPBACK = bytes([127, 0, 0, 1])


def ms(text: str, zone: timezone = UTC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


def test_offset_id_of_either_family() -> None:
    assert OffsetId(Host("10.0.0.1", 10911), 4096).encode() == V4_ID
    assert OffsetId(Host("2001:db8::1", 10911), 4096).encode() == V6_ID


@pytest.mark.parametrize("text", [V4_ID, V6_ID])
def test_offset_id_round_trip(text: str) -> None:
    assert OffsetId.decode(text).encode() == text
    assert OffsetId.decode(text.lower()) == OffsetId.decode(text)


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.data())
def test_unique_id_round_trip(ip: bytes, data: st.DataObject) -> None:
    numbers = [data.draw(st.integers(0, 2**bits - 1)) for bits in (16, 32, 32, 16)]
    parts = UniqueId(ip, *numbers)
    assert UniqueId.decode(parts.encode()) == parts


@pytest.mark.parametrize("text", [V4_ID[:cut] for cut in range(len(V4_ID))] + [V6_ID[:-2]])
def test_a_cut_id_is_refused(text: str) -> None:
    with pytest.raises(BadMessageId):
        OffsetId.decode(text)
    with pytest.raises(BadMessageId):
        UniqueId.decode(text)


@given(st.text() | st.text("0123456789abcdefABCDEF ", min_size=30, max_size=58))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    for kind in (OffsetId, UniqueId):
        try:
            assert kind.decode(text).encode() == text.upper()
        except BadMessageId as refused:
            assert refused.text == text


def test_blanks_do_not_make_an_id_longer() -> None:
    with pytest.raises(BadMessageId):
        OffsetId.decode(V4_ID[:-2] + "  ")


def test_ids_of_one_maker_count_up() -> None:
    maker = UniqueIdMaker(LOOPBACK, pid=0x1_0002, salt=0xAABBCCDD, zone=UTC)
    now = ms("2024-05-02")
    assert maker.make(now) == "7F0000010002AABBCCDD05265C000000"
    assert maker.make(now + 1) == "7F0000010002AABBCCDD05265C010001"


def test_the_counter_wraps_at_16_bits() -> None:
    maker = UniqueIdMaker(LOOPBACK, 1, 1, UTC)
    made = [UniqueId.decode(maker.make(0)).counter for _ in range(0x1_0001)]
    assert made[-2:] == [0xFFFF, 0]


def test_a_new_month_starts_at_zero() -> None:
    maker = UniqueIdMaker(LOOPBACK, 1, 1, UTC)
    last = UniqueId.decode(maker.make(ms("2024-01-31T23:59:59")))
    assert last.month_ms == 31 * 86_400_000 - 1000  # over 2**31: the field is unsigned
    assert UniqueId.decode(maker.make(ms("2024-02-01"))).month_ms == 0


def test_the_month_begins_in_the_given_zone() -> None:
    zone = timezone(timedelta(hours=8))
    made = UniqueIdMaker(LOOPBACK, 1, 1, zone).make(ms("2024-02-01", zone))
    assert UniqueId.decode(made).month_ms == 0


def test_a_clock_set_back_a_little_counts_as_zero() -> None:
    maker = UniqueIdMaker(LOOPBACK, 1, 1, UTC)
    maker.make(ms("2024-02-01"))
    assert UniqueId.decode(maker.make(ms("2024-02-01") - 5)).month_ms == 0
    assert UniqueId.decode(maker.make(ms("2024-01-01"))).month_ms == 2**32 - 31 * 86_400_000


def test_the_time_of_an_id_is_found_again() -> None:
    made_at = ms("2024-02-29T12:00:00")
    parts = UniqueId.decode(UniqueIdMaker(LOOPBACK, 1, 1, UTC).make(made_at))
    assert parts.created(ms("2024-02-29T13:00:00"), UTC) == made_at
    assert parts.created(ms("2024-03-04"), UTC) == made_at
    assert UniqueIdMaker(LOOPBACK, 1, 1).make(made_at)  # the machine's own zone
