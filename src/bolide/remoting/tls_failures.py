"""What a failed TLS connection means, and what to do about it, for the texts of errors."""

import ssl
from collections.abc import Sequence

from bolide.remoting.tls import ClientTls

# Results of OpenSSL's verification (X509_V_ERR_…), for which Python's ssl has no names.
_NOT_YET_VALID = 9
_EXPIRED = 10
_UNTRUSTED = {2, 7, 18, 19, 20, 21, 27}
_WRONG_HOST = {62, 63, 64}

_NO_VERSION = {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW"}
_NOT_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_EOF"}
_CERTIFICATE_WANTED = {"TLSV13_ALERT_CERTIFICATE_REQUIRED"}
_CERTIFICATE_REFUSED = {
    "TLSV1_ALERT_UNKNOWN_CA",
    "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "SSLV3_ALERT_CERTIFICATE_REVOKED",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
}

_PLAIN_ONLY = (
    "the server may serve plain text only: it serves TLS if it has tls.server.certPath, and a"
    " tls.server.mode other than disabled"
)
_NOTHING_COMMON = "no version or cipher in common (tls.protocols, tls.ciphers)"
TLS_ONLY = (
    "the server closed it without an answer; it may serve TLS only (tls.server.mode=enforcing);"
    " for TLS give tls=True, --tls or useTLS=true"
)


def is_wrong_host(exc: Exception) -> bool:
    """Whether the certificate is trusted, but made for other names."""
    return isinstance(exc, ssl.SSLCertVerificationError) and exc.verify_code in _WRONG_HOST


def names_in(certificate: dict[str, object] | None) -> list[str]:
    """The host names and addresses in a certificate, as `ssl.SSLSocket.getpeercert` returns it.

    Its common name is none of them: OpenSSL compares the host with the subjectAltName only.
    """
    alternatives: Sequence[tuple[str, str]] = (certificate or {}).get("subjectAltName", ())  # type: ignore[assignment]
    return [name for kind, name in alternatives if kind in {"DNS", "IP Address"}]


def explain(exc: Exception, tls: ClientTls, host: str, names: Sequence[str] | None = None) -> str:
    """The reason of a failed handshake, and how to change it.

    Args:
        host: the name that was expected in the certificate.
        names: the names in the certificate of a wrong host; None if they are unknown.
    """
    if isinstance(exc, ssl.SSLCertVerificationError):
        return _unverified(exc, tls, tls.server_name or host, names)
    if isinstance(exc, ssl.SSLError) and not isinstance(exc, ssl.SSLEOFError):
        return f"the TLS handshake failed: {_meaning(exc, tls) or exc}"
    return (
        "the server closed the connection in the TLS handshake; there may be"
        f" {_NOTHING_COMMON}, or {_wanted(tls)}, or {_PLAIN_ONLY}"
    )


def explain_loss(exc: Exception | None, tls: ClientTls) -> str:
    """Why a server may have closed a TLS connection without an answer.

    In TLS 1.3 a server refuses a client's certificate after the handshake of the client.
    """
    if isinstance(exc, ssl.SSLError) and (meaning := _meaning(exc, tls)):
        return meaning
    return f"the server closed it without an answer: {_wanted(tls)}"


def _meaning(exc: ssl.SSLError, tls: ClientTls) -> str:
    """What an alert of the server means; empty if it is unknown."""
    reason = exc.reason
    if reason in _NO_VERSION:
        return f"client and server have no TLS version in common ({reason})"
    if reason in _NOT_TLS:
        return f"{reason}; {_PLAIN_ONLY}"
    if reason in _CERTIFICATE_WANTED:
        return f"the server requires a certificate of this client: give {tls.words.certificate}"
    if reason in _CERTIFICATE_REFUSED:
        is_expired = reason == "SSLV3_ALERT_CERTIFICATE_EXPIRED"
        text = "the certificate of this client has expired" if is_expired else _refused()
        return f"{text} ({reason})"
    if reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return f"there is {_NOTHING_COMMON}, or {_wanted(tls)}"
    return ""


def _wanted(tls: ClientTls) -> str:
    if tls.certificate is not None:
        return _refused()
    return f"the server may require a certificate of this client: give {tls.words.certificate}"


def _refused() -> str:
    return (
        "the server may not accept the certificate of this client: its tls.server.trustCertPath"
        " must have the authority that signed it"
    )


def _unverified(
    exc: ssl.SSLCertVerificationError, tls: ClientTls, host: str, names: Sequence[str] | None
) -> str:
    words = tls.words
    if exc.verify_code in _WRONG_HOST:
        shown = f"is for {', '.join(names or ['other names'])} and not for {host}"
        if names == []:
            shown = "has no host names (subjectAltName)"
        return (
            f"its certificate {shown}: connect by a name of the certificate, or give the name to"
            f" expect with {words.server_name}; {words.no_host_check} accepts every certificate"
            " that a trusted authority signed"
        )
    if exc.verify_code == _EXPIRED:
        return (
            "its certificate, or that of its authority, has expired: install a new one on the"
            " server, which needs no restart"
        )
    if exc.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet: compare the clocks of both machines"
    if exc.verify_code in _UNTRUSTED:
        where = tls.trust or "the authorities that this system trusts"
        return (
            f"its certificate is not signed by {where} ({exc.verify_message}): to trust a private"
            f" authority, give its certificate with {words.trust}; {words.no_verify} turns the"
            " check off, which is unsafe: anyone in between can read and change everything"
        )
    return f"its certificate is not valid: {exc.verify_message}"
