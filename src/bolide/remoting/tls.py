"""TLS of servers and clients: modes, contexts, and reload of changed files.

Both sides check by default. A server that asks for client certificates verifies them, and a client
verifies the certificate of a server and the host name in it; RocketMQ's clients accept any server.
"""

import logging
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from bolide.errors import ConfigError
from bolide.remoting.tls_policy import allowed_versions, restrict

log = logging.getLogger(__name__)

TLS_HANDSHAKE = 0x16
"""First byte of a TLS connection. A frame starts with 0 or 1: it is at most 16 MiB long."""
UNCERTIFIED_CLIENTS = (
    "Clients without TLS need no certificate, although tls.server.need.client.auth=require: set"
    " tls.server.mode=enforcing."
)
"""Said of a server that requires certificates and serves plain text as well."""


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
    key_password: str | None = field(default=None, repr=False)
    trust: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    protocols: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        allowed_versions(self.protocols, self.ciphers)
        if self.mode is TlsMode.ENFORCING and self.certificate is None:
            raise ConfigError(
                "tls.server.mode=enforcing needs a certificate: set tls.server.certPath"
            )
        if self.client_auth is not ClientAuth.NONE and self.trust is None:
            raise ConfigError(
                f"tls.server.need.client.auth={self.client_auth} needs the certificates that sign"
                " those of clients: set tls.server.trustCertPath"
            )

    @property
    def is_active(self) -> bool:
        return self.mode is not TlsMode.DISABLED and self.certificate is not None

    def warn(self) -> None:
        """Log, once at the start, that clients without a certificate are served over plain text.

        Permissive mode takes connections without TLS too, which is hardly meant by who requires
        certificates.
        """
        requires = self.is_active and self.client_auth is ClientAuth.REQUIRE
        if requires and self.mode is TlsMode.PERMISSIVE:
            log.warning(UNCERTIFIED_CLIENTS)

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.certificate, self.key, self.trust) if path is not None]

    def context(self) -> ssl.SSLContext:
        """Load the files into a context.

        Raises:
            ConfigError: a file is missing or unreadable; the text names all files.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION  # each one costs a server far more than a client
        restrict(context, self.protocols, self.ciphers)
        with _naming(self.files):
            # An empty password, because None would prompt on the terminal.
            context.load_cert_chain(str(self.certificate), self.key, self.key_password or "")
            if self.trust is not None:
                context.load_verify_locations(self.trust)
        context.verify_mode = {
            ClientAuth.NONE: ssl.CERT_NONE,
            ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
            ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
        }[self.client_auth]
        return context


@dataclass(frozen=True, slots=True)
class TlsWords:
    """How a user writes the settings of `ClientTls`; texts of errors use it."""

    trust: str = "trust='path/to/ca.pem'"
    no_verify: str = "ClientTls(verify=False)"
    no_host_check: str = "ClientTls(check_host=False)"
    server_name: str = "ClientTls(server_name='…')"
    certificate: str = "certificate= and key="


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """TLS settings of a client; without any of them servers are checked with the system's CAs."""

    trust: Path | str | None = None
    """PEM file with the certificates of the authorities that sign those of servers; by default
    the authorities that the system trusts, or those of the file that SSL_CERT_FILE names."""

    certificate: Path | str | None = None
    """PEM file with the certificate chain for servers that ask for one (mutual TLS)."""

    key: Path | str | None = None
    """PEM file with the private key; by default the file of the certificate."""

    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    """Unsafe if False: any server is accepted, so whoever is in between reads and changes all."""

    check_host: bool = True
    """If False, any certificate that a trusted authority signed is accepted, whatever its names;
    for certificates without host names, which RocketMQ's often are."""

    server_name: str | None = None
    """The name that certificates must have, in place of the host that is connected to."""

    protocols: tuple[str, ...] = ()
    """TLSv1.2, TLSv1.3 or both; both by default."""

    ciphers: tuple[str, ...] = ()
    """Names of OpenSSL, or of IANA and Java; by default those of OpenSSL that Python enables."""

    words: TlsWords = field(default=TlsWords(), repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("trust", "certificate", "key"):
            given = getattr(self, name)
            object.__setattr__(self, name, Path(given).expanduser() if given else None)
        allowed_versions(self.protocols, self.ciphers)
        if self.key is not None and self.certificate is None:
            raise ConfigError(f"TLS: the key {self.key} needs its certificate")
        if self.trust is not None and not self.verify:
            raise ConfigError(
                f"TLS: {self.words.trust} has no effect with {self.words.no_verify}: give only one"
            )

    @property
    def files(self) -> list[Path]:
        found = (self.certificate, self.key, self.trust)
        return [Path(path) for path in found if path is not None]

    def context(self) -> ssl.SSLContext:
        """Load the files into a context.

        Raises:
            ConfigError: a file is missing or unreadable; the text names all files.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        restrict(context, self.protocols, self.ciphers)
        context.check_hostname = self.verify and self.check_host
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        with _naming(self.files):
            if self.trust is not None:
                context.load_verify_locations(self.trust)
            elif self.verify:
                context.load_default_certs()
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, self.key_password or "")
        return context


@contextmanager
def _naming(files: Sequence[Path]) -> Iterator[None]:
    """Raises ConfigError, which names the files, for what fails while they are loaded."""
    try:
        yield
    except (OSError, ValueError) as exc:  # OpenSSL's, and a password that is too long
        names = ", ".join(map(str, files))
        hint = ""
        if "PEM lib" in str(exc):
            hint = "; a key is missing in them, or its password is missing or wrong"
        raise ConfigError(f"TLS cannot use {names}: {exc}{hint}") from exc


def client_tls(
    tls: ClientTls | bool | None,
    *,
    trust: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
) -> ClientTls | None:
    """TLS settings from the keyword arguments of a client; None means plain text.

    A file turns TLS on: `trust="ca.pem"` is short for `tls=ClientTls(trust="ca.pem")`.

    Raises:
        ConfigError: files are given although `tls` is False or has its own.
    """
    if not (trust or certificate or key):
        return (ClientTls() if tls else None) if isinstance(tls, bool | None) else tls
    if tls is False:
        raise ConfigError("trust, certificate and key have no effect with tls=False")
    if isinstance(tls, ClientTls):
        raise ConfigError("give trust, certificate and key as arguments of ClientTls")
    return ClientTls(trust=trust, certificate=certificate, key=key)


def pop_client_tls(arguments: dict[str, Any]) -> ClientTls | None:
    """As `client_tls`, of a client's keyword arguments, from which it removes its own."""
    names = ("trust", "certificate", "key")
    return client_tls(
        arguments.pop("tls", None), **{name: arguments.pop(name, None) for name in names}
    )


class _Tls(Protocol):
    """What `ReloadingContext` uses of `ServerTls` and `ClientTls`."""

    @property
    def files(self) -> list[Path]: ...

    def context(self) -> ssl.SSLContext: ...


class ReloadingContext:
    """The TLS context of a server or client, reloaded when one of its files changes.

    Certificate and key are rarely replaced in one step: an unusable change is tried again at every
    check, and until then the old context stays in use.
    """

    def __init__(self, tls: _Tls) -> None:
        self._tls = tls
        self._seen = self._refused = self._stamps()
        self._checking = threading.Lock()  # a client checks for every connection it makes
        self.current = tls.context()

    def check(self) -> bool:
        """Reload the context if a file changed; returns whether it was replaced. Blocks."""
        with self._checking:
            stamps = self._stamps()
            if stamps == self._seen:
                return False
            names = ", ".join(map(str, self._tls.files))
            try:
                self.current = self._tls.context()
            except ConfigError as exc:
                if stamps != self._refused:
                    log.warning("keeping the old certificate: %s", exc)
                    self._refused = stamps
                return False
            self._seen = stamps
            log.info("loaded the changed certificate: %s", names)
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
