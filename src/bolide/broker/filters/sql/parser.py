"""The parser, made by lark from the grammar beside this file, and what it says of bad text."""

import difflib
from collections.abc import Collection, Iterator
from functools import cache
from importlib import resources

from lark import Lark, Token, UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from bolide.broker.filters.sql.builder import Builder
from bolide.broker.filters.sql.nodes import MAX_DEPTH, TOO_DEEP, Node
from bolide.broker.filters.sql.values import BadExpression

_WORDS = frozenset({
    "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH",
    "ENDSWITH",
})  # fmt: skip
_END = "$END"
_MOST_OPEN = 4 * MAX_DEPTH
"""Words that wait for what follows them, such as open brackets."""
_SHOWN = 24

_NAMES = {
    "STRING": "a text in single quotes",
    "INTEGER": "a number",
    "DECIMAL": "a number",
    "NAME": "a property name",
    "ORDER": "one of > >= < <=",
    "EQUAL": "=",
    "NOT_EQUAL": "<>",
    "PLUS": "+",
    "MINUS": "-",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    _END: "the end",
}

_ADVICE = {
    "|": "write OR",
    "&": "write AND",
    "!": "write <> for 'not equal'",
    '"': "texts stand in single quotes",
    "'": "the text has no closing quote",
    ".": "names have letters, digits, _ and $ only",
    "%": "there is no arithmetic",
    "*": "there is no arithmetic",
    "/": "there is no arithmetic",
}


def parse(text: str) -> tuple[Node, int]:
    """The expression that a text begins with, and where in the text it ends.

    What follows a complete expression is not looked at but for its first word, as in RocketMQ.

    Raises:
        BadExpression: it begins with none.
    """
    parser = _parser().parse_interactive(text)
    end = 0
    try:
        for token in _tokens(parser):
            if not _feed(parser, token, text):
                break
            if len(parser.parser_state.value_stack) > _MOST_OPEN:
                raise BadExpression(TOO_DEEP)
            end = token.end_pos or 0
        whole: Node = parser.feed_eof()  # type: ignore[no-untyped-call]
    except UnexpectedCharacters as exc:
        raise BadExpression(_bad_character(text, exc.pos_in_stream or 0)) from exc
    except UnexpectedToken as exc:
        raise BadExpression(_incomplete(text, _expected(parser))) from exc
    return whole, end


def _feed(parser: InteractiveParser, token: Token, text: str) -> bool:
    """Give the parser its next word; False if the expression ended before it."""
    try:
        parser.feed_token(token)
    except UnexpectedToken as exc:
        expected = _expected(parser)
        if _END in expected:
            return False
        raise BadExpression(_unexpected(token, text, expected)) from exc
    return True


def _tokens(parser: InteractiveParser) -> Iterator[Token]:
    """One by one: the text is cut no further than the parser has got."""
    yield from parser.lexer_thread.lex(parser.parser_state)  # type: ignore[no-untyped-call]


def _expected(parser: InteractiveParser) -> Collection[str]:
    accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    return accepted


@cache
def _parser() -> Lark:
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text()
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        transformer=Builder(),
        lexer_callbacks={"NAME": _as_word},
    )


def _as_word(token: Token) -> Token:
    """A reserved word is one in any case."""
    word = token.upper()
    return Token.new_borrow_pos(word, str(token), token) if word in _WORDS else token


# ---- what people are told


def _unexpected(token: Token, text: str, expected: Collection[str]) -> str:
    place = (token.start_pos or 0) + 1
    said = f"{str(token)[:_SHOWN]!r} at character {place} of {_shown(text)}: {_listing(expected)}"
    near = difflib.get_close_matches(token.upper(), _WORDS.intersection(expected), 1)
    return f"{said} Did you mean {near[0]}?" if near else said


def _incomplete(text: str, expected: Collection[str]) -> str:
    if not text.strip():
        return "the expression is empty: write one, or subscribe to all with the tag *"
    return f"{_shown(text)} ends too early: {_listing(expected)}"


def _bad_character(text: str, position: int) -> str:
    character = text[position]
    advice = _ADVICE.get(character)
    said = f"{character!r} at character {position + 1} of {_shown(text)} cannot stand there"
    return f"{said}: {advice}" if advice else said


def _listing(expected: Collection[str]) -> str:
    names = sorted({_NAMES.get(each, each) for each in expected})
    return f"expected {', '.join(names)}."


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
