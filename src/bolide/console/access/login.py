"""Logging in: with an account of the console, or with a user of the cluster."""

import secrets
from dataclasses import dataclass
from math import ceil
from typing import Final

from bolide.admin import AdminClient
from bolide.console.access.accounts import Account, Accounts
from bolide.console.access.attempts import Attempts
from bolide.errors import BolideError
from bolide.operations.cluster import Identity
from bolide.operations.declaration import Role
from bolide.operations.errors import OperationError
from bolide.protocol.refusals import (
    NoPermission,
    Refusal,
    RequestCodeNotSupported,
    ServerError,
)
from bolide.remoting.errors import RemotingError
from bolide.remoting.tls import ClientTls

MAX_LENGTH: Final = 256
"""Of names and of passwords."""


def is_text(text: str) -> bool:
    """Whether it can be written: JSON and forms may bring half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class LoginFailed(OperationError):
    """Name or password are wrong."""

    def __init__(self) -> None:
        super().__init__("the name or the password is wrong")


class TooManyAttempts(OperationError):
    """Too many log-ins have failed."""

    def __init__(self, seconds: float) -> None:
        self.seconds = ceil(seconds)
        super().__init__(f"too many attempts; try again in {self.seconds} s")


class LoginUnchecked(OperationError):
    """The cluster took the secret, but did not show that it checks secrets at all."""

    def __init__(self) -> None:
        super().__init__("the cluster cannot check the password now; try again in a moment")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedIn:
    """Who has logged in."""

    user: str
    role: Role
    identity: Identity | None = None
    must_change: bool = False


class Login:
    """Checks names and passwords."""

    def __init__(
        self, accounts: Accounts, name_servers: str, *, tls: ClientTls | None = None
    ) -> None:
        self._accounts = accounts
        self._name_servers = name_servers
        self.tls = tls
        self._attempts = Attempts()

    async def check(self, name: str, password: str, address: str) -> LoggedIn:
        """Raises LoginFailed, LoginUnchecked or TooManyAttempts."""
        if not all(is_text(each) and 0 < len(each) <= MAX_LENGTH for each in (name, password)):
            raise LoginFailed
        wait = self._attempts.wait(name, address)
        if wait > 0:
            raise TooManyAttempts(wait)
        self._attempts.failed(name, address)  # until shown otherwise: attempts run side by side
        try:
            found = await self._of_console(name, password) or await self._of_cluster(name, password)
        except LoginUnchecked:
            self._attempts.succeeded(name, address)  # the cluster took the secret
            raise
        if found is None:
            raise LoginFailed
        self._attempts.succeeded(name, address)
        return found

    async def _of_console(self, name: str, password: str) -> LoggedIn | None:
        account: Account | None = await self._accounts.verify(name, password)
        if account is None:
            return None
        return LoggedIn(user=account.name, role=account.role, must_change=account.must_change)

    async def _of_cluster(self, name: str, password: str) -> LoggedIn | None:
        """A user whose signature the cluster checks: a wrong one must be refused there.

        Raises:
            LoginUnchecked: it is not known whether it would be refused.
        """
        identity = Identity(access_key=name, secret_key=password)
        accepted = await self._accepted(identity)
        if accepted is None:
            return None
        if not await self._refuses_others(accepted.address, name):
            return None  # it checks nothing, and any password would do
        return LoggedIn(user=name, role=accepted.role, identity=identity)

    async def _accepted(self, identity: Identity) -> "_Accepted | None":
        """Brokers are asked: their access control guards the messages."""
        try:
            async with self._admin(identity) as admin:
                for broker in (await admin.clusters.info()).broker_addr_table.values():
                    for address in broker.broker_addrs.values():
                        try:
                            role = await _role_at(admin, address, identity)
                        except RemotingError:
                            continue  # the next one
                        return None if role is None else _Accepted(address=address, role=role)
        except BolideError:
            pass
        return None

    async def _refuses_others(self, address: str, name: str) -> bool:
        """Whether the broker that accepted a user refuses the same name with a wrong secret.

        No answer is no refusal: who can disturb the connection must not get in by that.
        """
        wrong = Identity(access_key=name, secret_key=secrets.token_hex(16))
        try:
            async with self._admin(wrong) as admin:
                await _role_at(admin, address, wrong)
        except BolideError as error:
            if _is_refusal_of_signature(error):
                return True
            raise LoginUnchecked from error
        return False

    def _admin(self, identity: Identity) -> AdminClient:
        return AdminClient(
            self._name_servers,
            access_key=identity.access_key,
            secret_key=identity.secret_key,
            tls=self.tls,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    address: str
    role: Role


def _is_refusal_of_signature(error: BolideError) -> bool:
    """ACL 1.0 of RocketMQ has no response code for that, but names its exception."""
    if isinstance(error, ServerError):
        return "AclException" in error.remark
    return isinstance(error, NoPermission)


async def _role_at(admin: AdminClient, address: str, identity: Identity) -> Role | None:
    try:
        answer = await admin.permissions.who_am_i(address)
    except RequestCodeNotSupported:
        return await _role_at_rocketmq(admin, address, identity)
    if answer.access_key != identity.access_key:
        return None
    return Role.ADMIN if answer.is_super else Role.OPERATOR


async def _role_at_rocketmq(admin: AdminClient, address: str, identity: Identity) -> Role:
    """RocketMQ has no request that tells who one is; this one its access control guards."""
    await admin.brokers.config(address)
    try:
        user = await admin.users.find(address, identity.access_key or "")
    except Refusal:  # ACL 1.0 has no such request
        return Role.OPERATOR
    is_super = user is not None and (user.user_type or "").lower() == "super"
    return Role.ADMIN if is_super else Role.OPERATOR
