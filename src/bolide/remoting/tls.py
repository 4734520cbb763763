"""TLS of servers and clients: modes, contexts, and reload of changed files."""

import logging
import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bolide.errors import ConfigError

log = logging.getLogger(__name__)

TLS_HANDSHAKE = 0x16
"""First byte of a TLS connection. A frame starts with 0 or 1: it is at most 16 MiB long."""


class TlsMode(StrEnum):
    """Which clients may connect: plain ones only, both kinds, or TLS only."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether a server requests certificates from clients."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """TLS settings of a server. Without a certificate it serves plain text only."""

    mode: TlsMode = TlsMode.PERMISSIVE
    certificate: Path | None = None
    key: Path | None = None
    key_password: str | None = None
    trust: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE

    def __post_init__(self) -> None:
        if self.mode is TlsMode.ENFORCING and self.certificate is None:
            raise ConfigError(
                "tls.server.mode=enforcing needs a certificate: set tls.server.certPath"
            )
        if self.client_auth is ClientAuth.REQUIRE and self.trust is None:
            raise ConfigError(
                "tls.server.need.client.auth=require needs the certificates that sign those of"
                " clients: set tls.server.trustCertPath"
            )

    @property
    def is_active(self) -> bool:
        return self.mode is not TlsMode.DISABLED and self.certificate is not None

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.certificate, self.key, self.trust) if path is not None]

    def context(self) -> ssl.SSLContext:
        """Load the files into a context.

        Raises:
            ConfigError: a file is missing or unreadable; the text names all files.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # An empty password, because None would prompt on the terminal.
            context.load_cert_chain(str(self.certificate), self.key, self.key_password or "")
            if self.trust is not None:
                context.load_verify_locations(self.trust)
        except (OSError, ssl.SSLError) as exc:
            names = ", ".join(map(str, self.files))
            raise ConfigError(f"TLS cannot use {names}: {exc}") from exc
        context.verify_mode = {
            ClientAuth.NONE: ssl.CERT_NONE,
            ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
            ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
        }[self.client_auth]
        return context


class ReloadingContext:
    """The TLS context of a server, reloaded when one of its files changes.

    Certificate and key are rarely replaced in one step: an unusable change is tried again at every
    check, and until then the old context stays in use.
    """

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._seen = self._refused = self._stamps()
        self.current = tls.context()

    def check(self) -> bool:
        """Reload the context if a file changed; returns whether it was replaced. Blocks."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        try:
            self.current = self._tls.context()
        except ConfigError as exc:
            if stamps != self._refused:
                log.warning("keeping the old certificate: %s", exc)
                self._refused = stamps
            return False
        self._seen = stamps
        log.info("loaded the changed certificate %s", self._tls.certificate)
        return True

    def _stamps(self) -> list[tuple[int, int, int]]:
        stamps = []
        for path in self._tls.files:
            try:
                stat = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """TLS settings of a client. Without `trust` it accepts any certificate, as in RocketMQ."""

    certificate: Path | None = None
    key: Path | None = None
    key_password: str | None = None
    trust: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files into a context.

        Raises:
            ConfigError: a file is missing or unreadable.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # RocketMQ certificates contain no host names: only the signer is verified.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED if self.trust else ssl.CERT_NONE
        try:
            if self.trust is not None:
                context.load_verify_locations(self.trust)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, self.key_password or "")
        except (OSError, ssl.SSLError) as exc:
            raise ConfigError(f"TLS cannot use {self.trust or self.certificate}: {exc}") from exc
        return context
