"""Java's properties files, in full: comments, continued lines, escapes; read as UTF-8.

RocketMQ's broker.conf and namesrv.conf are such files.
"""

import re
from collections.abc import Iterator, Mapping

_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACES = " \t\f"


def parse(text: str) -> dict[str, str]:
    """Read the keys and values; a key given twice has its last value."""
    return dict(_pair(line) for line in _logical_lines(text.removeprefix("\ufeff")))


def render(values: Mapping[str, object]) -> str:
    """Write `key=value` lines sorted by key, in the plain form that RocketMQ exchanges."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))


def edit(text: str, changes: Mapping[str, str]) -> str:
    """Change values in a file's text; its comments, order and other lines stay as they are."""
    left = dict(changes)
    lines = []
    for line in _LINE_END.split(text.rstrip("\r\n")) if text.strip() else []:
        key = _key_of(line)
        lines.append(_line(key, left.pop(key)) if key in left else line)
    lines += [_line(key, value) for key, value in left.items()]
    return "".join(line + "\n" for line in lines)


def _key_of(line: str) -> str | None:
    content = line.lstrip(_SPACES)
    return _pair(content)[0] if content and content[0] not in "#!" else None


def _line(key: str | None, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if escaped.startswith(tuple(_SPACES)):
        escaped = "\\" + escaped
    return f"{key}={escaped}"


def _logical_lines(text: str) -> Iterator[str]:
    """Join lines that end in an odd number of backslashes with the next; drop comments."""
    pending = ""
    for line in _LINE_END.split(text):
        content = line.lstrip(_SPACES)
        if not pending and (not content or content[0] in "#!"):
            continue
        pending += content
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _pair(line: str) -> tuple[str, str]:
    key = _KEY.match(line).group()  # type: ignore[union-attr]  # it matches the empty text too
    rest = _SEPARATOR.match(line, len(key)).end()  # type: ignore[union-attr]  # likewise
    return _unescape(key), _unescape(line[rest:]).strip()


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    sign = match.group(1)
    if len(sign) == 5:
        return chr(int(sign[1:], 16))
    return _CONTROL.get(sign, sign)
