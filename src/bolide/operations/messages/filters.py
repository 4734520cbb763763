"""Which messages are wanted, and which part of that a broker can decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bolide.broker.filters.sql import BadExpression, Compiled, compile_sql
from bolide.model.message import StoredMessage
from bolide.operations.errors import BadInput
from bolide.operations.messages.json_path import JsonCondition
from bolide.protocol.property_string import PAIR_END, encode_properties
from bolide.protocol.tags import ALL, BadTagExpression, TagExpression

Test = Callable[[StoredMessage], bool]
_LONGEST = 1000
END_OF_TIME = 2**62


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter of messages, made by `filter_of`."""

    tests: tuple[Test, ...] = ()
    """All must hold; the cheap ones first."""
    tags: str = ALL
    """The broker compares their hashes."""
    sql: str = ""

    @property
    def pushed(self) -> bool:
        """Whether the broker can leave out messages."""
        return self.tags != ALL or bool(self.sql)

    @property
    def is_open(self) -> bool:
        """Whether every message matches."""
        return not self.tests

    def matches(self, message: StoredMessage) -> bool:
        return all(test(message) for test in self.tests)


EVERYTHING = MessageFilter()


def filter_of(  # noqa: PLR0913  one option per kind of filter
    *,
    tags: str = "",
    key: str = "",
    properties: Sequence[str] | None = None,
    text: str = "",
    json_path: str = "",
    sql: str = "",
    begin_ms: int | None = None,
    end_ms: int | None = None,
) -> MessageFilter:
    """The filter of a search; raises BadInput with the name of the parameter."""
    for name, value in (("tags", tags), ("key", key), ("text", text)):
        if len(value) > _LONGEST:
            raise BadInput(name, f"longer than {_LONGEST} characters")
    tests: list[Test] = []
    if begin_ms is not None or end_ms is not None:
        low = 0 if begin_ms is None else begin_ms
        high = 2**63 if end_ms is None else end_ms
        tests.append(lambda message: low <= message.store_timestamp <= high)
    wanted = _tags(tags)
    if not wanted.wants_all:
        tests.append(lambda message: wanted.matches(message.tags))
    if key:
        tests.append(lambda message: key in message.keys)
    tests.extend(_property_test(each) for each in properties or ())
    sql = sql.strip()
    if sql:
        tests.append(_sql_test(compile_filter(sql)))
    if text:
        searched = text.encode("utf-8", "surrogatepass")
        tests.append(lambda message: searched in message.body)
    if json_path.strip():
        condition = JsonCondition.parse(json_path)
        tests.append(lambda message: condition.matches(message.body))
    # A pull has one expression: tags are compared in the queue's index, without the log.
    return MessageFilter(tuple(tests), wanted.text, "" if not wanted.wants_all else sql)


def compile_filter(sql: str) -> Compiled:
    """Raises BadInput for text that RocketMQ's brokers refuse, and for text behind the end."""
    try:
        compiled = compile_sql(sql)
    except BadExpression as exc:
        raise BadInput("sql", str(exc)) from exc
    if compiled.ignored:
        raise BadInput("sql", f"the expression ends before {compiled.ignored[:80]!r}")
    return compiled


def sql_matches(compiled: Compiled, message: StoredMessage) -> bool:
    """Whether the properties of a message fulfil an expression, as in a broker."""
    try:
        properties = PAIR_END + encode_properties(message.properties)
    except ValueError:  # a separator in a value: brokers would not read it back either
        return False
    return compiled.matches(properties.encode("utf-8", "surrogatepass"))


def _sql_test(compiled: Compiled) -> Test:
    return lambda message: sql_matches(compiled, message)


def _tags(text: str) -> TagExpression:
    try:
        return TagExpression.parse(text.strip())
    except BadTagExpression as exc:
        raise BadInput("tags", f"{text!r} names no tag: write a || b") from exc


def _property_test(text: str) -> Test:
    """`name` is there at all, `name=value` has that value."""
    name, given, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not name:
        raise BadInput("properties", f"{text!r} has no name: write name=value, or name alone")
    if not given:
        return lambda message: name in message.properties
    return lambda message: message.properties.get(name) == value


def check_times(begin_ms: int | None, end_ms: int | None) -> None:
    """Raises BadInput for what is no range of times."""
    for name, value in (("begin_ms", begin_ms), ("end_ms", end_ms)):
        if value is not None and not 0 <= value < END_OF_TIME:
            raise BadInput(name, f"{value} is no time in ms since 1970")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise BadInput("end_ms", "it is before begin_ms")
