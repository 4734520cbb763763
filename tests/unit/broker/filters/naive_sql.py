"""A naive SQL92 evaluator: trees of tuples, evaluated directly by the rules.

It shares only the rules with the compiler; strategies generate trees, `text_of` writes them as SQL.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Tree = tuple[Any, ...]

NAMES = ["a", "b", "c"]
VALUES = ["0", "5", "-7", "abc", "5.5", "true", "TagA", "2147483648", "it's"]
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


class Fails(Exception):
    """The evaluation fails."""


def conditions() -> st.SearchStrategy[Tree]:
    """Strategy for trees that compile and are true, false or unknown."""
    return st.recursive(
        _comparisons(),
        lambda inner: st.one_of(
            st.tuples(st.just("NOT"), inner),
            st.tuples(st.sampled_from(["AND", "OR"]), inner, inner),
        ),
        max_leaves=8,
    )


def _comparisons() -> st.SearchStrategy[Tree]:
    names, numbers = st.sampled_from(NAMES), st.integers(-10, 10)
    texts = st.sampled_from(VALUES)
    return st.one_of(
        st.tuples(st.sampled_from([">", ">=", "<", "<="]), names, numbers),
        st.tuples(st.sampled_from(["=", "<>"]), names, st.one_of(numbers, texts.map(repr_of))),
        st.tuples(st.just("BETWEEN"), names, st.integers(-10, 0), st.integers(0, 10)),
        st.tuples(
            st.sampled_from(["IN", "NOT IN"]), names, st.lists(texts, min_size=1, max_size=3)
        ),
        st.tuples(st.sampled_from(["CONTAINS", "NOT ENDSWITH"]), names, texts),
        st.tuples(st.sampled_from(["IS NULL", "IS NOT NULL"]), names),
    )


def repr_of(text: str) -> str:
    """Quote a text as an SQL literal."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


def text_of(tree: Tree) -> str:
    word, *rest = tree
    if word == "NOT":
        return f"NOT ({text_of(rest[0])})"
    if word in {"AND", "OR"}:
        return f"({text_of(rest[0])}) {word} ({text_of(rest[1])})"
    name, *values = rest
    if word == "BETWEEN":
        return f"{name} BETWEEN {values[0]} AND {values[1]}"
    if word in {"IN", "NOT IN"}:
        return f"{name} {word} ({', '.join(map(repr_of, values[0]))})"
    if word in {"CONTAINS", "NOT ENDSWITH"}:
        values = [repr_of(values[0])]
    return " ".join(map(str, (name, word, *values)))


def evaluate(tree: Tree, properties: dict[str, str]) -> bool | None:
    """Evaluate a tree: True, False, or None for unknown; raises Fails."""
    match tree:
        case ("NOT", inner):
            value = evaluate(inner, properties)
            return None if value is None else not value
        case ("AND" | "OR" as word, left, right):
            return _joined(word, left, right, properties)
        case (word, name, *rest):
            return _compared(word, properties.get(name), rest)
    raise AssertionError(tree)


def _joined(word: str, left: Tree, right: Tree, properties: dict[str, str]) -> bool | None:
    decides = word == "OR"
    first = evaluate(left, properties)
    if first is decides:
        return decides
    second = evaluate(right, properties)
    if second is decides:
        return decides
    return None if None in {first, second} else not decides


def _compared(word: str, value: str | None, rest: list[Any]) -> bool | None:
    if word in {"IS NULL", "IS NOT NULL"}:
        return (value is None) == (word == "IS NULL")
    if word in {"CONTAINS", "NOT ENDSWITH"} and value is None:
        return False
    return None if value is None else _tested(word, value, *rest)


def _tested(word: str, value: str, *rest: Any) -> bool:
    is_text = word in {"=", "<>"} and isinstance(rest[0], str)
    tests: dict[str, Callable[[], object]] = {
        "CONTAINS": lambda: rest[0] in value,
        "NOT ENDSWITH": lambda: not value.endswith(rest[0]),
        "IN": lambda: value in rest[0],
        "NOT IN": lambda: value not in rest[0],
        "BETWEEN": lambda: rest[0] <= _number(value) <= rest[1],
        "=": lambda: (repr_of(value) if is_text else _number(value)) == rest[0],
        "<>": lambda: (repr_of(value) if is_text else _number(value)) != rest[0],
        ">": lambda: _number(value) > rest[0],
        ">=": lambda: _number(value) >= rest[0],
        "<": lambda: _number(value) < rest[0],
        "<=": lambda: _number(value) <= rest[0],
    }
    return bool(tests[word]())


def _number(text: str) -> int:
    """A whole number that fits into 32 bits."""
    digits = text[1:] if text[0] in "+-" else text
    if not digits.isdecimal() or not INT_MIN <= int(text) <= INT_MAX:
        raise Fails(text)
    return int(text)
