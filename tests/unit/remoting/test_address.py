"""Host and port, as RocketMQ writes them."""

import pytest

from bolide.remoting.address import format_address, host_of, split_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        (" name.example:1 ", "name.example", 1),
        ("[::1]:9876", "::1", 9876),
        ("::1:9876", "::1", 9876),
    ],
)
def test_an_address_is_split_into_host_and_port(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("[::1]:5", "::1"),
        ("[fe80::1%eth0]:5", "fe80::1%eth0"),
        ("pipe", "pipe"),
    ],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host


@pytest.mark.parametrize("text", ["", "host", ":80", "host:", "host:port", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        split_address(text)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (("127.0.0.1", 80), "127.0.0.1:80"),
        (("::1", 80, 0, 0), "[::1]:80"),
        ("/run/socket", "/run/socket"),
        (None, "?"),
    ],
)
def test_addresses_are_shown_with_ipv6_in_brackets(address: object, text: str) -> None:
    assert format_address(address) == text
