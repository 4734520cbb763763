"""A search of messages as it is in the URL, and the parameters that it stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, tzinfo
from enum import StrEnum
from time import time
from typing import Any, Self
from urllib.parse import quote, urlencode

from bolide.operations.messages.views import Order

RANGES = {"15m": 900, "1h": 3600, "6h": 21_600, "1d": 86_400, "7d": 604_800}
"""Seconds of the ranges that end now."""
CUSTOM = "custom"


class By(StrEnum):
    """What messages are found by."""

    TIME = "time"
    KEY = "key"
    ID = "id"
    QUEUE = "queue"
    TAIL = "tail"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuery:
    """The fields of the search form; all of them text, as in the URL."""

    topic: str = ""
    by: str = By.TIME
    range: str = ""
    """One of RANGES, CUSTOM, or nothing for all times."""
    begin: str = ""
    """Milliseconds since 1970, if the range is CUSTOM."""
    end: str = ""
    order: str = Order.NEWEST
    queue: str = ""
    """broker/number."""
    offset: str = ""
    id: str = ""
    tags: str = ""
    key: str = ""
    prop: str = ""
    """name=value; name=value"""
    text: str = ""
    path: str = ""
    sql: str = ""
    cursor: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        known = {each.name for each in fields(cls)}
        found = cls(**{name: value for name, value in query.items() if name in known})
        if found.id and "by" not in query:
            found = replace(found, by=By.ID)
        if found.by not in set(By):
            found = replace(found, by=By.TIME)
        return found if found.order in set(Order) else replace(found, order=Order.NEWEST)

    def to_url(self) -> dict[str, str]:
        """The fields that are not as at first."""
        blank = type(self)()
        pairs = {each.name: getattr(self, each.name) for each in fields(self)}
        return {n: v for n, v in pairs.items() if v != getattr(blank, n)}

    @property
    def path_of_page(self) -> str:
        return f"/messages?{urlencode(self.to_url())}" if self.to_url() else "/messages"

    @property
    def filters(self) -> dict[str, Any]:
        """The filters on single messages."""
        properties = [each.strip() for each in self.prop.split(";") if each.strip()]
        pairs: dict[str, Any] = {
            "tags": self.tags,
            "key": self.key,
            "properties": properties,
            "text": self.text,
            "json_path": self.path,
            "sql": self.sql,
        }
        return {name: value for name, value in pairs.items() if value}

    @property
    def times(self) -> dict[str, int]:
        if self.range in RANGES:
            return {"begin_ms": int((time() - RANGES[self.range]) * 1000)}
        if self.range != CUSTOM:
            return {}
        pairs = {"begin_ms": self.begin, "end_ms": self.end}
        return {name: int(text) for name, text in pairs.items() if text.isdecimal()}

    @property
    def place(self) -> dict[str, Any]:
        """The queue and the offset to begin at."""
        broker, _, number = self.queue.rpartition("/")
        if not broker or not number.isdecimal():
            return {}
        place: dict[str, Any] = {"broker": broker, "queue_id": int(number)}
        if self.offset.isdecimal():
            place["offset"] = int(self.offset)
        return place

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters of `search_messages`."""
        found = {"topic": self.topic, "order": Order(self.order), **self.filters}
        found |= self.place if self.by == By.QUEUE else self.times
        if self.cursor:
            found["cursor"] = self.cursor
        return found

    @property
    def api_call(self) -> str:
        """The same search in the HTTP API."""
        base = f"/api/v1/messages/{quote(self.topic, safe='')}"
        if self.by == By.ID:
            return f"{base}/by-id?{urlencode({'message_id': self.id})}"
        if self.by == By.KEY:
            return f"{base}/by-key?{urlencode(self.key_arguments(), doseq=True)}"
        if self.by == By.TAIL:
            return f"{base}/tail?{urlencode(self.filters, doseq=True)}"
        arguments = self.arguments
        del arguments["topic"]
        return f"{base}?{urlencode(arguments, doseq=True)}"

    def key_arguments(self) -> dict[str, Any]:
        """The parameters of `find_by_key`, without the topic."""
        known = {"tags", "key", "text", "json_path"}
        found: dict[str, Any] = {n: v for n, v in self.filters.items() if n in known} | self.times
        return {"key": self.key, **found} | ({"cursor": self.cursor} if self.cursor else {})


def local_text(milliseconds: str, zone: tzinfo) -> str:
    """A time as an input of the type datetime-local has it."""
    if not milliseconds.isdecimal():
        return ""
    try:
        at = datetime.fromtimestamp(int(milliseconds) / 1000, zone)
    except (OverflowError, ValueError, OSError):
        return ""
    return at.strftime("%Y-%m-%dT%H:%M:%S")


def milliseconds_text(local: str | None, zone: tzinfo) -> str:
    """The opposite of `local_text`; nothing for what is no time."""
    try:
        at = datetime.fromisoformat((local or "").strip()).replace(tzinfo=zone)
    except ValueError:
        return ""
    return str(int(at.timestamp() * 1000))
