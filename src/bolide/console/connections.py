"""`Connections`: how the console reaches the cluster, and the switches for that.

TLS and the VIP channel are chosen at the start; an admin may switch them for all users. The choice
is kept in the console's directory, until the console is started with another choice of TLS.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from bolide.console.access.login import Login
from bolide.console.settings import ConsoleSettings
from bolide.errors import ConfigError
from bolide.operations.cluster import Cluster
from bolide.operations.servers.connection import ConnectionChoice
from bolide.private_files import SECRET_MODE, create_file
from bolide.remoting.tls import ClientTls

log = logging.getLogger(__name__)

_FILE = "connection.json"


class _Kept(msgspec.Struct, kw_only=True):
    """The file."""

    started_with_tls: bool
    use_tls: bool
    vip_channel: bool


class Connections:
    """The choice of this console, and who has to follow it."""

    def __init__(
        self, settings: ConsoleSettings, clusters: Callable[[], Iterable[Cluster]], login: Login
    ) -> None:
        self._started_with_tls = settings.tls is not None
        self._settings = settings.tls or ClientTls()
        self._clusters = clusters
        self._login = login
        self._file = settings.data / _FILE
        self._switching = asyncio.Lock()
        self._choice = ConnectionChoice(use_tls=self._started_with_tls, vip_channel=False)

    @property
    def choice(self) -> ConnectionChoice:
        return self._choice

    @property
    def tls(self) -> ClientTls:
        return self._settings

    @property
    def tls_now(self) -> ClientTls | None:
        """The settings that are in use; None for plain text."""
        return self._settings if self._choice.use_tls else None

    async def restore(self) -> None:
        """Follow the choice that was kept, if there is one."""
        kept = await asyncio.to_thread(_read, self._file)
        if kept is not None and kept.started_with_tls == self._started_with_tls:
            self._follow(ConnectionChoice(use_tls=kept.use_tls, vip_channel=kept.vip_channel))

    async def switch(self, choice: ConnectionChoice) -> None:
        """Have all users' connections follow a choice, and keep it.

        Raises:
            ConfigError: a TLS file cannot be used, or the choice cannot be kept; nothing is
                changed.
        """
        async with self._switching:
            kept = _Kept(
                started_with_tls=self._started_with_tls,
                use_tls=choice.use_tls,
                vip_channel=choice.vip_channel,
            )
            if choice.use_tls:
                await asyncio.to_thread(self._settings.context)
            await asyncio.to_thread(_write, self._file, kept)
            self._follow(choice)

    def _follow(self, choice: ConnectionChoice) -> None:
        is_same = choice.use_tls == self._choice.use_tls
        self._choice = choice
        self._login.tls = self.tls_now
        for cluster in self._clusters():
            cluster.vip_channel = choice.vip_channel
            cluster.tls = self.tls_now
            if not is_same:
                cluster.admin.use_tls(self.tls_now)
                cluster.forget()


def _read(file: Path) -> _Kept | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as exc:
        log.warning("%s is not used: %s", file, exc)
        return None


def _write(file: Path, kept: _Kept) -> None:
    new = file.with_name(f"{file.name}.new")
    try:
        new.unlink(missing_ok=True)
        with create_file(new, SECRET_MODE) as opened:
            opened.write(msgspec.json.encode(kept))
        new.replace(file)
    except OSError as exc:
        raise ConfigError(f"cannot keep the choice in {file}: {exc.strerror}") from exc
