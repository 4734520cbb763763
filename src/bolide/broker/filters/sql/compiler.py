"""From the text of an expression to a test; each text is compiled once."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from bolide.broker.filters.sql.values import BadExpression, EvaluationFailed
from bolide.kernel import Sieve

if TYPE_CHECKING:
    from bolide.broker.filters.sql.nodes import Evaluate


log = logging.getLogger(__name__)

MAX_LENGTH = 16 * 1024
_MOST_KEPT = 2 * 1024 * 1024
"""Characters of expressions; compiled they take some twenty times as much."""
_OF_EACH = 256
"""What the shortest expression counts for."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A test of messages by their properties."""

    matches: Callable[[bytes], bool]
    """Whether a property string, with a byte 0x02 before it, is of a wanted message."""
    sieve: Sieve
    """The same of records."""
    terms: int = 1
    """Names and values in it: how long it takes."""
    ignored: str = ""
    """What stands behind the end of the expression; RocketMQ passes over it, and so do we."""


def compile_sql(text: str) -> Compiled:
    """The test of an expression. Takes milliseconds the first time, a thread's if it is long.

    Raises:
        BadExpression: it is none, or over a limit; says where and what was expected.
    """
    if len(text) > MAX_LENGTH:
        raise BadExpression(
            f"an expression of {len(text)} characters; at most {MAX_LENGTH} are possible"
        )
    outcome = _outcomes.find(text)
    if outcome is None:
        outcome = _compile(text)
        _outcomes.keep(text, outcome)
    if isinstance(outcome, str):
        raise BadExpression(outcome)
    return outcome


def is_compiled(text: str) -> bool:
    """Whether `compile_sql` knows at once."""
    return len(text) > MAX_LENGTH or _outcomes.find(text) is not None


def _compile(text: str) -> Compiled | str:
    from bolide.broker.filters.sql.parser import parse  # noqa: PLC0415  lark is for those who ask

    try:
        whole, end = parse(text)
    except BadExpression as exc:
        return str(exc)
    ignored = text[end:].strip()
    if ignored:
        log.warning("the SQL filter %.200r ends before %.200r, which is passed over", text, ignored)
    matches = _surely(whole.evaluate)
    return Compiled(matches, Sieve(whole.told, matches), whole.terms, ignored)


def _surely(evaluate: "Evaluate") -> Callable[[bytes], bool]:
    """Only what is surely true matches."""

    def matches(properties: bytes) -> bool:
        try:
            return evaluate(properties) is True
        except EvaluationFailed:
            return False

    return matches


class _Outcomes:
    """What became of expressions; those not asked for the longest go first. For any thread.

    Errors are kept too: whoever sent a bad expression sends it again and again.
    """

    def __init__(self) -> None:
        self._by_text: OrderedDict[str, Compiled | str] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def find(self, text: str) -> Compiled | str | None:
        with self._lock:
            found = self._by_text.get(text)
            if found is not None:
                self._by_text.move_to_end(text)
            return found

    def keep(self, text: str, outcome: Compiled | str) -> None:
        with self._lock:
            if text not in self._by_text:
                self._size += len(text) + _OF_EACH
            self._by_text[text] = outcome
            while self._size > _MOST_KEPT:
                gone, _ = self._by_text.popitem(last=False)
                self._size -= len(gone) + _OF_EACH


_outcomes = _Outcomes()
