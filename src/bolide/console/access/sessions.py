"""Sessions of people who logged in; a session that ends takes all its tabs with it."""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import time

from bolide.operations.cluster import Identity
from bolide.operations.declaration import Role

_SWEEP_EVERY = 5.0
_MAX_SESSIONS = 2_000


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """What the server knows of a browser that has logged in."""

    user: str
    role: Role
    identity: Identity | None
    """The keys of a user of the cluster; None for an account of the console."""
    must_change: bool
    expires: float
    """Seconds since 1970, however active it is."""
    idle_limit: float
    last_used: float = field(default_factory=time)
    is_open: bool = True
    on_end: set[Callable[[], None]] = field(default_factory=set)

    @property
    def is_valid(self) -> bool:
        now = time()
        return self.is_open and now < self.expires and now < self.last_used + self.idle_limit

    @property
    def is_endless(self) -> bool:
        return self.expires == inf

    @property
    def is_of_cluster(self) -> bool:
        return self.identity is not None

    def touch(self) -> None:
        self.last_used = time()


class Sessions:
    """The open sessions by their tokens, of which only hashes are kept."""

    def __init__(self, *, lifetime: float, idle_limit: float) -> None:
        self._lifetime = lifetime
        self._idle_limit = idle_limit
        self._sessions: dict[str, Session] = {}

    def start(
        self,
        user: str,
        role: Role,
        *,
        identity: Identity | None = None,
        must_change: bool = False,
    ) -> tuple[str, Session]:
        """Returns the token for the cookie, and the session."""
        if len(self._sessions) >= _MAX_SESSIONS:
            oldest = min(self._sessions.values(), key=lambda session: session.last_used)
            self.end(oldest)
        token = secrets.token_urlsafe(32)
        session = Session(
            user=user,
            role=role,
            identity=identity,
            must_change=must_change,
            expires=time() + self._lifetime,
            idle_limit=self._idle_limit,
        )
        self._sessions[_key(token)] = session
        return token, session

    def endless(self, user: str, role: Role) -> Session:
        """A session without a token, for a console without log-in."""
        return Session(
            user=user,
            role=role,
            identity=None,
            must_change=False,
            expires=inf,
            idle_limit=inf,
        )

    def find(self, token: str | None) -> Session | None:
        """The valid session of a token."""
        session = self._sessions.get(_key(token)) if token else None
        if session is None or session.is_valid:
            return session
        self.end(session)
        return None

    def end(self, session: Session) -> None:
        """End a session and tell all its tabs; that of a console without log-in goes on."""
        if session.is_endless:
            return
        session.is_open = False
        self._sessions = {key: s for key, s in self._sessions.items() if s is not session}
        for tell in list(session.on_end):
            tell()
        session.on_end.clear()

    def end_all_of(self, user: str, *, but: Session | None = None) -> None:
        """End the sessions of an account: its role or password has changed, or it is gone."""
        for session in list(self._sessions.values()):
            if session.user == user and not session.is_of_cluster and session is not but:
                self.end(session)

    def open(self) -> list[Session]:
        return list(self._sessions.values())

    async def sweep(self) -> None:
        """End sessions as they expire, for ever."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY)
            for session in list(self._sessions.values()):
                if not session.is_valid:
                    self.end(session)


def _key(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
