"""The files of users and policies: `users.json` and `acls.json` in one directory.

A signature is checked with the user's password, so `users.json` has it in clear; only the owner of
the process can read that file. Each file is replaced whole, so that after a crash it is the old or
the new version. They may be edited by hand while the server runs.
"""

import logging
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from bolide import snapshot
from bolide.auth.policies.model import (
    Acl,
    BadPolicy,
    User,
    UserStatus,
    UserType,
    checked_username,
    optional,
)
from bolide.errors import ConfigError
from bolide.private_files import make_directory
from bolide.protocol.bodies import access as wire

log = logging.getLogger(__name__)

USERS, ACLS = "users.json", "acls.json"
USERS_MODE, ACLS_MODE = 0o600, 0o640

Stamp = tuple[tuple[int, int, int] | None, ...]
"""What changes with every version of the files."""


class _Users(msgspec.Struct, rename="camel"):
    users: list[wire.User] = []


class _Acls(msgspec.Struct, rename="camel"):
    acls: list[wire.Acl] = []


S = TypeVar("S", _Users, _Acls)
T = TypeVar("T", User, Acl)


@dataclass(frozen=True, slots=True)
class Contents:
    """All users by name, and the policies of those that have some."""

    users: Mapping[str, User] = field(default_factory=dict)
    acls: Mapping[str, Acl] = field(default_factory=dict)


class PolicyFiles:
    """Reads and writes the two files; all methods block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def load(self) -> Contents:
        """Read both files; a file that does not exist is empty.

        Raises:
            ConfigError: a file cannot be read; names the file, never a password.
        """
        self._protect()
        users = (_user(each) for each in self._read(USERS, _Users()).users)
        acls = (Acl.of(each) for each in self._read(ACLS, _Acls()).acls)
        return Contents(
            users={each.username: each for each in _checked(self.directory / USERS, users)},
            acls={each.username: each for each in _checked(self.directory / ACLS, acls)},
        )

    def save_users(self, users: Iterable[User]) -> None:
        self._write(USERS, _Users([each.to_wire(with_password=True) for each in users]), USERS_MODE)

    def save_acls(self, acls: Iterable[Acl]) -> None:
        texts = [found for each in acls if (found := each.to_wire()) is not None]
        self._write(ACLS, _Acls(texts), ACLS_MODE)

    def stamp(self) -> Stamp:
        """Differs if a file was changed since."""
        return tuple(map(_stamp_of, (self.directory / USERS, self.directory / ACLS)))

    def _read(self, name: str, empty: S) -> S:
        path = self.directory / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=type(empty))
        except FileNotFoundError:
            return empty
        except OSError as exc:
            raise ConfigError(f"cannot read {path}: {exc}") from exc
        except (msgspec.DecodeError, UnicodeError) as exc:
            raise ConfigError(
                f"{path} is damaged ({exc}); mend it, or restore {name}.bak beside it"
            ) from None

    def _write(self, name: str, contents: _Users | _Acls, mode: int) -> None:
        make_directory(self.directory)
        text = msgspec.json.format(msgspec.json.encode(contents), indent=2)
        snapshot.replace(self.directory / name, text + b"\n", mode=mode)

    def _protect(self) -> None:
        """Take the passwords away from others, who may have got them by a copy of the file."""
        for path in (self.directory / USERS, self.directory / f"{USERS}.bak"):
            try:
                mode = stat.S_IMODE(path.stat().st_mode)
                if mode & 0o077:
                    log.warning("%s was readable by others (mode %o), now it is not", path, mode)
                    path.chmod(USERS_MODE)
            except FileNotFoundError:
                continue
            except OSError as exc:
                raise ConfigError(f"cannot protect {path}: {exc}") from exc


def _checked(path: Path, values: Iterable[T]) -> Iterable[T]:
    try:
        yield from values
    except BadPolicy as exc:
        raise ConfigError(f"{path}: {exc}") from exc


def _user(each: wire.User) -> User:
    name = checked_username(each.username)
    if not each.password or not each.password.strip():
        raise BadPolicy(f"user {name!r} has no password")
    return User(
        name,
        each.password,
        optional(UserType, each.user_type) or UserType.NORMAL,
        optional(UserStatus, each.user_status) or UserStatus.ENABLE,
    )


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  called every few seconds
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
