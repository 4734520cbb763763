"""`Console`: what the pages and the HTTP API work with, from start to stop."""

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from time import time
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from bolide.admin import AdminClient
from bolide.console.access.accounts import Accounts
from bolide.console.access.log_in_records import LogInRecords
from bolide.console.access.login import LoggedIn, Login
from bolide.console.access.sessions import Session, Sessions
from bolide.console.connections import Connections
from bolide.console.settings import ConsoleSettings
from bolide.errors import BolideError
from bolide.operations.audit_store import AuditStore
from bolide.operations.cluster import Cluster, Identity
from bolide.operations.declaration import Operation
from bolide.operations.door import Caller, Door
from bolide.operations.errors import Conflict, OperationError
from bolide.operations.history import History
from bolide.operations.jobs import JOBS
from bolide.operations.servers.connection import own_connections
from bolide.operations.servers.drains import end_drains
from bolide.operations.servers.members import watch_members
from bolide.private_files import make_directory

P = ParamSpec("P")
T = TypeVar("T")

_KEEP_PASSWORD = 60.0


class SessionEnded(OperationError):
    """The session has expired, or its user has logged out."""

    def __init__(self) -> None:
        super().__init__("the session has ended; log in again")


class PasswordToChange(OperationError):
    """The password is a one-time password."""

    def __init__(self) -> None:
        super().__init__("choose a password of your own first")


class Console:
    """The state behind all pages: accounts, sessions, audit log, and connections by identity."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.accounts = Accounts(settings.data / "accounts.json")
        self.sessions = Sessions(
            lifetime=settings.session_hours * 3600, idle_limit=settings.idle_minutes * 60
        )
        self.login = Login(self.accounts, settings.name_servers, tls=settings.tls)
        self._stack = AsyncExitStack()
        self._clusters: dict[Identity, Cluster] = {}
        self._by_password: dict[bytes, Session] = {}
        self._logging_in: dict[bytes, asyncio.Task[Session]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._history: History | None = None
        self.connections = Connections(settings, self._clusters.values, self.login)

    async def __aenter__(self) -> Self:
        make_directory(self.settings.data)
        self.audit = await self._stack.enter_async_context(
            AuditStore(self.settings.data / "audit.sqlite")
        )
        self.door = Door(self.audit)
        self._records = LogInRecords(self.audit)
        await self.connections.restore()
        own_connections(self.connections)
        own = await self._connect(self.settings.identity)
        self._clusters[self.settings.identity] = own
        self._history = await self._stack.enter_async_context(
            History(
                own.admin,
                self.settings.data / "history.sqlite",
                access_key=self.settings.identity.access_key,
            )
        )
        own.history = self._history
        self._tasks.add(asyncio.create_task(self.sessions.sweep(), name="console sessions"))
        self._tasks.add(asyncio.create_task(watch_members(own), name="console members"))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tasks = [*self._tasks, *self._logging_in.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await JOBS.close()
        await end_drains()
        own_connections(None)
        for identity, cluster in self._clusters.items():
            if identity != self.settings.identity:
                await cluster.admin.__aexit__(None, None, None)
        await self._stack.aclose()

    async def cluster_of(self, session: Session) -> Cluster:
        """The cluster as the user of a session sees it."""
        identity = session.identity or self.settings.identity
        if identity not in self._clusters:
            connected = await self._connect(identity)
            if identity in self._clusters:  # another request of the same user was faster
                await connected.admin.__aexit__(None, None, None)
            else:
                self._clusters[identity] = connected
        return self._clusters[identity]

    async def log_in(
        self, name: str, password: str, address: str, *, by: str = "console"
    ) -> tuple[str, Session]:
        """Returns the token for the cookie, and the session.

        Args:
            name: of an account of the console, or of a user of the cluster.
            password: or secret key.
            address: of the client.
            by: console or api, for the audit log.

        Raises:
            LoginFailed: name or password are wrong.
            LoginUnchecked: it cannot be checked now.
            TooManyAttempts: it is not even tried.
        """
        token, session = await self._start(name, password, address, by)
        await self._records.logged_in(session, source_of(session, f"{by} {address}"))
        return token, session

    async def check_password(self, name: str, password: str, address: str, *, by: str) -> LoggedIn:
        """Who somebody is; a failure is written down. Raises what `log_in` does."""
        try:
            return await self.login.check(name, password, address)
        except BolideError as error:
            await self._records.failed(name, f"{by} {address}", error)
            raise

    async def log_out(self, session: Session, source: str) -> None:
        """End a session in all its tabs.

        Raises:
            Conflict: it is that of everybody, for a console without log-in.
        """
        if session.is_endless:
            raise Conflict("this console has no log-in, so nobody can log out")
        self.sessions.end(session)
        await self._records.logged_out(session, source_of(session, source))

    async def session_of_password(self, name: str, password: str, address: str) -> Session:
        """The session of a program that sends name and password with every request.

        It is kept for a minute, so that not every request costs a log-in.
        """
        key = hashlib.sha256(f"{address}\0{name}\0{password}".encode()).digest()
        session = self._by_password.get(key)
        if session is not None and session.is_valid:
            return session
        # Requests side by side share one log-in: each costs a hash, and counts as an attempt.
        task = self._logging_in.get(key)
        if task is None:
            task = asyncio.create_task(self._log_in_program(key, name, password, address))
            self._logging_in[key] = task
            task.add_done_callback(lambda done: self._logged_in(key, done))
        return await asyncio.shield(task)

    async def _log_in_program(self, key: bytes, name: str, password: str, address: str) -> Session:
        _, session = await self._start(name, password, address, "api")
        await self._records.program_logged_in(session, source_of(session, f"api {address}"))
        session.expires = min(session.expires, time() + _KEEP_PASSWORD)
        self._by_password[key] = session
        session.on_end.add(partial(self._forget_password, key))
        return session

    async def _start(self, name: str, password: str, address: str, by: str) -> tuple[str, Session]:
        found = await self.check_password(name, password, address, by=by)
        token, session = self.sessions.start(
            found.user, found.role, identity=found.identity, must_change=found.must_change
        )
        if found.identity is not None:
            session.on_end.add(partial(self._release, found.identity))
        return token, session

    def _logged_in(self, key: bytes, done: asyncio.Task[Session]) -> None:
        del self._logging_in[key]
        if not done.cancelled():
            done.exception()  # whoever asked may be gone

    async def run(
        self,
        session: Session,
        operation: Operation[P, T],
        arguments: Mapping[str, Any],
        *,
        source: str,
        confirmation: str | None = None,
    ) -> T:
        """Run an operation for the user of a session, if the session is still valid.

        Raises:
            SessionEnded: it is not.
            BolideError: see `Door.run`.
        """
        caller = self._caller(session, source)
        cluster = await self.cluster_of(session)
        return await self.door.run(operation, cluster, caller, arguments, confirmation=confirmation)

    async def preview(
        self,
        session: Session,
        operation: Operation[Any, Any],
        arguments: Mapping[str, Any],
        *,
        source: str,
    ) -> tuple[object, str]:
        """See `Door.preview`."""
        caller = self._caller(session, source)
        return await self.door.preview(operation, await self.cluster_of(session), caller, arguments)

    def _caller(self, session: Session, source: str) -> Caller:
        require_valid(session)
        return Caller(name=session.user, role=session.role, source=source_of(session, source))

    async def _connect(self, identity: Identity) -> Cluster:
        admin = AdminClient(
            self.settings.name_servers,
            access_key=identity.access_key,
            secret_key=identity.secret_key,
            tls=self.connections.tls_now,
        )
        await admin.__aenter__()
        if identity == self.settings.identity:
            self._stack.push_async_exit(admin)
        return Cluster(
            admin=admin,
            name_servers=self.settings.name_servers,
            identity=identity,
            tls=self.connections.tls_now,
            vip_channel=self.connections.choice.vip_channel,
            own_audit=self.audit,
            history=self._history,
        )

    def _forget_password(self, key: bytes) -> None:
        self._by_password.pop(key, None)

    def _release(self, identity: Identity) -> None:
        """Close the connections of a user of the cluster who has no session any more."""
        if any(s.identity == identity for s in self.sessions.open()):
            return
        cluster = self._clusters.pop(identity, None)
        if cluster is not None:
            closing = asyncio.ensure_future(cluster.admin.__aexit__(None, None, None))
            self._tasks.add(closing)
            closing.add_done_callback(self._tasks.discard)


def source_of(session: Session, source: str) -> str:
    """Where a change comes from, for the audit log: names of the cluster are no accounts here."""
    return f"{source}, user of the cluster" if session.is_of_cluster else source


def require_valid(session: Session) -> None:
    """Raises SessionEnded or PasswordToChange."""
    if not session.is_valid:
        raise SessionEnded
    if session.must_change:
        raise PasswordToChange
