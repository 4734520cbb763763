import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.protocol.property_string import decode_properties, encode_properties

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(NAMES, VALUES))
def test_round_trip_with_and_without_the_last_separator(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text[:-1]) == properties


@given(st.text())
def test_any_text_reads_as_some_properties(text: str) -> None:
    properties = decode_properties(text)
    assert all(name and value for name, value in properties.items())
    assert decode_properties(encode_properties(properties)) == properties


def test_pairs_keep_their_order_and_each_ends() -> None:
    text = encode_properties({"TAGS": "TagA", "KEYS": "k1 k2"})
    assert text == "TAGS\x01TagA\x02KEYS\x01k1 k2\x02"


@pytest.mark.parametrize("text", ["", "\x02", "a", "a\x01", "\x011", "a\x01\x02", "\x01\x02\x01"])
def test_what_is_no_pair_is_dropped(text: str) -> None:
    assert decode_properties(text) == {}


def test_the_later_of_two_pairs_wins() -> None:
    assert decode_properties("a\x011\x02a\x012\x02") == {"a": "2"}


@pytest.mark.parametrize(
    ("name", "value"), [("a\x01b", "1"), ("a\x02", "1"), ("a", "1\x022"), ("a\x01", "\x02")]
)
def test_a_separator_inside_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="separator"):
        encode_properties({"fine": "1", name: value})
