"""The console's own accounts, in a file that only its user can read."""

import asyncio
import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bolide.errors import ConfigError
from bolide.operations.declaration import Role
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.private_files import SECRET_MODE, create_file, make_directory
from bolide.remoting.tasks import uninterrupted

FIRST_ACCOUNT: Final = "admin"
MIN_PASSWORD: Final = 10
_MAX_PASSWORD: Final = 256
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_N, _R, _P = 2**14, 8, 1


class _Stored(msgspec.Struct, kw_only=True):
    role: str
    password: str
    """salt:hash in hexadecimal, of scrypt."""
    must_change: bool = False
    is_unused: bool = False
    """Nobody has logged in with this password yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account without its password."""

    name: str
    role: Role
    must_change: bool
    """The password was given by somebody else: the first log-in replaces it."""


class Accounts:
    """Reads and changes the accounts; passwords are hashed off the event loop.

    Passwords are hashed first, which takes a while. Then, under the lock, the account is looked at
    and changed, so that what was changed meanwhile stays.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = asyncio.Lock()
        self._accounts = _read(file)
        self._no_account = _hashed(secrets.token_hex())

    async def ensure_first(self, given: str | None) -> str | None:
        """Make the first account.

        Args:
            given: its password, where whoever runs the console sets it.

        Returns:
            A one-time password to print, as long as nobody has logged in; None later.
        """
        first = self._accounts.get(FIRST_ACCOUNT)
        if self._accounts and not (first and first.is_unused):
            return None
        if given is not None:
            check_password(given)
        password = given or secrets.token_urlsafe(12)
        hashed = await asyncio.to_thread(_hashed, password)
        async with self._lock:
            account = _Stored(
                role=Role.ADMIN.label,
                password=hashed,
                must_change=given is None,
                is_unused=True,
            )
            await self._save(self._accounts | {FIRST_ACCOUNT: account})
        return None if given else password

    def list(self) -> list[Account]:
        return [self.find_known(name) for name in sorted(self._accounts)]

    def find_known(self, name: str) -> Account:
        """Raises NotFound."""
        stored = self._stored(name)
        return Account(name=name, role=Role[stored.role.upper()], must_change=stored.must_change)

    async def verify(self, name: str, password: str) -> Account | None:
        """The account, if the password is right; takes as long for names that do not exist."""
        stored = self._accounts.get(name)
        expected = stored.password if stored else self._no_account
        is_right = await asyncio.to_thread(_matches, password[:_MAX_PASSWORD], expected)
        if stored is None or not is_right:
            return None
        async with self._lock:
            now = self._accounts.get(name)
            if now is None or now.password != expected:
                return None  # deleted, or another password, while this one was compared
            if now.is_unused:
                await self._change(name, is_unused=False)
            return self.find_known(name)

    async def create(self, name: str, role: Role) -> str:
        """Add an account; returns its one-time password."""
        if not _NAME.fullmatch(name):
            raise BadInput(
                "name", "1 to 64 letters, digits or . _ @ -, and it begins with a letter or digit"
            )
        password = secrets.token_urlsafe(12)
        hashed = await asyncio.to_thread(_hashed, password)
        async with self._lock:
            if name in self._accounts:
                raise Conflict(f"there is an account {name!r} already")
            new = _Stored(role=role.label, password=hashed, must_change=True)
            await self._save(self._accounts | {name: new})
        return password

    async def set_role(self, name: str, role: Role) -> Role:
        """Returns the role before."""
        async with self._lock:
            before = self.find_known(name).role
            if role is not Role.ADMIN:
                self._refuse_last_admin(name)
            await self._change(name, role=role.label)
        return before

    async def set_password(self, name: str, password: str) -> None:
        """Raises BadInput if the password is too easy to guess."""
        check_password(password, name)
        await self._set_password(name, password, must_change=False)

    async def reset_password(self, name: str) -> str:
        """Replace a forgotten password; returns a one-time password."""
        password = secrets.token_urlsafe(12)
        await self._set_password(name, password, must_change=True)
        return password

    async def delete(self, name: str) -> Role:
        """Returns the role it had."""
        async with self._lock:
            before = self.find_known(name).role
            self._refuse_last_admin(name)
            await self._save({k: v for k, v in self._accounts.items() if k != name})
        return before

    async def _set_password(self, name: str, password: str, *, must_change: bool) -> None:
        self._stored(name)
        hashed = await asyncio.to_thread(_hashed, password)
        async with self._lock:
            await self._change(name, password=hashed, must_change=must_change, is_unused=False)

    def _stored(self, name: str) -> _Stored:
        try:
            return self._accounts[name]
        except KeyError:
            raise NotFound(f"there is no account {name!r}") from None

    def _refuse_last_admin(self, name: str) -> None:
        admins = [each for each, one in self._accounts.items() if one.role == Role.ADMIN.label]
        if admins == [name]:
            raise Conflict(f"{name} is the last account with the role admin")

    async def _change(self, name: str, **values: str | bool) -> None:
        """Change these values and no others; under the lock."""
        changed = msgspec.structs.replace(self._stored(name), **values)
        await self._save(self._accounts | {name: changed})

    async def _save(self, accounts: dict[str, _Stored]) -> None:
        """Use these accounts once they are on the disk; under the lock."""
        await uninterrupted(self._write(accounts))

    async def _write(self, accounts: dict[str, _Stored]) -> None:
        content = msgspec.json.format(msgspec.json.encode(accounts), indent=2)
        await asyncio.to_thread(_replace, self._file, content)
        self._accounts = accounts


def check_password(password: str, name: str = FIRST_ACCOUNT) -> None:
    """Raises BadInput if a password is too short, or is the name."""
    if len(password) < MIN_PASSWORD:
        raise BadInput("password", f"at least {MIN_PASSWORD} characters")
    if len(password) > _MAX_PASSWORD:
        raise BadInput("password", f"at most {_MAX_PASSWORD} characters")
    if password.lower() in {name.lower(), "rocketmq12", "administrator"} or len(set(password)) < 4:
        raise BadInput("password", "too easy to guess")


def _hashed(password: str) -> str:
    salt = os.urandom(16)
    return f"{salt.hex()}:{_scrypt(password, salt).hex()}"


def _matches(password: str, hashed: str) -> bool:
    salt, _, expected = hashed.partition(":")
    return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt)), bytes.fromhex(expected))


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_N, r=_R, p=_P)


def _read(file: Path) -> dict[str, _Stored]:
    try:
        accounts = msgspec.json.decode(file.read_bytes(), type=dict[str, _Stored])
        for stored in accounts.values():
            Role[stored.role.upper()]
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, KeyError) as exc:
        raise ConfigError(f"cannot read the console's accounts in {file}: {exc}") from exc
    return accounts


def _replace(file: Path, content: bytes) -> None:
    make_directory(file.parent)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with create_file(new, SECRET_MODE) as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
