"""Users and policies in memory, and the rules of their changes (`AuthenticationMetadataManager`).

A change is on disk before it takes effect. Files that were edited by hand take effect within
seconds; if such a file is damaged, the last good version stays in effect.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from bolide.auth.policies.files import Contents, PolicyFiles
from bolide.auth.policies.model import (
    Acl,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
)
from bolide.errors import ConfigError
from bolide.events import Listeners
from bolide.protocol.refusals import NoPermission

log = logging.getLogger(__name__)

V = TypeVar("V")

Guard = Callable[[User], None]
"""Raises a Refusal if a user may not be changed."""

CHECK_INTERVAL = 5.0
"""Seconds between two looks at the files."""


class Metadata:
    """All users and policies of a server; belongs to its event loop once it runs.

    Raises:
        ConfigError: a file cannot be read.
    """

    def __init__(self, files: PolicyFiles) -> None:
        self.on_changed: Listeners[[]] = Listeners()
        self._files = files
        self._stamp = files.stamp()
        self._contents = files.load()
        self._changing = asyncio.Lock()

    @property
    def users(self) -> Mapping[str, User]:
        return self._contents.users

    @property
    def acls(self) -> Mapping[str, Acl]:
        return self._contents.acls

    def add_missing(self, users: list[User], acls: list[Acl] | None = None) -> None:
        """At the start: create users that do not exist, and their policies. Blocks."""
        missing = {each.username: each for each in users if each.username not in self.users}
        if not missing:
            return
        added = {each.username: each for each in acls or [] if each.username in missing}
        try:
            if added:  # first: a user must not be without the policies that deny
                self._files.save_acls((dict(self.acls) | added).values())
            self._files.save_users((dict(self.users) | missing).values())
        except OSError as exc:
            raise ConfigError(f"cannot write {self._files.directory}: {exc}") from exc
        self._contents = Contents(dict(self.users) | missing, dict(self.acls) | added)
        self._stamp = self._files.stamp()
        log.info("created the users %s", ", ".join(missing))

    async def create_user(self, user: User) -> None:
        """Raises NoPermission, as Java does, if the user exists."""
        async with self._changing:
            await self.refresh()
            if user.username in self.users:
                raise NoPermission("The user is existed")
            await self._save(users={**self.users, user.username: user})

    async def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        type: UserType | None = None,  # noqa: A002  RocketMQ's word
        status: UserStatus | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Change what is given.

        Args:
            guard: refuses the change by what the user is at that moment.

        Raises:
            NoPermission: as in Java, there is no such user; or the guard refuses.
        """
        async with self._changing:
            await self.refresh()
            old = self.users.get(username)
            if old is None:
                raise NoPermission("The user is not exist")
            if guard is not None:
                guard(old)
            user = replace(
                old,
                password=password or old.password,
                type=type or old.type,
                status=status or old.status,
            )
            await self._save(users={**self.users, username: user})

    async def delete_user(self, username: str, guard: Guard | None = None) -> None:
        """Delete a user and its policies, if it exists and the guard does not refuse."""
        async with self._changing:
            await self.refresh()
            if guard is not None and username in self.users:
                guard(self.users[username])
            if username in self.acls:
                await self._save(acls=_without(self.acls, username))
            if username in self.users:
                await self._save(users=_without(self.users, username))

    async def update_acl(self, acl: Acl) -> None:
        """Create policies, or replace those about the same resources.

        Raises:
            NoPermission: as Java, if there is no such user.
        """
        async with self._changing:
            await self.refresh()
            if acl.username not in self.users:
                raise NoPermission(f"The subject of {acl.subject} is not exist.")
            old = self.acls.get(acl.username)
            new = acl if old is None else old.updated(acl)
            await self._save(acls={**self.acls, acl.username: new})

    async def delete_acl(
        self, username: str, kind: PolicyType | None = None, resource: Resource | None = None
    ) -> None:
        """Delete the entry about a resource, or all policies of a user if none is given.

        Raises:
            NoPermission: as Java, if there is no such user or it has no policies.
        """
        async with self._changing:
            await self.refresh()
            self.require_user(username)
            old = self.acls.get(username)
            if old is None:
                raise NoPermission("The acl is not exist.")
            left = None if resource is None else old.without(kind or PolicyType.CUSTOM, resource)
            if left is None or not left.policies:
                await self._save(acls=_without(self.acls, username))
            else:
                await self._save(acls={**self.acls, username: left})

    def require_user(self, username: str) -> User:
        """Raises NoPermission, as Java does for policies, if there is no such user."""
        user = self.users.get(username)
        if user is None:
            raise NoPermission("The subject is not exist.")
        return user

    async def follow_files(self) -> None:
        """Have changes made by hand, or by another process, take effect; runs until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            async with self._changing:
                try:
                    await self.refresh()
                except Exception:  # boundary: later changes, which may revoke, must be noticed
                    log.exception("users and policies stay as they were")

    async def refresh(self) -> None:
        """Read files that have changed; the last good version stays if one is damaged."""
        stamp = await asyncio.to_thread(self._files.stamp)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # a damaged file is reported once
        try:
            contents = await asyncio.to_thread(self._files.load)
        except ConfigError as exc:
            log.error("users and policies stay as they were: %s", exc)  # noqa: TRY400  expected
            return
        self._contents = contents
        log.info("read %d users from %s", len(contents.users), self._files.directory)
        self.on_changed()

    async def _save(
        self, *, users: Mapping[str, User] | None = None, acls: Mapping[str, Acl] | None = None
    ) -> None:
        """Write what is given, then have it take effect."""
        if users is not None:
            await asyncio.to_thread(self._files.save_users, users.values())
        if acls is not None:
            await asyncio.to_thread(self._files.save_acls, acls.values())
        old = self._contents
        self._contents = Contents(
            old.users if users is None else users, old.acls if acls is None else acls
        )
        self._stamp = await asyncio.to_thread(self._files.stamp)
        self.on_changed()


def _without(table: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in table.items() if key != name}
