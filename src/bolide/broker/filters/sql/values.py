"""Property values as Java parses and compares them, and the errors of expressions."""

import math
import re

from bolide.errors import BolideError


class BadExpression(BolideError):
    """The text is not a valid filter; the message states the position and what was expected."""


class EvaluationFailed(Exception):
    """A property cannot be compared as the expression requires, such as 'abc' with a number.

    RocketMQ does not match such a message, whatever surrounds the comparison.
    """


INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_PAIR_END = 2
_WHOLE = re.compile(r"[+-]?\d+")  # as in Java, digits of any script
_DOUBLE = re.compile(
    r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|[+-]?\.[0-9]+(?:[eE][+-]?[0-9]+)?"
)
_HEX = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NAMED = {"NaN": math.nan, "Infinity": math.inf}
_TRIMMED = "".join(map(chr, range(0x21)))
_SURELY_INT = len(str(INT_MAX))
_MAX_DIGITS = len(str(LONG_MAX))


def find_property(properties: bytes, key: bytes) -> str | None:
    """Return the value after 0x02 name 0x01; the last non-empty one of several."""
    at = properties.rfind(key)
    while at >= 0:
        start = at + len(key)
        end = properties.find(_PAIR_END, start)
        if end < 0:
            end = len(properties)
        if end > start:
            return properties[start:end].decode("utf-8", "replace")
        at = properties.rfind(key, 0, at)
    return None


def read_int(text: str) -> int:
    """`Integer.valueOf`."""
    if len(text) < _SURELY_INT and text.isascii() and text.isdecimal():
        return int(text)
    return _within(text, INT_MAX)


def read_long(text: str) -> int:
    """`Long.valueOf`."""
    return _within(text, LONG_MAX)


def read_double(text: str) -> float:
    """`Double.valueOf`: surrounding whitespace and a suffix f or d are ignored."""
    bare = text.strip(_TRIMMED)
    named = _NAMED.get(bare[1:] if bare[:1] in {"+", "-"} else bare)
    if named is not None:
        return -named if bare[0] == "-" else named
    if bare[-1:] in {"f", "F", "d", "D"}:
        bare = bare[:-1]
    if _DOUBLE.fullmatch(bare):
        return float(bare)
    if _HEX.fullmatch(bare):
        return _from_hex(bare)
    raise EvaluationFailed(text)


def read_boolean(text: str) -> bool:
    """`Boolean.valueOf`."""
    return text.lower() == "true"


def compare_ints(left: int, right: int) -> int:
    return (left > right) - (left < right)


def compare_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: NaN is above all others, and -0.0 below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0.0:
        return 0
    first, second = _rank(left), _rank(right)
    return (first > second) - (first < second)


def _rank(value: float) -> tuple[bool, float, float]:
    if math.isnan(value):
        return True, 0.0, 0.0
    return False, value, math.copysign(1.0, value)


def _within(text: str, limit: int) -> int:
    if not _WHOLE.fullmatch(text) or (not text.isascii() and max(text) > "\uffff"):
        raise EvaluationFailed(text)
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS:  # before int(), which refuses thousands of digits
        raise EvaluationFailed(text)
    value = -int(digits) if text[0] == "-" else int(digits)
    if not -limit - 1 <= value <= limit:
        raise EvaluationFailed(text)
    return value


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text[0] == "-" else math.inf
