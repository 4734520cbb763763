"""Changes of the console's own accounts: who may make them, and their place in the audit log."""

from bolide.console.access.accounts import Account
from bolide.console.access.login import LoginFailed
from bolide.console.access.sessions import Session
from bolide.console.service import Console, SessionEnded, require_valid
from bolide.operations.declaration import Role
from bolide.operations.door import AuditEntry, Caller
from bolide.operations.errors import Conflict, RoleTooLow


class AccountChanges:
    """What sessions may do with accounts; every change is written to the audit log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._accounts = console.accounts

    def list(self, session: Session) -> list[Account]:
        self._require_admin(session)
        return self._accounts.list()

    async def create(self, session: Session, name: str, role: Role) -> str:
        """Returns the one-time password."""
        self._require_admin(session)
        password = await self._accounts.create(name, role)
        await self._record(session, "create", name, after={"role": role.label})
        return password

    async def set_role(self, session: Session, name: str, role: Role) -> None:
        self._require_admin(session)
        before = await self._accounts.set_role(name, role)
        self._console.sessions.end_all_of(name)
        await self._record(
            session, "set_role", name, before={"role": before.label}, after={"role": role.label}
        )

    async def reset_password(self, session: Session, name: str) -> str:
        """Returns the one-time password."""
        self._require_admin(session)
        password = await self._accounts.reset_password(name)
        self._console.sessions.end_all_of(name)
        await self._record(session, "reset_password", name)
        return password

    async def delete(self, session: Session, name: str) -> None:
        self._require_admin(session)
        before = await self._accounts.delete(name)
        self._console.sessions.end_all_of(name)
        await self._record(session, "delete", name, before={"role": before.label})

    async def change_own_password(
        self, session: Session, current: str, new: str, address: str, *, by: str = "console"
    ) -> None:
        """Replace one's own password; the other sessions of the account end.

        Raises:
            LoginFailed: the current password is wrong.
            TooManyAttempts: it was wrong too often.
            BadInput: the new one is too easy to guess.
        """
        if not session.is_valid:
            raise SessionEnded
        if session.is_of_cluster:
            raise Conflict("the password of a user of the cluster is changed at the cluster")
        found = await self._console.check_password(session.user, current, address, by=by)
        if found.identity is not None:
            raise LoginFailed
        if new == current:
            raise Conflict("the new password is the current one")
        await self._accounts.set_password(session.user, new)
        session.must_change = False
        self._console.sessions.end_all_of(session.user, but=session)
        await self._record(session, "change_own_password", session.user)

    @staticmethod
    def _require_admin(session: Session) -> None:
        require_valid(session)
        if session.role < Role.ADMIN or session.is_of_cluster:
            raise RoleTooLow("accounts", Role.ADMIN.label, session.role.label)

    async def _record(
        self,
        session: Session,
        action: str,
        name: str,
        *,
        before: object = None,
        after: object = None,
    ) -> None:
        await self._console.audit.write(
            AuditEntry(
                caller=Caller(name=session.user, role=session.role, source="console"),
                operation=f"accounts.{action}",
                target=f"account {name}",
                arguments={"name": name},
                before=before,
                after=after,
            )
        )
