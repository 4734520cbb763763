"""How a reader or writer of tables reaches its cluster: plain values that travel to workers."""

from dataclasses import dataclass, field

from bolide.client.instance.settings import ClientSettings
from bolide.remoting.tls import ClientTls


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Secrets are left out of its `repr`, so that they reach no log."""

    name_server: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    namespace: str = ""
    tls: ClientTls | None = field(default=None, repr=False)
    call_timeout: float = 3.0

    def settings(self) -> ClientSettings:
        """Raises ConfigError for what cannot be used; names it."""
        return ClientSettings.of(
            name_server=self.name_server,
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
            namespace=self.namespace,
            tls=self.tls,
            call_timeout=self.call_timeout,
        )
