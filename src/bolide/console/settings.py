"""Settings of the console."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bolide.operations.cluster import Identity
from bolide.remoting.tls import ClientTls

DEFAULT_PORT: Final = 9877


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """What `bolide console` is started with."""

    name_servers: str
    """host:port;host:port."""
    data: Path
    """Directory of accounts, history and audit log."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    identity: Identity = field(default_factory=Identity)
    """Signs the requests of those who log in with an account of the console."""
    tls: ClientTls | None = None
    certificate: Path | None = None
    """Serve HTTPS with this certificate."""
    certificate_key: Path | None = None
    login: bool = True
    """Off for tests of one's own; only on loopback, and reached by that address."""
    first_password: str | None = field(default=None, repr=False)
    session_hours: float = 12.0
    idle_minutes: float = 120.0
