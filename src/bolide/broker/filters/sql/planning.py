"""Comparisons in the forms that the kernel knows; None where one is in no such form."""

from collections.abc import Iterable

from bolide.broker.filters.sql.nodes import Constant, Kind, Negative, Node, Property
from bolide.broker.filters.sql.numbers import INT_MAX, LONG_MAX
from bolide.kernel.sieves import IsListed, IsThere, Negated, NumberIs, Plan, TextIs

_LIMITS = {Kind.INT: INT_MAX, Kind.LONG: LONG_MAX}
_REPLACED = "\ufffd"
"""What any byte that is no UTF-8 becomes: such texts are equal though their bytes are not."""


def number_plan(symbol: str, left: Node, right: Node) -> Plan | None:
    """That of `name > 5` and its like."""
    if not (isinstance(left, Property) and isinstance(right, Constant | Negative)):
        return None
    if right.kind not in _LIMITS or not isinstance(right.value, int):
        return None
    return NumberIs(left.key, symbol, right.value, _LIMITS[right.kind])


def equality_plan(left: Node, right: Node) -> Plan | None:
    if isinstance(left, Property) and isinstance(right, Constant) and isinstance(right.value, str):
        text = _bytes_of(right.value)
        return None if text is None else TextIs(left.key, text)
    return number_plan("=", left, right)


def missing_plan(part: Node) -> Plan | None:
    """That of `name IS NULL`."""
    return Negated(IsThere(part.key)) if isinstance(part, Property) else None


def listed_plan(part: Property, texts: Iterable[str], *, is_in: bool) -> Plan | None:
    found = frozenset(map(_bytes_of, texts))
    if None in found:
        return None
    plan = IsListed(part.key, frozenset(text for text in found if text is not None))
    return plan if is_in else Negated(plan)


def _bytes_of(text: str) -> bytes | None:
    """A text as a property string holds it; None if it may be held in other ways too."""
    try:
        return None if _REPLACED in text else text.encode()
    except UnicodeEncodeError:
        return None
