"""Who may connect to the replication port."""

import pytest

from bolide.errors import ConfigError
from bolide.replication.peers import PeerPolicy


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_this_machine_is_always_admitted(host: str) -> None:
    assert PeerPolicy().admits(host)


@pytest.mark.parametrize(
    "host", ["10.0.0.5", "0.0.0.0", "169.254.1.1", "fe80::1", "::ffff:10.0.0.5", "", "localhost"]
)
def test_nobody_else_is_admitted_by_default(host: str) -> None:
    assert not PeerPolicy().admits(host)


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        ("10.0.0.5", True),
        ("10.0.0.6", False),
        ("10.1.255.255", True),
        ("10.2.0.0", False),
        ("::ffff:10.0.0.5", True),
        ("fd00::9", True),
        ("fd00::9%eth0", True),
        ("fe00::9", False),
    ],
)
def test_listed_addresses_and_networks_are_admitted(host: str, *, admitted: bool) -> None:
    policy = PeerPolicy.of(["10.0.0.5", " 10.1.0.7/16 ", "fd00::/16"])
    assert policy.admits(host) is admitted


def test_with_mutual_tls_the_certificate_has_decided() -> None:
    assert PeerPolicy.of([], has_mutual_tls=True).admits("10.9.9.9")


@pytest.mark.parametrize("text", ["slave-1", "10.0.0.0/33", "10.0.0", "", "*"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="haAllowedReplicas"):
        PeerPolicy.of([text])
