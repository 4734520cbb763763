"""Two implementations must agree: the same result, or the same refusal."""

from collections.abc import Callable
from typing import Any


class Disagreement(AssertionError):
    """Two implementations differ."""


def outcome(call: Callable[[], Any], refusals: tuple[type[Exception], ...]) -> tuple[Any, ...]:
    """The result of a call, or its refusal; other exceptions are raised."""
    try:
        return ("result", _plain(call()))
    except refusals as exc:
        return ("refusal", type(exc).__name__, str(exc))


def _plain(value: Any) -> Any:
    """Views are compared by their bytes, objects without equality by what they show."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, tuple | list):
        return type(value).__name__, [_plain(each) for each in value]
    if type(value).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        return type(value).__name__, repr(value)
    return value


def agree(
    plain: Callable[[], Any], compiled: Callable[[], Any], *refusals: type[Exception]
) -> None:
    """Raise Disagreement if two calls differ."""
    expected, found = outcome(plain, refusals), outcome(compiled, refusals)
    if not _equal(expected, found):
        raise Disagreement(f"plain Python: {expected!r:.2000}\ncompiled: {found!r:.2000}")


def _equal(expected: Any, found: Any) -> bool:
    return bool(expected == found) or repr(expected) == repr(found)  # NaN
