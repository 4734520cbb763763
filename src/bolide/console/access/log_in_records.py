"""Who logged in, who failed to, and who logged out: in the log and in the audit log.

Anybody can fail to log in, as often as he likes. So failures are counted together: one line of the
log in a minute, and so many entries of the audit log in an hour that they do not push out the
changes in it.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import monotonic

from bolide.console.access.login import LoginUnchecked, TooManyAttempts
from bolide.console.access.sessions import Session
from bolide.errors import BolideError
from bolide.logs import ThrottledLog, one_line
from bolide.operations.declaration import Role
from bolide.operations.door import AuditEntry, AuditLog, Caller
from bolide.operations.views import reason_of

log = logging.getLogger(__name__)

MAX_FAILURES = 30
"""Failed log-ins in the audit log per hour; the next entry after that tells how many are left out.
"""
_HOUR = 3600.0
_MAX_NAME = 64
_MAX_PROGRAMS = 1000


class LogInRecords:
    """Writes them down; an audit log that cannot be written keeps nobody out."""

    def __init__(self, audit: AuditLog, clock: Callable[[], float] = monotonic) -> None:
        self._audit = audit
        self._clock = clock
        self._warnings = ThrottledLog(log, now=clock)
        self._window_began = clock()
        self._written = 0
        self._left_out = 0
        self._programs: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def logged_in(self, session: Session, source: str) -> None:
        await self._write("log_in", session.user, session.role, source)

    async def program_logged_in(self, session: Session, source: str) -> None:
        """A program logs in every minute: once in an hour is written."""
        key, now = (session.user, source), self._clock()
        if now - self._programs.get(key, -_HOUR) < _HOUR:
            return
        self._programs[key] = now
        self._programs.move_to_end(key)
        if len(self._programs) > _MAX_PROGRAMS:
            self._programs.popitem(last=False)
        await self.logged_in(session, source)

    async def logged_out(self, session: Session, source: str) -> None:
        await self._write("log_out", session.user, session.role, source)

    async def failed(self, name: str, source: str, error: BolideError) -> None:
        """`name` is what somebody claims to be."""
        shown, reason = _shown(name), reason_of(error)
        text = "a log-in as %s failed, from %s: %s"
        if isinstance(error, (TooManyAttempts, LoginUnchecked)):
            text = "a log-in as %s was not tried or not decided, from %s: %s"
        self._warnings.warning(type(error).__name__, text, shown, one_line(source), reason)
        now = self._clock()
        if now - self._window_began >= _HOUR:
            self._window_began, self._written = now, 0
        if self._written >= MAX_FAILURES:
            self._left_out += 1
            return
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        arguments = {"left_out_before": left_out} if left_out else {}
        await self._write("log_in", shown, Role.VIEWER, source, reason, arguments)

    async def _write(
        self,
        action: str,
        name: str,
        role: Role,
        source: str,
        error: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        entry = AuditEntry(
            caller=Caller(name=name, role=role, source=source),
            operation=f"session.{action}",
            target=f"user {name}",
            arguments=arguments or {},
            error=error,
        )
        try:
            await self._audit.write(entry)
        except BolideError as failure:
            log.error("%s", failure)  # noqa: TRY400  one line


def _shown(name: str) -> str:
    """A name as anybody may have sent it: long, with line ends, with half a character."""
    return one_line(name[:_MAX_NAME].encode(errors="replace").decode())
