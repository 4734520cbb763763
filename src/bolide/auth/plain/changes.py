"""Changes of accounts and white lists, written to their files (`PlainPermissionManager`).

An edit reads the files as they are now, checks the result, and replaces one file. The new file is
written aside and renamed, so that a crash leaves the old or the new one, and it is readable by its
owner only. Comments at the beginning of the file are kept; others are lost, as with RocketMQ.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bolide.auth.plain.accounts import (
    PERMISSION_TEXTS,
    Account,
    AccountEntry,
    check_keys,
    unknown_permissions,
)
from bolide.auth.plain.documents import AclDocument, write_document
from bolide.auth.plain.files import AclFiles
from bolide.auth.plain.rules import Rules
from bolide.auth.plain.yaml_nodes import BadAclFile
from bolide.errors import BolideError

T = TypeVar("T")

_OWNER_ONLY = 0o600


class AclChangeRefused(BolideError):
    """A change of the rules is invalid or its file cannot be written; nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChange:
    """New values of an account; what is None stays as it is."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    group_perms: tuple[str, ...] | None = None

    def applied_to(self, entry: AccountEntry | None) -> AccountEntry:
        """Raises ValueError: a new account has no secret."""
        if entry is None:
            check_keys(self.access_key, self.secret_key or "")
            entry = AccountEntry(access_key=self.access_key, secret_key=self.secret_key or "")
        return AccountEntry(
            access_key=self.access_key,
            secret_key=self.secret_key or entry.secret_key,
            white_remote_address=_chosen(self.white_remote_address, entry.white_remote_address),
            admin=_chosen(self.admin, entry.admin),
            default_topic_perm=self.default_topic_perm or entry.default_topic_perm,
            default_group_perm=self.default_group_perm or entry.default_group_perm,
            topic_perms=_chosen(self.topic_perms, entry.topic_perms),
            group_perms=_chosen(self.group_perms, entry.group_perms),
        )


class AclChanges:
    """Edits the files; all methods block and raise AclChangeRefused."""

    def __init__(self, files: AclFiles, now: Callable[[], float] = time.time) -> None:
        self._files = files
        self._now = now

    def update_account(self, change: AccountChange) -> None:
        """Create or change an account; a new one is added to the default file."""
        with self._editing() as rules:
            known = rules.accounts.get(change.access_key)
            entry = change.applied_to(None if known is None else known.entry)
            if unknown := unknown_permissions(entry):
                raise ValueError(f"{unknown[0]!r}: must be one of {', '.join(PERMISSION_TEXTS)}")
            account = Account.of(entry)
            path = rules.file_of.get(change.access_key, self._files.places.file)
            self._write(path, lambda document: document.with_account(account))

    def delete_account(self, access_key: str) -> None:
        with self._editing() as rules:
            path = rules.file_of.get(access_key)
            if path is None:
                raise ValueError(f"there is no account with accessKey={access_key}")
            self._write(path, lambda document: document.without(access_key))

    def update_white_addresses(self, addresses: tuple[str, ...], path: Path | None = None) -> None:
        """Replace the global white list of one file, by default of the default file."""
        with self._editing() as rules:
            chosen = path or self._files.places.file
            if path is not None and path not in rules.documents:
                known = ", ".join(map(str, rules.documents)) or "none"
                raise ValueError(f"{path} is not a file of access rules; there are: {known}")
            self._write(chosen, lambda document: document.with_white_addresses(addresses))

    @contextmanager
    def _editing(self) -> Iterator[Rules]:
        """The rules as the files have them now; one process edits at a time."""
        try:
            with _locked(self._files.places.file.parent):
                yield self._files.load()
        except (ValueError, BadAclFile) as exc:
            raise AclChangeRefused(f"nothing is changed: {exc}") from exc
        except OSError as exc:
            place = exc.filename or self._files.places.file
            raise AclChangeRefused(
                f"nothing is changed, {place} cannot be written: {exc.strerror}"
            ) from exc

    def _write(self, path: Path, edit: Callable[[AclDocument], AclDocument]) -> None:
        before, text = self._files.read(path) if path.exists() else (AclDocument(), b"")
        after = edit(before)
        after = replace(after, version=after.version.bumped(int(self._now() * 1000)))
        # A link, as orchestrators make them, stays one.
        _replace(path.resolve(), write_document(after, text))


def _replace(path: Path, data: bytes) -> None:
    """Replace a file by one that only its owner can read."""
    aside = path.with_name(path.name + ".tmp")
    aside.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with open(os.open(aside, flags, _OWNER_ONLY), "wb") as file:  # noqa: PTH123  with a mode
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    with _opened(path.parent) as directory:
        os.fsync(directory)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with _opened(directory) as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)  # released when it is closed
        yield


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    opened = os.open(directory, os.O_RDONLY)
    try:
        yield opened
    finally:
        os.close(opened)


def _chosen(given: T | None, kept: T) -> T:
    return kept if given is None else given
