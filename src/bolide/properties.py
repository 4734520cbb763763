"""Java's properties files, with comments, continuation lines and escapes, in UTF-8.

RocketMQ's broker.conf and namesrv.conf have this format.
"""

import re
from collections.abc import Iterator, Mapping

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_LINE_END = re.compile(r"(?:\r\n?|\n)?\Z")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_OTHER_LINE_ENDS = "\x85\u2028\u2029"
_WRITTEN = (
    {code: f"\\u{code:04x}" for code in (*range(32), 127, *map(ord, _OTHER_LINE_ENDS))}
    | {ord(sign): f"\\{letter}" for letter, sign in _CONTROL.items()}
    | {ord("\\"): "\\\\"}
)
"""Whatever ends a line somewhere is escaped, so that a value cannot begin another line."""
_WRITTEN_IN_KEY = _WRITTEN | {ord(sign): f"\\{sign}" for sign in "=: #!"}
_SPACES = " \t\f"
_BOM = "\ufeff"


def parse(text: str) -> dict[str, str]:
    """Parse keys and values; of a repeated key the last value counts."""
    lines = _logical_lines(text.removeprefix(_BOM))
    return dict(_pair(line) for _, line in lines if line is not None)


def render(values: Mapping[str, object]) -> str:
    """Format `key=value` lines sorted by key, as RocketMQ exchanges them."""
    return "".join(_line(key, str(values[key])) + "\n" for key in sorted(values))


def edit(text: str, changes: Mapping[str, str]) -> str:
    """Change values in a file's text, preserving comments, order and other lines."""
    end = "\r\n" if "\r\n" in text else "\n"
    left = dict(changes)
    parts = []
    for raw, line in _logical_lines(text.removeprefix(_BOM)):
        key = None if line is None else _pair(line)[0]
        if key is None or key not in changes:
            parts.append(raw)
        else:
            left.pop(key, None)
            parts.append(_line(key, changes[key]) + _end_of(raw))
    if left and parts:
        parts.append(_gap_after(parts[-1], end))
    parts += [_line(key, value) + end for key, value in left.items()]
    return (_BOM if text.startswith(_BOM) else "") + "".join(parts)


def _gap_after(raw: str, end: str) -> str:
    """Return the line ends needed after the last line before another one is appended."""
    own = _end_of(raw)
    end = own or end  # of the same kind: \r followed by \n would be one line end
    return ("" if own else end) + (end if _goes_on(raw.removesuffix(own)) else "")


def _end_of(raw: str) -> str:
    return _LINE_END.search(raw).group()  # type: ignore[union-attr]  # it matches the empty text too


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _line(key: str, value: str) -> str:
    blank = "\\" if value.startswith(" ") else ""
    return f"{key.translate(_WRITTEN_IN_KEY)}={blank}{value.translate(_WRITTEN)}"


def _logical_lines(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each raw line and its content; comments and empty lines have content None.

    A line that ends in an odd number of backslashes continues in the next.
    """
    raw: list[str] = []
    content: list[str] = []
    has_content = False
    for line in _LINE.findall(text):
        raw.append(line)
        begin = line.rstrip("\r\n").lstrip(_SPACES)
        if not has_content and (not begin or begin[0] in "#!"):
            yield "".join(raw), None
        elif _goes_on(begin):
            content.append(begin[:-1])
            has_content = has_content or len(begin) > 1
            continue
        else:
            yield "".join(raw), "".join((*content, begin))
        raw, content, has_content = [], [], False
    if raw:
        yield "".join(raw), "".join(content) or None


def _pair(line: str) -> tuple[str, str]:
    key = _KEY.match(line).group()  # type: ignore[union-attr]  # it matches the empty text too
    rest = _SEPARATOR.match(line, len(key)).end()  # type: ignore[union-attr]  # likewise
    return _unescape(key), _unescape(line[rest:])


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescaped, text)
    # Java escapes a character beyond 16 bits as a surrogate pair; unpaired ones are replaced.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    sign = match.group(1)
    if len(sign) == 5:
        return chr(int(sign[1:], 16))
    return _CONTROL.get(sign, sign)
