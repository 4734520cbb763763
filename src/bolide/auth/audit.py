"""The audit of a server: who changed what from where, and what it was before and after.

Every route of a request that administers is wrapped: its describer says what the request is about
and how to read the state of it, which is read before the handler runs and after it is done. The
handlers know nothing of it, and requests of other purposes pay nothing. An answer is sent after its
record is written. Requests that are refused before a handler sees them change nothing: those that
access control denies are recorded, up to a limit, malformed ones are not.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, NamedTuple, Protocol

import msgspec

from bolide import properties
from bolide.auth.access import Identity
from bolide.auth.request_purposes import PURPOSES, Purpose
from bolide.logs import AUDIT_LOGGER
from bolide.protocol.bodies.audit import AuditRecord, State
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.refusals import NoPermission, Refusal
from bolide.protocol.signature import ACCESS_KEY
from bolide.remoting.address import host_of
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Reply, Request, Route

_audit_log = logging.getLogger(AUDIT_LOGGER)

AUDITED = frozenset(code for code, each in PURPOSES.items() if each is Purpose.ADMINISTRATION)
"""The requests that administer."""

MAX_NAMES = 64
"""Maximum number of things whose state a record shows, and of names in a list."""
CONNECTION_LOST = -1

_MAX_TEXT = 512
_SECRET_WORDS = ("secret", "password", "credential")
_HIDDEN = "(secret)"
_CLAIMED_FIELDS = ("topic", "group", "groupName", "consumerGroup", "username", "subject", "name")


class Subject(NamedTuple):
    """What a request is about."""

    target: Mapping[str, object]
    state: Callable[[], State] = dict
    """Reads the state of everything that the request may change; its values are not modified
    afterwards."""
    result: Callable[[Reply], State] | None = None
    """What the answer adds to the state after the change."""
    secrets: frozenset[str] = frozenset()
    """Names in the state whose values must not be shown, such as those of settings; the remark is
    left out with them. Other names are of topics and users, which may be called `secret`; of
    objects, members whose names say so are hidden."""


Describer = Callable[[Request[Any]], Subject | Awaitable[Subject]]


class Trail(Protocol):
    """Where records go."""

    async def write(self, record: AuditRecord) -> None:
        """Write a record; returns when it is as durable as a message. Does not raise."""
        ...

    def write_soon(self, record: AuditRecord) -> None:
        """As `write`, without waiting."""
        ...


class LogTrail:
    """Writes records to the log of the process, one line of JSON each.

    NameServers and controllers have no store. The level of the logger is changed by no request.
    """

    async def write(self, record: AuditRecord) -> None:
        self.write_soon(record)

    def write_soon(self, record: AuditRecord) -> None:
        _audit_log.info("%s", msgspec.json.encode(record).decode())


class Auditor:
    """Records the requests that administer one server; belongs to its event loop.

    Args:
        identify: says who sent a request that was admitted.
        server: the name of the server in the records.
    """

    def __init__(
        self,
        trail: Trail,
        identify: Callable[[Frame, Connection], Identity],
        server: Callable[[], str],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._trail = trail
        self._identify = identify
        self._server = server
        self._now = now
        self.denials = Denials(trail, server, now)

    def take_over(
        self,
        routes: MutableMapping[int, Route],
        describers: Mapping[int, Describer],
        exempt: Mapping[int, str],
    ) -> None:
        """Put the audit in front of the handlers.

        A request without a describer is recorded with the fields of its header.

        Args:
            exempt: requests that change nothing, with the reason.
        """
        for code in AUDITED & routes.keys() - exempt.keys():
            describer = describers.get(code, describe_by_header)
            routes[code] = self._in_front_of(routes[code], describer)

    def _in_front_of(self, route: Route, describer: Describer) -> Route:
        handler = route.call

        async def call(request: Request[Any]) -> Reply:
            identity = self._identify(request.frame, request.connection)
            subject = await _described(describer, request)
            before = subject.state()
            try:
                reply: Reply = await handler(request) if route.is_async else handler(request)
            except asyncio.CancelledError:  # what a handler may not leave half done is done by now
                record = self._record(request, identity, subject, before)
                record.code, record.remark = CONNECTION_LOST, "connection lost before the answer"
                self._trail.write_soon(record)
                raise
            except Exception as exc:
                record = self._record(request, identity, subject, before)
                record.code = exc.code if isinstance(exc, Refusal) else ResponseCode.SYSTEM_ERROR
                record.remark = _remark(exc.remark if isinstance(exc, Refusal) else exc, subject)
                await self._trail.write(record)
                raise
            record = self._record(request, identity, subject, before)
            record.code, record.remark = reply.code, _remark(reply.remark, subject)
            if subject.result is not None:
                record.after |= subject.result(reply)
            await self._trail.write(record)
            return reply

        return route._replace(call=call, is_async=True)

    def _record(
        self, request: Request[Any], identity: Identity, subject: Subject, before: State
    ) -> AuditRecord:
        was, became = changes(before, subject.state(), subject.secrets)
        return AuditRecord(
            time=int(self._now() * 1000),
            server=self._server(),
            user=identity.name,
            peer=identity.peer,
            request=name_of(request.frame.code),
            target={name: _short(value) for name, value in subject.target.items()},
            code=ResponseCode.SUCCESS,
            before=was,
            after=became,
        )


async def _described(describer: Describer, request: Request[Any]) -> Subject:
    try:
        found = describer(request)
        return found if isinstance(found, Subject) else await found
    except (ProtocolError, Refusal):  # the handler will refuse the request
        return Subject({"body": "malformed"})


def describe_by_header(request: Request[Any]) -> Subject:
    """Describe a request by the fields of its header, without secrets."""
    return Subject(target_of(request.header))


def target_of(header: Header) -> dict[str, object]:
    """The fields of a header that are given and no secrets, by their names on the wire."""
    return {
        field.encode_name: value
        for field in msgspec.structs.fields(header)
        if (value := getattr(header, field.name)) not in (None, "") and not is_secret(field.name)
    }


def changed_settings(
    request: Request[Any], texts: Callable[[], Mapping[str, str]], secrets: Collection[str]
) -> Subject:
    """Describe a request whose body has settings.

    Args:
        texts: reads the settings in force.
        secrets: keys whose values are never shown.
    """
    keys = properties.parse(request.body.decode(errors="replace")).keys()

    def state() -> State:
        found = texts()
        return {key: found.get(key) for key in keys}

    hidden = frozenset(key for key in keys if is_secret(key) or key in secrets)
    return Subject({"keys": list(keys)}, state, secrets=hidden)


def is_secret(name: str) -> bool:
    """Whether a field or setting of this name must not be shown."""
    return any(word in name.lower() for word in _SECRET_WORDS)


def changes(
    before: State, after: State, secrets: frozenset[str] = frozenset()
) -> tuple[State, State]:
    """Reduce two states to what differs; of two objects, to the members that differ."""
    was: State = {}
    became: State = {}
    differing = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    for name in differing[:MAX_NAMES]:
        old, new = before.get(name), after.get(name)
        if name in secrets:
            old, new = old and _HIDDEN, new and _HIDDEN
        elif isinstance(old, dict) and isinstance(new, dict):
            old, new = changes(old, new, _secret_members(old, new))
        else:
            old, new = _without_secrets(old), _without_secrets(new)
        was[name], became[name] = old, new
    if len(differing) > MAX_NAMES:
        became["…"] = f"{len(differing) - MAX_NAMES} more"
    return was, became


def _secret_members(*objects: State) -> frozenset[str]:
    return frozenset(name for each in objects for name in each if is_secret(name))


def _without_secrets(value: object) -> object:
    """An object that was created or deleted, with its secret members hidden."""
    if not isinstance(value, dict):
        return value
    return {name: each and _HIDDEN if is_secret(name) else each for name, each in value.items()}


def name_of(code: int) -> str:
    """The name of a request code; its number if it has none."""
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def _short(value: object) -> object:
    """Limit a value that a peer chose."""
    if isinstance(value, bool | int | None):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        shown = [_short(each) for each in sorted(value)[:MAX_NAMES]]
        return shown if len(value) <= MAX_NAMES else [*shown, f"… {len(value)} in all"]
    text = str(value).encode(errors="replace").decode()  # a peer may send half a surrogate pair
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"


def _remark(remark: object, subject: Subject) -> str | None:
    if remark is None or subject.secrets:  # a remark may quote a value
        return None
    return str(_short(str(remark)))


class Denials:
    """Records denied requests: some of each minute one by one, the others as one number.

    Whoever is denied can send as many requests as the network carries, so the records of them
    must be limited, or they would fill the disk.
    """

    WINDOW = 60.0
    LIMIT = 30

    def __init__(self, trail: Trail, server: Callable[[], str], now: Callable[[], float]) -> None:
        self._trail = trail
        self._server = server
        self._now = now
        self._recorded = 0
        self._counted = 0
        self._peers: set[str] = set()
        self._window: asyncio.TimerHandle | None = None

    def add(self, request: Frame, peer: str, refused: NoPermission) -> None:
        """Record a denied request if it administers."""
        if request.code not in AUDITED:
            return
        if self._window is None:
            loop = asyncio.get_running_loop()
            self._window = loop.call_later(self.WINDOW, self.end_window)
        if self._recorded < self.LIMIT:
            self._recorded += 1
            self._trail.write_soon(self._record(request, peer, refused))
            return
        self._counted += 1
        if len(self._peers) < MAX_NAMES:
            self._peers.add(host_of(peer))

    def end_window(self) -> None:
        """Record the number of requests that were only counted."""
        if self._window is not None:
            self._window.cancel()
            self._window = None
        counted, self._counted, self._recorded = self._counted, 0, 0
        peers, self._peers = self._peers, set()
        if counted:
            self._trail.write_soon(
                AuditRecord(
                    time=int(self._now() * 1000),
                    server=self._server(),
                    peer=", ".join(sorted(peers)),
                    request="(several)",
                    code=ResponseCode.NO_PERMISSION,
                    remark=f"{counted} more requests were denied within {self.WINDOW:.0f} s",
                    denied=True,
                    count=counted,
                )
            )

    def _record(self, request: Frame, peer: str, refused: NoPermission) -> AuditRecord:
        fields = request.fields or {}
        claimed = fields.get(ACCESS_KEY)
        return AuditRecord(
            time=int(self._now() * 1000),
            server=self._server(),
            user=None if claimed is None else str(_short(claimed)),
            peer=peer,
            request=name_of(request.code),
            target={name: _short(fields[name]) for name in _CLAIMED_FIELDS if name in fields},
            code=refused.code,
            remark=str(_short(refused.remark or "")),
            denied=True,
        )
