"""Records of the audit log; Bolide's own, RocketMQ has none."""

from typing import Any

from msgspec import field

from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Long

State = dict[str, Any]
"""JSON values by the name of what has them: settings by key, configurations by topic or group."""


class AuditRecord(Struct, kw_only=True):
    """One request that administered a server, or was denied."""

    time: Long
    """When it was answered, in milliseconds since 1970."""
    server: str
    """The broker or NameServer."""
    user: str | None = None
    """The access key whose signature was verified; with the mark "(not verified)" if the address of
    the peer is on a white list and needs no signature. Of a denied request, the key it claimed."""
    peer: str
    request: str
    target: dict[str, Any] = field(default_factory=dict)
    """What the request named: a topic, a group, keys of settings."""
    code: int
    """The response code; -1 if the connection was lost before the answer."""
    remark: str | None = None
    before: State = field(default_factory=dict)
    """What the request changed, as it was; null for what did not exist."""
    after: State = field(default_factory=dict)
    denied: bool = False
    """Access control refused the request; `user` and `target` are what it claimed."""
    count: int = 1
    """Number of requests; more than one for denied requests that are only counted."""


class AuditEntry(Struct, kw_only=True):
    """A record with its place in the audit log of its broker."""

    offset: Long
    record: AuditRecord


class AuditPage(Struct, kw_only=True):
    """Answer to BOLIDE_READ_AUDIT."""

    entries: list[AuditEntry] = field(default_factory=list)
    next_begin: Long = 0
    """Queue offset of the next page."""
    is_last: bool = True
    """Whether there were no further records when the page was read."""
