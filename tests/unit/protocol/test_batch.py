import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.model.message import Message
from bolide.protocol.batch import BadBatch, encode_batch, iter_batch
from bolide.protocol.record_errors import RecordTooLarge

TWO = [Message("T", b"b1", tags="TagA"), Message("T", b"b2")]
TWO_ENCODED = bytes.fromhex(
    "00000022 00000000 00000000 00000000 00000002 6231 000a 54414753015461674102"
    "00000018 00000000 00000000 00000000 00000002 6232 0000"
)
ENDS = (0, 0x22, 0x3A)

MESSAGES = st.builds(
    Message.unchecked,
    st.just("T"),
    st.binary(max_size=50),
    st.dictionaries(st.text("abcé", min_size=1), st.text("xyz中", min_size=1), max_size=3),
    st.integers(-(2**31), 2**31 - 1),
)


def test_two_messages() -> None:
    assert encode_batch(TWO) == TWO_ENCODED
    assert [item.message("T") for item in iter_batch(TWO_ENCODED)] == TWO


@given(st.lists(MESSAGES, max_size=4))
def test_round_trip(messages: list[Message]) -> None:
    assert [item.message("T") for item in iter_batch(encode_batch(messages))] == messages


@pytest.mark.parametrize("cut", [n for n in range(len(TWO_ENCODED)) if n not in ENDS])
def test_a_cut_at_any_byte_is_refused(cut: int) -> None:
    with pytest.raises(BadBatch) as caught:
        list(iter_batch(TWO_ENCODED[:cut]))
    assert caught.value.position == max(end for end in ENDS if end <= cut)


@given(st.binary(max_size=100), st.integers(0, len(TWO_ENCODED)))
def test_random_bytes_are_read_or_refused(noise: bytes, at: int) -> None:
    data = TWO_ENCODED[:at] + noise + TWO_ENCODED[at + len(noise) :]
    try:
        for item in iter_batch(data):
            item.message("T")
    except BadBatch as refused:
        assert 0 <= refused.position < len(data)


def test_magic_and_crc_of_other_clients_are_not_looked_at() -> None:
    data = bytearray(TWO_ENCODED)
    data[4:12] = b"\xff" * 8
    assert [item.message("T") for item in iter_batch(data)] == TWO


@pytest.mark.parametrize("size", [0, 0x21, 0x23, 0x3A, 0x8000_0000])
def test_a_size_that_does_not_add_up_is_refused(size: int) -> None:
    with pytest.raises(BadBatch):
        list(iter_batch(size.to_bytes(4, "big") + TWO_ENCODED[4:]))


def test_properties_over_the_limit_are_refused() -> None:
    fitting = Message("T", b"", properties={"a": "x" * (32767 - 3)})
    assert len(encode_batch([fitting])) == 22 + 32767
    with pytest.raises(RecordTooLarge) as caught:
        encode_batch([fitting.with_properties({"b": "1"})])
    assert (caught.value.part, caught.value.size) == ("properties", 32767 + 4)
