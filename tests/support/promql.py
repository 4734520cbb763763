"""Reads PromQL as far as it names metrics and labels."""

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'[^']*')
    | (?P<span>\[[^\]]*\])
    | (?P<number>\d[\w.]*|\.\d+)
    | (?P<name>[a-zA-Z_:][\w:]*)
    | (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^(){},=<>])
    )""",
    re.VERBOSE,
)
_SPAN = re.compile(r"\[(\d+[smhdw]|\$__rate_interval)(:(\d+[smhdw])?)?\]")
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset"}
_FUNCTIONS = {
    "sum", "max", "min", "avg", "count", "topk", "bottomk", "rate", "increase", "deriv",
    "histogram_quantile", "max_over_time", "min_over_time", "absent",
}  # fmt: skip
_MATCHES = {"=", "!=", "=~", "!~"}


class BadQuery(ValueError):
    """This is not PromQL, or more of it than this module reads."""


@dataclass
class Selector:
    """A metric, with the labels that its series are selected by."""

    metric: str
    labels: set[str] = field(default_factory=set)


@dataclass
class Query:
    selectors: list[Selector] = field(default_factory=list)
    grouping: set[str] = field(default_factory=set)
    """Labels that results are grouped or matched by."""

    @property
    def metrics(self) -> set[str]:
        return {each.metric for each in self.selectors}


def read_query(text: str) -> Query:
    """The metrics and labels of an expression.

    Raises:
        BadQuery: it cannot be read.
    """
    reader = _Reader(_tokens(text))
    reader.expression()
    if reader.kind != "end":
        raise BadQuery(f"{reader.token!r} is not expected in {text!r}")
    return reader.query


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise BadQuery(f"cannot read {text[at:]!r}")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return [*found, ("end", "")]


class _Reader:
    """A recursive descent; operators are read from left to right, since only names matter."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self.query = Query()

    @property
    def kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def token(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> str:
        token = self.token
        self._at += 1
        return token

    def _expect(self, *tokens: str) -> str:
        if self.token not in tokens:
            raise BadQuery(f"{self.token!r} where {' or '.join(tokens)} is expected")
        return self._next()

    def expression(self) -> None:
        self._operand()
        while self.token in {"+", "-", "*", "/", "%", "^", "==", "!=", "<", ">", "<=", ">="} | (
            _WORDS - {"offset", "bool"}
        ):
            self._next()
            if self.token == "bool":
                self._next()
            while self.token in _GROUPING:
                self._next()
                self._labels()
            self._operand()

    def _operand(self) -> None:
        if self.kind == "number":
            self._next()
        elif self.token == "-":
            self._next()
            self._operand()
        elif self.token == "(":
            self._next()
            self.expression()
            self._expect(")")
        elif self.kind == "name":
            self._call_or_selector()
        else:
            raise BadQuery(f"{self.token!r} where a value is expected")
        if self.kind == "span" and not _SPAN.fullmatch(self._next()):
            raise BadQuery("a range is a duration, with a step after a colon in a subquery")
        if self.token == "offset":
            self._next()
            if self.kind != "number":
                raise BadQuery("an offset is a duration")
            self._next()

    def _call_or_selector(self) -> None:
        name = self._next()
        if name in _WORDS | _GROUPING:
            raise BadQuery(f"{name!r} where a value is expected")
        is_function = self.token == "(" or self.token in {"by", "without"}
        if is_function:
            if name not in _FUNCTIONS:
                raise BadQuery(f"there is no function {name!r}")
            self._grouping()
            self._expect("(")
            self.expression()
            while self.token == ",":
                self._next()
                self.expression()
            self._expect(")")
            self._grouping()
        else:
            self._selector(name)

    def _grouping(self) -> None:
        if self.token in {"by", "without"}:
            self._next()
            self._labels()

    def _labels(self) -> None:
        self._expect("(")
        while self.token != ")":
            if self.kind != "name":
                raise BadQuery(f"{self.token!r} where a label is expected")
            self.query.grouping.add(self._next())
            if self.token != ")":
                self._expect(",")
        self._next()

    def _selector(self, metric: str) -> None:
        selector = Selector(metric)
        self.query.selectors.append(selector)
        if self.token != "{":
            return
        self._next()
        while self.token != "}":
            if self.kind != "name":
                raise BadQuery(f"{self.token!r} where a label is expected")
            selector.labels.add(self._next())
            self._expect(*_MATCHES)
            if self.kind != "text":
                raise BadQuery(f"{self.token!r} where the value of a label is expected")
            self._next()
            if self.token != "}":
                self._expect(",")
        self._next()
