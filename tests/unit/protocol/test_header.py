"""Typed headers: fields to a struct and back."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.protocol.header import BadHeader, Header, Int, Long, NoHeader


class Example(Header, frozen=True, kw_only=True):
    topic: str
    queue_id: Int = 0
    queue_offset: Long | None = None
    is_order: bool = False
    ratio: float = 1.0
    broker_name: str | None = msgspec.field(name="bname", default=None)


KEYS = Example.__struct_encode_fields__


def test_names_are_camel_case_on_the_wire_unless_said_otherwise() -> None:
    header = Example(topic="T", queue_id=3, is_order=True, broker_name="b")
    fields = {"topic": "T", "queueId": "3", "isOrder": "true", "ratio": "1.0", "bname": "b"}
    assert header.to_fields() == fields
    assert Example.from_fields(fields) == header


@pytest.mark.parametrize(("text", "value"), [("1", True), ("0", False), ("TRUE", True)])
def test_booleans_may_be_digits_as_the_client_in_cpp_writes_them(text: str, value: bool) -> None:
    assert Example.from_fields({"topic": "T", "isOrder": text}).is_order is value


def test_absent_values_are_left_out() -> None:
    assert "queueOffset" not in Example(topic="T").to_fields()


def test_missing_optional_fields_take_their_defaults() -> None:
    assert Example.from_fields({"topic": "T"}) == Example(topic="T")


def test_unknown_fields_are_passed_over() -> None:
    assert Example.from_fields({"topic": "T", "new": "1"}) == Example(topic="T")


@pytest.mark.parametrize("fields", [None, {}, {"queueId": "1"}])
def test_a_missing_required_field_is_named(fields: dict[str, str] | None) -> None:
    with pytest.raises(BadHeader, match=r"Example: .*`topic`"):
        Example.from_fields(fields)


def test_a_header_without_fields_takes_anything() -> None:
    assert NoHeader.from_fields(None) == NoHeader.from_fields({"a": "b"}) == NoHeader()
    assert NoHeader().to_fields() == {}


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_the_word_true_counts_in_any_case(text: str) -> None:
    assert Example.from_fields({"topic": "T", "isOrder": text}).is_order is True


@pytest.mark.parametrize("text", ["", "yes", "no", "x", "truely"])
def test_a_boolean_that_does_not_say_true_is_false_as_in_java(text: str) -> None:
    assert Example.from_fields({"topic": "T", "isOrder": text}) == Example(topic="T")


@pytest.mark.parametrize("field", ["queueId", "queueOffset"])
def test_an_empty_number_counts_as_absent(field: str) -> None:
    assert Example.from_fields({"topic": "T", field: ""}) == Example(topic="T")


def test_an_empty_text_stays_empty() -> None:
    found = Example.from_fields({"topic": "", "bname": "", "queueId": ""})
    assert found == Example(topic="", broker_name="")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("queueId", "x"),
        ("queueId", " 1"),
        ("queueId", "2147483648"),
        ("queueId", "-2147483649"),
        ("queueId", "9" * 5000),
        ("queueId", "1e999"),
        ("queueId", "null"),
        ("queueOffset", "9223372036854775808"),
        ("queueOffset", "0x10"),
        ("ratio", "much"),
        ("queueId", "\ud800"),
    ],
)
def test_a_text_that_does_not_parse_is_refused(field: str, text: str) -> None:
    with pytest.raises(BadHeader, match="Example"):
        Example.from_fields({"topic": "T", field: text})


def test_the_field_that_does_not_parse_is_named() -> None:
    with pytest.raises(BadHeader, match="queueId"):
        Example.from_fields({"topic": "T", "queueId": "x"})


def test_a_text_may_say_null() -> None:
    assert Example.from_fields({"topic": "null", "bname": "null"}).broker_name == "null"


@given(
    fields=st.dictionaries(
        st.sampled_from(KEYS) | st.text(max_size=3),
        st.text(max_size=12) | st.from_regex(r"[-+]?[0-9]{1,25}([.e][0-9]{1,4})?", fullmatch=True),
    )
)
@settings(max_examples=200, deadline=None)
def test_any_fields_give_a_header_or_are_refused(fields: dict[str, str]) -> None:
    try:
        header = Example.from_fields({"topic": "T"} | fields)
    except BadHeader as refused:
        assert str(refused)
    else:
        assert -(2**31) <= header.queue_id < 2**31


@given(
    header=st.builds(
        Example,
        topic=st.text(),
        queue_id=st.integers(-(2**31), 2**31 - 1),
        queue_offset=st.none() | st.integers(-(2**63), 2**63 - 1),
        is_order=st.booleans(),
        ratio=st.floats(allow_nan=False, allow_infinity=False),
        broker_name=st.none() | st.text(),
    )
)
@settings(max_examples=80, deadline=None)
def test_round_trip(header: Example) -> None:
    assert Example.from_fields(header.to_fields()) == header
