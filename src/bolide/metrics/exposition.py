"""Families as text in Prometheus' format, in pieces and without holding up the event loop.

The text of a broker with many queues has megabytes. It is made on a thread that gives the
interpreter away every millisecond; `prometheus_client` would hold it for the time of a family.
"""

import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator

from bolide.distribution import Distribution
from bolide.metrics.families import Family, Kind, Scope

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_CHUNK = 64 * 1024
_SPECIAL = re.compile(r'[\\"\n]')
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
_INFINITY = float("inf")


class Pace:
    """Gives the interpreter away from time to time, so that the event loop need not wait for it.

    Args:
        work: seconds of work after which it does.
        rest: seconds for which it does.
    """

    __slots__ = ("_rest", "_until", "_work")

    def __init__(self, work: float = 0.001, rest: float = 0.0002) -> None:
        self._work = work
        self._rest = rest
        self._until = time.perf_counter() + work

    def __call__(self) -> None:
        if time.perf_counter() >= self._until:
            time.sleep(self._rest)
            self._until = time.perf_counter() + self._work


def render(families: Iterable[Family], pace: Callable[[], None]) -> Iterator[bytes]:
    """Yield the text in pieces.

    Args:
        pace: called after every few lines.
    """
    lines: list[str] = []
    size = 0
    for family in families:
        for line in _lines_of(family):
            lines.append(line)
            size += len(line)
            if len(lines) & 31 == 0:
                pace()
            if size >= _CHUNK:
                yield "".join(lines).encode()
                lines, size = [], 0
    if lines:
        yield "".join(lines).encode()


def compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same in gzip's format."""
    deflate = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for piece in pieces:
        if packed := deflate.compress(piece):
            yield packed
    yield deflate.flush()


def _lines_of(family: Family) -> Iterator[str]:
    name, scope = family.full_name, _scope_text(family.scope)
    is_announced = False
    for values, value in family.limited():
        if not is_announced:  # a family without series is not shown
            is_announced = True
            yield f"# HELP {name} {_escape_help(family.help)}\n# TYPE {name} {family.kind.value}\n"
        labels = scope + ",".join(
            [
                f'{key}="{escape(text)}"'
                for key, text in zip(family.labels, values, strict=True)
                if text  # for Prometheus, an empty label is none
            ]
        )
        if isinstance(value, Distribution):
            yield _histogram(name, labels.rstrip(","), value)
        else:
            shown = labels.rstrip(",")
            yield f"{name}{{{shown}}} {number(value)}\n" if shown else f"{name} {number(value)}\n"


def _histogram(name: str, labels: str, value: Distribution) -> str:
    before, count, lines = f"{labels}," if labels else "", 0, []
    for bound, added in zip((*value.bounds, _INFINITY), value.counts, strict=True):
        count += added
        shown = "+Inf" if bound == _INFINITY else repr(float(bound))
        lines.append(f'{name}_bucket{{{before}le="{shown}"}} {count}\n')
    own = f"{{{labels}}}" if labels else ""
    lines.append(f"{name}_count{own} {count}\n{name}_sum{own} {number(value.total)}\n")
    return "".join(lines)


def _scope_text(scope: Scope) -> str:
    return "".join([f'{key}="{escape(text)}",' for key, text in scope.shown])


def escape(text: str) -> str:
    """A label's value between quotation marks."""
    if not _SPECIAL.search(text):
        return text
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number(value: float) -> str:
    if value == _INFINITY:
        return "+Inf"
    return str(int(value)) if isinstance(value, int) else repr(value)


def metric_kinds(text: str) -> dict[str, Kind]:
    """Names and kinds of the metrics in a text."""
    found = re.findall(r"^# TYPE (\S+) (gauge|counter|histogram)$", text, re.MULTILINE)
    return {name: Kind(kind) for name, kind in found}
