"""The strings of POP, as RocketMQ's ExtraInfoUtil writes them (executed there)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.protocol.pop_info import (
    BadPopInfo,
    Receipt,
    message_offsets,
    normal_topic,
    order_counts,
    read_message_offsets,
    read_order_counts,
    read_start_offsets,
    real_topic,
    retry_kind,
    start_offsets,
)

TEXT = "100 1700000000000 60000 3 1 broker-a 0 101"
longs = st.integers(0, 2**63 - 1)


def test_a_receipt_is_eight_words() -> None:
    receipt = Receipt(100, 1700000000000, 60000, 3, "1", "broker-a", 0, 101)
    assert receipt.encode() == TEXT
    assert Receipt.decode(TEXT) == receipt
    assert receipt.due == 1700000060000
    assert not receipt.is_ordered
    assert receipt._replace(revive_queue=999).is_ordered


@given(longs, longs, longs, st.sampled_from("012"), st.from_regex(r"[a-z-]+", fullmatch=True))
def test_receipts_are_read_as_they_were_written(
    start: int, popped: int, offset: int, retry: str, broker: str
) -> None:
    receipt = Receipt(start, popped, 1, 7, retry, broker, 2, offset)
    assert Receipt.decode(receipt.encode()) == receipt


@pytest.mark.parametrize(
    "text",
    [
        "", "1 2 3", TEXT.rpartition(" ")[0], TEXT.replace("100", "x"),
        TEXT.replace("100", "1" * 20), TEXT.replace(" ", "  "), "\u0661" + TEXT,
    ],
)  # fmt: skip
def test_what_is_no_receipt_is_named(text: str) -> None:
    with pytest.raises(BadPopInfo) as refused:
        Receipt.decode(text)
    assert repr(text) in str(refused.value)


def test_words_are_read_by_their_place_as_in_java() -> None:
    receipt = Receipt.decode(TEXT)
    assert Receipt.decode(f"{TEXT} 123456") == receipt, "Apache's proxy appends the physical offset"
    assert Receipt.decode(f"{TEXT} x y") == receipt
    assert Receipt.decode(TEXT.replace(" 1 ", " 5 ")).retry == "0"


def test_a_broker_needs_no_more_than_the_first_six_words() -> None:
    short = "100 1700000000000 60000 3 1 broker-a"
    assert Receipt.decode(short, (4, 107)) == Receipt.decode(f"{short} 4 107")
    assert Receipt.decode(TEXT, (4, 107)).offset == 107
    with pytest.raises(BadPopInfo, match="6 words"):
        Receipt.decode("100 1700000000000 60000 3 1", (4, 107))


def test_topics_have_marks() -> None:
    assert [retry_kind(topic) for topic in ("T", "%RETRY%G_T", "%RETRY%G+T")] == ["0", "1", "2"]
    assert [real_topic("T", "G", mark) for mark in "012"] == ["T", "%RETRY%G_T", "%RETRY%G+T"]
    for name in ("T", "%RETRY%G_T", "%RETRY%G+T"):
        assert normal_topic(name, "G") == "T"
    with pytest.raises(BadPopInfo):
        real_topic("T", "G", "3")


def test_responses_list_what_was_popped() -> None:
    starts = start_offsets([("T", 0, 100), ("%RETRY%G+T", 0, 5)])
    assert starts == "0 0 100;2 0 5"
    assert read_start_offsets(starts) == {("0", 0): 100, ("2", 0): 5}
    offsets = message_offsets([("T", 0, [100, 101])])
    assert offsets == "0 0 100,101"
    assert read_message_offsets(offsets) == {("0", 0): [100, 101]}
    counts = order_counts("T", 0, {100: 1}, 1)
    assert counts == "0 qo0%100 1;0 0 1"
    assert read_order_counts(counts).of("0", 0, 100) == 1
    assert read_order_counts(None).of("0", 0, 100) == 0
    for read in (read_start_offsets, read_message_offsets, read_order_counts):
        with pytest.raises(BadPopInfo):
            read("0 0")
