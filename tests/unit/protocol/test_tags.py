import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.protocol.tags import (
    BadTagExpression,
    TagExpression,
    index_hash,
    java_hash,
    tags_code,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("中文", 646394),
        ("polygenelubricants", -(2**31)),
        ("TopicTest#OrderID188", -1231271670),
    ],
)
def test_hash_is_that_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


@given(st.text(st.characters()))
def test_any_text_has_a_hash_of_32_bits(text: str) -> None:
    assert -(2**31) <= java_hash(text) < 2**31


@given(st.text(st.characters(codec="ascii")), st.text(st.characters(codec="ascii")))
def test_the_ascii_path_agrees_with_the_other(left: str, right: str) -> None:
    joined = java_hash(left + "é" + right)
    by_parts = (java_hash(left) * 31 + ord("é")) * 31 ** len(right) + java_hash(right)
    assert (joined - by_parts) % 2**32 == 0


def test_no_tags_have_the_code_zero() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("TagA") == 2598919


def test_index_hash_is_never_negative() -> None:
    assert index_hash("TopicTest", "OrderID188") == 1231271670
    assert java_hash("T#1LG3HE3") == -(2**31)
    assert index_hash("T", "1LG3HE3") == 0


@pytest.mark.parametrize("text", ["", "*"])
def test_star_wants_all(text: str) -> None:
    expression = TagExpression.parse(text)
    assert expression.wants_all
    assert expression.text == "*"
    assert expression.matches(None)
    assert expression.may_match(123)


def test_any_of_the_named_tags_matches() -> None:
    expression = TagExpression.parse(" TagA||TagB || \tTagC\n|| ")
    assert expression.tags == {"TagA", "TagB", "TagC"}
    assert expression.may_match(tags_code("TagB"))
    assert expression.matches("TagC")
    assert not expression.matches("TagD")
    assert not expression.matches(None)
    assert not expression.may_match(0)


def test_equal_hashes_are_told_apart_by_the_text() -> None:
    expression = TagExpression.parse("Aa")
    assert expression.may_match(tags_code("BB"))
    assert not expression.matches("BB")


def test_star_beside_other_tags_is_a_tag() -> None:
    expression = TagExpression.parse("a || *")
    assert not expression.wants_all
    assert expression.tags == {"a", "*"}


def test_blanks_between_bars_want_nothing() -> None:
    expression = TagExpression.parse(" || ")
    assert not expression.wants_all
    assert expression.tags == set()


@pytest.mark.parametrize("text", ["||", "||||"])
def test_bars_alone_are_refused(text: str) -> None:
    with pytest.raises(BadTagExpression) as caught:
        TagExpression.parse(text)
    assert caught.value.text == text
