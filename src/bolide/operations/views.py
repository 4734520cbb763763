"""What the views of all operations share: pages of a list, and the servers that did not answer."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from bolide.errors import BolideError

T = TypeVar("T")

MAX_PAGE_SIZE = 500

LIVE: Mapping[str, bool] = MappingProxyType({"live": True})
"""Metadata of a field of an effect that changes by itself, such as a count of messages.

Who confirms the effect sees it, but the confirmation holds if only such fields have changed,
unless there was nothing and is something now: otherwise nobody could confirm a change of a topic
with traffic. Use it as `field(metadata=LIVE)`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A server that did not answer, or refused; what it would have said is missing in the view."""

    server: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of the items of a list that is cut on the server."""

    items: list[T]
    total: int
    """Of all pages, after filters."""
    page: int
    """From 1."""
    size: int
    failures: list[Failure] = field(default_factory=list)


def page_of(
    items: Sequence[T],
    *,
    page: int,
    size: int,
    failures: Iterable[Failure] = (),
) -> Page[T]:
    """Cut a page out of all items; a page past the end is the last one."""
    size = min(max(size, 1), MAX_PAGE_SIZE)
    last = max(-(-len(items) // size), 1)
    page = min(max(page, 1), last)
    start = (page - 1) * size
    return Page(
        items=list(items[start : start + size]),
        total=len(items),
        page=page,
        size=size,
        failures=list(failures),
    )


def unknown_last(key: Callable[[T], Any], *, descending: bool) -> Callable[[T], tuple[bool, Any]]:
    """A sort key that puts None behind everything else, in both directions.

    Pass it to `sorted` together with `reverse=descending`.
    """

    def sort_key(item: T) -> tuple[bool, Any]:
        value = key(item)
        is_unknown = value is None
        return (is_unknown != descending, 0 if is_unknown else value)

    return sort_key


def reason_of(error: BaseException) -> str:
    """The message of an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def failure_of(server: str, error: BolideError) -> Failure:
    return Failure(server=server, reason=reason_of(error))


def now_ms() -> int:
    """The time as views tell it: milliseconds since 1970."""
    return int(time.time() * 1000)
