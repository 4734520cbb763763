"""The SQL92 dialect by itself; tests/interop compares it with Java."""

import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.broker.filters.sql import BadExpression, compile_sql, is_compiled
from bolide.kernel import gather
from bolide.protocol.property_string import encode_properties
from tests.unit.broker.filters.naive_sql import (
    NAMES,
    VALUES,
    Fails,
    Tree,
    conditions,
    evaluate,
    text_of,
)
from tests.unit.kernel.drafts import DRAFT, record


def matches(expression: str, **properties: str) -> bool:
    return matches_raw(expression, encode_properties(properties).encode())


def matches_raw(expression: str, properties: bytes) -> bool:
    """Return the result of the test on a property string, checked against its sieve on a record."""
    compiled = compile_sql(expression)
    data = record(DRAFT._replace(properties=properties), 0, 0)
    unit = struct.pack(">qiq", 0, len(data), 0)
    verdict = compiled.matches(b"\x02" + properties)
    assert compiled.sieve(memoryview(data)) is verdict
    found, _, looked = gather(unit, 0, memoryview(data), 0, 1, len(data), compiled.sieve)
    assert not looked or bool(found) is verdict
    return verdict


@settings(deadline=None)  # the first one loads the parser
@given(
    conditions(),
    st.lists(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=8),
)
def test_compiled_expressions_judge_as_the_plain_rules_do(
    tree: Tree, messages: list[dict[str, str]]
) -> None:
    for properties in messages:
        try:
            expected = evaluate(tree, properties) is True
        except Fails:
            expected = False
        assert matches(text_of(tree), **properties) == expected


@pytest.mark.parametrize(
    ("expression", "properties", "verdict"),
    [
        ("a > 5", {"a": "10"}, True),
        ("a > 5", {"a": "1.0"}, False),  # not a whole number: evaluation fails
        ("NOT (a > 5)", {"a": "abc"}, False),
        ("a > 5 OR b = 'x'", {"a": "abc", "b": "x"}, False),
        ("b = 'x' OR a > 5", {"a": "abc", "b": "x"}, True),
        ("a > 5.5", {"a": "NaN"}, True),
        ("a <> 'x'", {}, False),
        ("'x' <> a", {}, True),  # a value missing on the right is not unknown
        ("a = TRUE", {"a": "True"}, True),
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("NOT a", {}, False),
        ("NOT a CONTAINS 'x'", {"a": "y"}, False),  # applies to (NOT a), which is no text
        ("a = 1 AND b IS NULL", {"a": "1"}, True),
        ("a = 1 -- the rest of a line\n AND b = 2", {"a": "1", "b": "3"}, False),
        ("A = 1", {"a": "1"}, False),
        ("a In ('x', 'it''s')", {"a": "it's"}, True),
    ],
)
def test_odd_cases_are_judged_as_rocketmq_does(
    expression: str, properties: dict[str, str], verdict: bool
) -> None:
    assert matches(expression, **properties) is verdict


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "is empty"),
        ("a >", "'a >' ends too early: expected"),
        ("a = || 5", r"'\|' at character 5 of .* write OR"),
        ("a != 5", "'!' at character 3 .* write <>"),
        ('a = "x"', "single quotes"),
        ("a = 'x", "no closing quote"),
        ("a.b = 1", "names have letters"),
        ("a IS NOT NUL", "'NUL' at character 10 .* Did you mean NULL"),
        ("a IN (1)", "expected a text in single quotes"),
        ("NOT a IN ('x')", "IN requires a name before it"),
        ("5", "neither true nor false"),
        ("a > 'b'", "'b' has no order"),
        ("a = NULL", "use IS NULL"),
        ("TRUE = 5", "cannot be compared with 5"),
        ("a BETWEEN 3 AND 1", "must not be above"),
        ("a = 0.0", "write 0 without"),
        ("a = 9223372036854775808", "the largest number"),
        ("a = 1e999", "too large"),
    ],
)
def test_a_bad_expression_is_told_what_is_wrong_and_where(expression: str, reason: str) -> None:
    for _ in range(2):  # the second time from the cache
        with pytest.raises(BadExpression, match=reason):
            compile_sql(expression)


def test_what_follows_an_expression_is_passed_over_and_told() -> None:
    compiled = compile_sql("a = 1 like 'x' @")
    assert compiled.ignored == "like 'x' @"
    assert compiled.matches(b"\x02a\x011\x02")
    with pytest.raises(BadExpression, match="'@' at character 7"):
        compile_sql("a = 1 @")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a" * 16_385, "16385 characters"),
        ("NOT " * 4000 + "a", "nested levels"),
        ("-" * 8000 + "1 = a", "nested levels"),
        ("(" * 8000 + "a", "nested levels"),
        (" OR ".join(["a = 1"] * 1000), "512 names"),
        ("a IN ('x'" + ",'y'" * 3000 + ")", "2048 texts"),
        (" = ".join(["a"] * 500), "nested levels"),
        ("-(" * 20 + "a" + " BETWEEN 1 AND 2)" * 20 + " IS NULL", "512 names"),
        ("\n" + "-" * 16_000, "nested levels"),
    ],
)
def test_an_expression_over_a_limit_is_refused_soon(expression: str, reason: str) -> None:
    begun = time.monotonic()
    with pytest.raises(BadExpression, match=reason):
        compile_sql(expression)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    "expression",
    [
        f"'{'x' * 16_000}'",
        f"a = 1 AND '{'x' * 16_000}'",
        f"{'x' * 16_000} > 'b'",
        f"-({'x' * 16_000} CONTAINS '{'y' * 100}') > TRUE",
        "." + "1" * 16_000,
    ],
)
def test_what_people_are_told_of_a_long_expression_is_short(expression: str) -> None:
    with pytest.raises(BadExpression) as told:
        compile_sql(expression)
    assert len(str(told.value)) < 500


def test_long_expressions_are_not_kept_without_limit() -> None:
    for number in range(200):
        compile_sql(f"a = '{number}{'x' * 16_000}'")
    assert is_compiled(f"a = '199{'x' * 16_000}'")
    assert not is_compiled(f"a = '0{'x' * 16_000}'")


def test_long_rows_of_conditions_are_no_deep_ones() -> None:
    row = " AND ".join(f"a{number} = {number}" for number in range(250))
    assert matches(row, **{f"a{number}": str(number) for number in range(250)})
    assert not matches(row, **{f"a{number}": str(number) for number in range(249)})


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (b"a\x015", True),  # the last pair without an end, as 4.9 writes it
        (b"aa\x011\x02a\x015\x02b\x011\x02", True),
        (b"b\x01a\x015\x02", False),  # inside of another value
        (b"a\x011\x02a\x015\x02", True),  # the later of two counts
        (b"a\x015\x02a\x01\x02", True),  # an empty value does not count
        (b"a\x015\xff\x02", False),
        (b"", False),
    ],
)
def test_properties_are_found_however_they_lie(properties: bytes, found: bool) -> None:
    assert matches_raw("a = '5'", properties) is found
    assert matches_raw("a IN ('4', '5')", properties) is found
    assert matches_raw("a IS NOT NULL AND a = 5", properties) is found


@pytest.mark.parametrize(
    ("expression", "value", "verdict"),
    [
        ("a = 5", "\u0665", True),  # digits of any script
        ("a = 5", "+" + "0" * 40 + "5", True),
        ("a > 2147483646", "2147483647", True),
        ("a < 5", "-2147483649", False),  # not an int: evaluation fails
        ("a < 2147483648", "-2147483649", True),
        ("a < 9223372036854775807", "-9223372036854775808", True),
        ("a > -5", "-4", True),
        ("a > -5", "", False),
        ("a = '\ufffd'", "\ufffd", True),
    ],
)
def test_unusual_values_are_judged_by_the_sieve_too(
    expression: str, value: str, verdict: bool
) -> None:
    assert matches(expression, a=value) is verdict


def test_bytes_that_are_no_utf_8_are_replaced_before_they_are_compared() -> None:
    assert matches_raw("a = '\ufffd'", b"a\x01\xff\x02")
    assert matches_raw("a IN ('x', '\ufffd')", b"a\x01\xff\x02")
