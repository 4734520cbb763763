"""Signatures of requests, made and verified."""

import pytest

from bolide.protocol.signature import is_signed_by, signature

SECRET = b"12345678"
FIELDS = {"topic": "TopicTest", "AccessKey": "RocketMQ"}
SIGNED = FIELDS | {"Signature": "0jiwhsaYp5ObE5GObbZH1I8/FT4="}
NEW, OLD = 500, 399


def test_the_signature_of_the_specification_is_right() -> None:
    assert is_signed_by(SIGNED, b"", SECRET, NEW)


@pytest.mark.parametrize(
    ("fields", "body", "secret"),
    [
        (FIELDS, b"", SECRET),
        (SIGNED | {"topic": "TopicTesu"}, b"", SECRET),
        (SIGNED | {"more": "x"}, b"", SECRET),
        (SIGNED, b"x", SECRET),
        (SIGNED, b"", b"12345679"),
        (SIGNED | {"Signature": ""}, b"", SECRET),
        (SIGNED | {"Signature": SIGNED["Signature"] + "="}, b"", SECRET),
        (SIGNED | {"Signature": "0jiwhsaYp5ObE5GObbZH1I8/FTé="}, b"", SECRET),
        (SIGNED | {"Signature": "\ud800"}, b"", SECRET),
    ],
    ids=[
        "missing", "field changed", "field added", "body changed", "other secret", "empty",
        "longer", "not ASCII", "not a text",
    ],
)  # fmt: skip
def test_any_other_is_wrong(fields: dict[str, str], body: bytes, secret: bytes) -> None:
    assert not is_signed_by(fields, body, secret, NEW)


def test_the_mark_of_a_query_by_unique_key_is_left_out_for_old_clients_only() -> None:
    marked = SIGNED | {"_UNIQUE_KEY_QUERY": "true"}
    assert is_signed_by(marked, b"", SECRET, OLD)
    assert not is_signed_by(marked, b"", SECRET, NEW)
    ordered = {"1": "RocketMQ", "2": "TopicTest", "3": "true"}
    whole = signature(ordered, b"", SECRET)  # values in the order of the names above
    renamed = {"AccessKey": "RocketMQ", "Topic": "TopicTest", "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed_by(renamed | {"Signature": whole}, b"", SECRET, NEW)


def test_names_are_ordered_by_utf_16_units_as_in_java() -> None:
    first, second = "\U00010000", "\uffff"  # a surrogate pair begins with D800
    fields = {second: "b", first: "a"}
    assert signature(fields, b"", SECRET) == signature({"": "ab"}, b"", SECRET)
