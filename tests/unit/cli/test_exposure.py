"""What a server says at its start about who can connect."""

from pathlib import Path
from typing import Any

import pytest

from bolide.broker.settings.config import BrokerConfig
from bolide.cli.exposure import describe_encryption, describe_exposure, describe_metrics
from bolide.namesrv.config import NameServerConfig
from bolide.remoting.tls import UNCERTIFIED_CLIENTS, ClientAuth, TlsMode

OPEN = "0.0.0.0"


def described(**settings: Any) -> str:
    return describe_exposure(BrokerConfig(**settings), 10911, "send and read")


def test_a_server_on_loopback_is_for_this_machine_only() -> None:
    assert described() == "Reachable from this machine only."
    assert described(bind_address="::1") == "Reachable from this machine only."
    assert described(bind_address="localhost") == "Reachable from this machine only."


def test_an_unprotected_server_on_the_network_says_that_nothing_protects_it() -> None:
    assert described(bind_address=OPEN) == (
        "Reachable from the network at 0.0.0.0:10911. Access control is off: anybody who reaches it"
        " can send and read; administration is taken from this machine only."
    )
    assert described(bind_address="::").startswith("Reachable from the network at [::]:10911. ")
    assert described(broker_ip1="203.0.113.7") == described(bind_address=OPEN)


def test_remote_administration_is_named() -> None:
    assert described(bind_address=OPEN, allow_remote_admin=True) == (
        "Reachable from the network at 0.0.0.0:10911. Access control is off and allowRemoteAdmin is"
        " on: anybody who reaches it can send and read, and change and delete everything."
    )


def test_access_control_is_named() -> None:
    assert described(authentication_enabled=True, authorization_enabled=True) == (
        "Reachable from the network at 0.0.0.0:10911. Access control is on: requests must be"
        " signed."
    )
    assert described(
        authentication_enabled=True, authorization_enabled=True, bind_address="127.0.0.1"
    ) == ("Reachable from this machine only. Access control is on: requests must be signed.")


def test_users_without_policies_are_named() -> None:
    assert described(authentication_enabled=True).endswith(
        "Requests must be signed, but every user may do everything: authorizationEnabled is false."
    )


def test_required_client_certificates_are_named() -> None:
    text = described(
        bind_address=OPEN, tls_mode=TlsMode.ENFORCING, tls_client_auth=ClientAuth.REQUIRE
    )
    assert "anybody with a client certificate can send and read" in text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "Serving plain text only: no tls.server.certPath is set."),
        ({"tls_mode": TlsMode.DISABLED}, "Serving plain text only: tls.server.mode=disabled."),
        ({"tls_certificate": Path("c")}, "Serving TLS and plain text on one port."),
        (
            {"tls_certificate": Path("c"), "tls_client_auth": ClientAuth.REQUIRE},
            f"Serving TLS and plain text on one port. {UNCERTIFIED_CLIENTS}",
        ),
        ({"tls_certificate": Path("c"), "tls_mode": TlsMode.ENFORCING}, "Serving TLS only."),
        (
            {"use_tls": True, "tls_client_verify": False},
            (
                "Serving plain text only: no tls.server.certPath is set."
                " Its own calls accept any server: tls.client.authServer=false."
            ),
        ),
    ],
)
def test_encryption_is_described(settings: dict[str, Any], text: str) -> None:
    assert describe_encryption(NameServerConfig(**settings)) == text


def test_who_can_read_metrics() -> None:
    own = describe_metrics("127.0.0.1:5557")
    assert own == "Metrics at http://127.0.0.1:5557/metrics, readable from this machine only."
    assert "by anybody who reaches it" in describe_metrics("0.0.0.0:5557")
    assert "by anybody who reaches it" in describe_metrics("[2001:db8::1]:5557")
