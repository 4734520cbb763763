"""Compiles SQL92 expressions into tests, with an LRU cache by text."""

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
_MAX_CACHED = 2 * 1024 * 1024
"""Characters of cached expressions; compiled, they take about twenty times as much memory."""
_ENTRY_OVERHEAD = 256
"""Characters counted for the overhead of each entry."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A test of messages by their properties."""

    matches: Callable[[bytes], bool]
    """Whether a property string, preceded by a byte 0x02, matches."""
    sieve: Sieve
    """The same test for records."""
    terms: int = 1
    """Number of names and values, a measure of the cost."""
    ignored: str = ""
    """Text after the end of the expression, ignored as in RocketMQ."""


def compile_sql(text: str) -> Compiled:
    """Compile an expression. The first time takes milliseconds; compile a long one in a worker
    thread.

    Raises:
        BadExpression: the text is invalid or exceeds a limit.
    """
    if len(text) > MAX_LENGTH:
        raise BadExpression(
            f"an expression of {len(text)} characters; at most {MAX_LENGTH} are possible"
        )
    result = _cache.find(text)
    if result is None:
        result = _compile(text)
        _cache.store(text, result)
    if isinstance(result, str):
        raise BadExpression(result)
    return result


def is_compiled(text: str) -> bool:
    """Whether `compile_sql` answers from the cache."""
    return len(text) > MAX_LENGTH or _cache.find(text) is not None


def _compile(text: str) -> Compiled | str:
    from bolide.broker.filters.sql.parser import parse  # noqa: PLC0415  loads lark only when needed

    try:
        whole, end = parse(text)
    except BadExpression as exc:
        return str(exc)
    ignored = text[end:].strip()
    if ignored:
        log.warning("the SQL filter %.200r ends before %.200r, which is ignored", text, ignored)
    matches = _only_true(whole.evaluate)
    return Compiled(matches, Sieve(whole.kernel_plan, matches), whole.terms, ignored)


def _only_true(evaluate: "Evaluate") -> Callable[[bytes], bool]:
    """Unknown results and failed evaluations do not match."""

    def matches(properties: bytes) -> bool:
        try:
            return evaluate(properties) is True
        except EvaluationFailed:
            return False

    return matches


class _ResultCache:
    """LRU cache of compilation results; thread-safe.

    Errors are cached too, since clients repeat an invalid expression.
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

    def store(self, text: str, result: Compiled | str) -> None:
        with self._lock:
            if text not in self._by_text:
                self._size += len(text) + _ENTRY_OVERHEAD
            self._by_text[text] = result
            while self._size > _MAX_CACHED:
                evicted, _ = self._by_text.popitem(last=False)
                self._size -= len(evicted) + _ENTRY_OVERHEAD


_cache = _ResultCache()
