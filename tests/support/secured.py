"""Settings of servers and clients that speak TLS only, each with a certificate of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bolide.remoting.tls import ClientAuth, ServerTls, TlsMode
from tests.support.certificates import Authority, Pair


@dataclass(frozen=True)
class Secured:
    """An authority, and the pairs that it signed for servers and clients."""

    authority: Authority
    server: Pair
    client: Pair

    @classmethod
    def by(cls, authority: Authority) -> "Secured":
        return cls(authority, authority.sign("server"), authority.sign("client", names=""))

    @property
    def trust(self) -> Path:
        return self.authority.certificate

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of clients."""
        return {
            "trust": self.trust,
            "certificate": self.client.certificate,
            "key": self.client.key,
        }

    @property
    def flags(self) -> list[str]:
        """Options of `bolide admin` and `bolide bench`."""
        return [
            "--trust", str(self.trust),
            "--client-certificate", str(self.client.certificate),
            "--client-key", str(self.client.key),
        ]  # fmt: skip

    @property
    def settings(self) -> dict[str, Any]:
        """Fields of `BrokerConfig` and `NameServerConfig`."""
        return {
            "tls_mode": TlsMode.ENFORCING,
            "tls_certificate": self.server.certificate,
            "tls_key": self.server.key,
            "tls_trust": self.trust,
            "tls_client_auth": ClientAuth.REQUIRE,
            "use_tls": True,
            "tls_client_trust": self.trust,
            "tls_client_certificate": self.client.certificate,
            "tls_client_key": self.client.key,
        }

    @property
    def properties(self) -> dict[str, str]:
        """The same in a properties file."""
        return {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": str(self.server.certificate),
            "tls.server.keyPath": str(self.server.key),
            "tls.server.trustCertPath": str(self.trust),
            "tls.server.need.client.auth": "require",
            "useTLS": "true",
            "tls.client.trustCertPath": str(self.trust),
            "tls.client.certPath": str(self.client.certificate),
            "tls.client.keyPath": str(self.client.key),
        }

    @property
    def server_tls(self) -> ServerTls:
        return ServerTls(
            mode=TlsMode.ENFORCING,
            certificate=self.server.certificate,
            key=self.server.key,
            trust=self.trust,
            client_auth=ClientAuth.REQUIRE,
        )
