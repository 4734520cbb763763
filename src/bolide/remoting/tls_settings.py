"""TLS settings of a server and of its calls to other servers (`TlsSystemConfig`)."""

from dataclasses import dataclass
from pathlib import Path

from bolide.config import option, read_file, secret_keys
from bolide.errors import ConfigError
from bolide.remoting.tls import ClientAuth, ClientTls, ServerTls, TlsMode, TlsWords

DEFAULT_TLS_FILE = Path("/etc/rocketmq/tls.properties")
_FILE_KEYS = ("tls.server.", "tls.client.", "tls.protocols", "tls.ciphers")
_WORDS = TlsWords(
    trust="tls.client.trustCertPath=/path/to/ca.pem",
    no_verify="tls.client.authServer=false",
    no_host_check="tls.client.checkHost=false",
    server_name="tls.client.serverName",
    certificate="tls.client.certPath and tls.client.keyPath",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS of a server: what it serves, and how it calls other servers."""

    tls_mode: TlsMode = option(
        TlsMode.PERMISSIVE,
        "disabled: plain text only; permissive: TLS and plain text on one port; enforcing: TLS.",
        key="tls.server.mode",
        ours=True,
        fixed=True,
    )
    tls_certificate: Path | None = option(
        None, "Certificate chain, PEM; without it only plain text is served.",
        key="tls.server.certPath", ours=True,
    )  # fmt: skip
    tls_key: Path | None = option(
        None, "Private key, PEM; the default is the certificate's file.",
        key="tls.server.keyPath", ours=True,
    )  # fmt: skip
    tls_key_password: str | None = option(
        None, "Password of the private key.", key="tls.server.keyPassword", ours=True, secret=True
    )
    tls_trust: Path | None = option(
        None, "Certificates of the authorities that sign client certificates, PEM.",
        key="tls.server.trustCertPath", ours=True,
    )  # fmt: skip
    tls_client_auth: ClientAuth = option(
        ClientAuth.NONE, "Whether clients must present a certificate: none, optional or require.",
        key="tls.server.need.client.auth", ours=True, fixed=True,
    )  # fmt: skip
    tls_auth_client: bool | None = option(
        None,
        "true verifies the certificates of clients that present one; false is refused where"
        " tls.server.need.client.auth asks for certificates, which are always verified.",
        key="tls.server.authClient",
        ours=True,
        fixed=True,
    )
    tls_protocols: tuple[str, ...] = option(
        (),
        "TLS versions of this server and of its calls: TLSv1.2,TLSv1.3 or one of the two; both by"
        " default.",
        key="tls.protocols",
        separator=",",
        ours=True,
        fixed=True,
    )
    tls_ciphers: tuple[str, ...] = option(
        (),
        "Ciphers of this server and of its calls, separated by commas, by Java's or OpenSSL's"
        " names; the secure ones of OpenSSL by default.",
        key="tls.ciphers",
        separator=",",
        ours=True,
        fixed=True,
    )
    use_tls: bool = option(
        False, "Call other servers over TLS.", key="useTLS", aliases=("tls.enable",), fixed=True
    )
    tls_client_certificate: Path | None = option(
        None, "Certificate chain presented to other servers, PEM.",
        key="tls.client.certPath", ours=True,
    )  # fmt: skip
    tls_client_key: Path | None = option(
        None, "Private key of tls.client.certPath, PEM.", key="tls.client.keyPath", ours=True
    )
    tls_client_key_password: str | None = option(
        None,
        "Password of tls.client.keyPath.",
        key="tls.client.keyPassword",
        ours=True,
        secret=True,
    )
    tls_client_trust: Path | None = option(
        None,
        "Certificates of the authorities that sign those of other servers, PEM; by default those"
        " that the system trusts.",
        key="tls.client.trustCertPath",
        ours=True,
    )
    tls_client_verify: bool = option(
        True,
        "Verify the certificates of other servers; false accepts any server, which is unsafe.",
        key="tls.client.authServer",
        ours=True,
        fixed=True,
    )
    tls_client_check_host: bool = option(
        True,
        "Whether the certificate of another server must have the host that is connected to.",
        key="tls.client.checkHost",
        ours=True,
        fixed=True,
    )
    tls_client_server_name: str | None = option(
        None,
        "Name that the certificates of other servers must have, in place of their host.",
        key="tls.client.serverName",
        ours=True,
        fixed=True,
    )

    def server_tls(self) -> ServerTls:
        """TLS of the server. Raises ConfigError if the settings contradict each other."""
        return ServerTls(
            mode=self.tls_mode,
            certificate=self.tls_certificate,
            key=self.tls_key,
            key_password=self.tls_key_password,
            trust=self.tls_trust,
            client_auth=self._client_auth(),
            protocols=self.tls_protocols,
            ciphers=self._ciphers,
        )

    def client_tls(self) -> ClientTls | None:
        """TLS of calls to other servers; None means plain text.

        Raises:
            ConfigError: the settings contradict each other.
        """
        if not self.use_tls:
            return None
        return ClientTls(
            certificate=self.tls_client_certificate,
            key=self.tls_client_key,
            key_password=self.tls_client_key_password,
            # RocketMQ's files often name authorities beside authServer=false, which wins there too.
            trust=self.tls_client_trust if self.tls_client_verify else None,
            verify=self.tls_client_verify,
            check_host=self.tls_client_check_host,
            server_name=self.tls_client_server_name,
            protocols=self.tls_protocols,
            ciphers=self._ciphers,
            words=_WORDS,
        )

    @property
    def _ciphers(self) -> tuple[str, ...]:
        """The ciphers; OpenSSL writes such a list with colons."""
        return tuple(name for text in self.tls_ciphers for name in text.split(":") if name)

    def _client_auth(self) -> ClientAuth:
        asked = self.tls_client_auth
        if self.tls_auth_client and asked is ClientAuth.NONE:
            return ClientAuth.OPTIONAL
        if self.tls_auth_client is False and asked is not ClientAuth.NONE:
            raise ConfigError(
                f"tls.server.authClient=false would accept any certificate, although"
                f" tls.server.need.client.auth={asked} asks for one: remove authClient, so that"
                " certificates are verified, or set tls.server.need.client.auth=none"
            )
        return asked


def tls_texts(path: Path) -> dict[str, str]:
    """Read the keys of a tls.properties file (`tls.config.file`) that have an effect here."""
    texts = read_file(path, secret_keys(TlsSettings))
    return {key: text for key, text in texts.items() if key.startswith(_FILE_KEYS)}
