"""Texts about failed TLS connections, for the alerts that servers of Java and OpenSSL send."""

import re
import ssl

import pytest

from bolide.remoting.tls import ClientTls, TlsWords
from bolide.remoting.tls_failures import explain, explain_loss, is_wrong_host, names_in


def alert(reason: str) -> ssl.SSLError:
    exc = ssl.SSLError(1, f"[SSL: {reason}]")
    exc.reason = reason
    return exc


def unverified(code: int, text: str = "") -> ssl.SSLCertVerificationError:
    exc = ssl.SSLCertVerificationError(1, "certificate verify failed")
    exc.verify_code, exc.verify_message = code, text
    return exc


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("TLSV1_ALERT_PROTOCOL_VERSION", "no TLS version in common"),
        ("WRONG_VERSION_NUMBER", "may serve plain text only"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", r"no version or cipher in common .* may require"),
        ("TLSV1_ALERT_UNKNOWN_CA", "may not accept the certificate of this client"),
        ("SOMETHING_ELSE", "SOMETHING_ELSE"),
    ],
)
def test_alerts_in_the_handshake_are_explained(reason: str, expected: str) -> None:
    assert re.search(expected, explain(alert(reason), ClientTls(), "mq.example"))


def test_alerts_after_the_handshake_are_explained() -> None:
    given = ClientTls(certificate="c.pem")
    assert "requires a certificate" in explain_loss(
        alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), ClientTls()
    )
    assert "may require a certificate" in explain_loss(None, ClientTls())
    assert "may not accept the certificate" in explain_loss(None, given)


def test_certificates_that_are_not_valid_are_explained() -> None:
    tls = ClientTls(words=TlsWords(trust="--trust FILE", no_verify="--no-verify"))
    assert "compare the clocks" in explain(unverified(9), tls, "h")
    assert "has expired" in explain(unverified(10), tls, "h")
    untrusted = explain(unverified(20, "unable to get local issuer certificate"), tls, "h")
    assert "--trust FILE" in untrusted
    assert "--no-verify" in untrusted
    assert "unable to get local issuer certificate" in untrusted
    assert explain(unverified(26, "unsuitable purpose"), tls, "h").endswith("unsuitable purpose")


def test_a_wrong_host_is_told_from_other_failures() -> None:
    assert is_wrong_host(unverified(62))
    assert is_wrong_host(unverified(64))
    assert not is_wrong_host(unverified(20))
    assert not is_wrong_host(alert("WRONG_VERSION_NUMBER"))
    assert "is for other names and not for h" in explain(unverified(62), ClientTls(), "h")


def test_names_are_the_alternative_ones_or_else_the_common_name() -> None:
    subject = ((("commonName", "mq"),),)
    alternatives = (("DNS", "a.example"), ("IP Address", "10.0.0.1"), ("email", "x@y"))
    assert names_in({"subject": subject, "subjectAltName": alternatives}) == [
        "a.example",
        "10.0.0.1",
    ]
    assert names_in({"subject": subject}) == []  # OpenSSL does not look at it
    text = explain(unverified(62), ClientTls(), "h", [])
    assert "its certificate has no host names (subjectAltName): connect" in text
    assert names_in(None) == []
