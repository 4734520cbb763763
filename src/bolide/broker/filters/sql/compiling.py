"""From the text of an expression to a test; each text is compiled once."""

import logging
from dataclasses import dataclass
from functools import lru_cache

from bolide.broker.filters.sql.errors import BadExpression, EvaluationFailed
from bolide.broker.filters.sql.nodes import Evaluate

log = logging.getLogger(__name__)

MAX_LENGTH = 16 * 1024
_CACHED = 1024


@dataclass(frozen=True, slots=True)
class Compiled:
    """A test of messages by their properties."""

    evaluate: Evaluate
    terms: int = 1
    """Names and values in it: how long it takes."""
    ignored: str = ""
    """What stands behind the end of the expression; RocketMQ passes over it, and so do we."""

    def matches(self, properties: bytes) -> bool:
        """Whether a property string is of a wanted message: only what is surely true matches.

        Args:
            properties: as a record holds them, with a byte 0x02 before them.
        """
        try:
            return self.evaluate(properties) is True
        except EvaluationFailed:
            return False


def compile_sql(text: str) -> Compiled:
    """The test of an expression.

    Raises:
        BadExpression: it is none, or over a limit; says where and what was expected.
    """
    outcome = _compile(text) if len(text) <= MAX_LENGTH else _too_long(text)
    if isinstance(outcome, str):
        raise BadExpression(outcome)
    return outcome


@lru_cache(maxsize=_CACHED)
def _compile(text: str) -> Compiled | str:
    """Errors are kept too: whoever sent a bad expression sends it again and again."""
    from bolide.broker.filters.sql.parsing import parse  # noqa: PLC0415  lark is for those who ask

    try:
        whole, end = parse(text)
    except BadExpression as exc:
        return str(exc)
    ignored = text[end:].strip()
    if ignored:
        log.warning("the SQL filter %.200r ends before %.200r, which is passed over", text, ignored)
    return Compiled(whole.evaluate, whole.terms, ignored)


def _too_long(text: str) -> str:
    return f"an expression of {len(text)} characters; at most {MAX_LENGTH} are possible"
