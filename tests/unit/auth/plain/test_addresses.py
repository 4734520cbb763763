"""White-list patterns."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bolide.auth.plain.addresses import matches, parse_pattern, parts_of


def is_matched(pattern: str, host: str) -> bool:
    parts = parts_of(host)
    return parts is not None and matches((parse_pattern(pattern),), parts)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", (), ("10.0.0.1", "::1")),
        ("  ", (), ("10.0.0.1",)),
        ("*", ("10.0.0.1", "::1"), ()),
        ("*.*.*.*", ("10.0.0.1", "::1"), ()),
        ("*:*:*:*:*:*:*:*", ("10.0.0.1", "::1"), ()),
        ("10.0.0.1", ("10.0.0.1", "::ffff:10.0.0.1"), ("10.0.0.10", "10.0.0.2", "::1")),
        ("10.10.103.*", ("10.10.103.0", "10.10.103.255"), ("10.10.104.1", "10.101.103.1")),
        ("192.168.*.*", ("192.168.0.1",), ("192.169.0.1",)),
        ("192.168.0-100.1-10", ("192.168.100.10",), ("192.168.101.1", "192.168.50.200")),
        ("10-12.0.0.1", ("11.0.0.1",), ("13.0.0.1",)),
        ("1.1.1.1,2.2.2.2", ("1.1.1.1", "2.2.2.2"), ("1.1.2.2",)),
        ("1.1.1.1, ::1", ("1.1.1.1", "::1"), ("::2",)),
        ("192.168.1.{7,9}", ("192.168.1.7", "192.168.1.9"), ("192.168.1.8", "192.168.1.79")),
        ("2001:db8::7", ("2001:DB8:0:0::7",), ("2001:db8::8",)),
        ("1050:0:0:0:5:600:300c:{1,2}", ("1050::5:600:300c:2",), ("1050::5:600:300c:3",)),
        ("2::ac5:78:1-200:*", ("2::ac5:78:200:ffff",), ("2::ac5:78:201:0", "2::1:ac5:78:1:1")),
        ("2001:db8:*", ("2001:db8::", "2001:db8:ffff::1"), ("2001:db9::",)),
        ("::1-f", ("::1", "::f"), ("::10", "1::1")),
    ],
)
def test_a_pattern_matches_its_addresses(
    pattern: str, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    assert [is_matched(pattern, host) for host in inside] == [True] * len(inside)
    assert [is_matched(pattern, host) for host in outside] == [False] * len(outside)


IN_JAVA: dict[str, tuple[str, str]] = {
    # Whole addresses and lists of them.
    "2001:db8::7": ("2001:db8::7", "2001:db8::8 ::7"),
    "2001:DB8::A": ("2001:db8::a", "2001:db8::b"),
    "2001:db8::7,10.0.0.1": ("2001:db8::7 10.0.0.1", "2001:db8::8 10.0.0.2"),
    "2001:db8::{1,2}": ("2001:db8::1", "2001:db8::5"),
    # Prefixes.
    "2001:*": ("2001:db8::5 2001:5::", "2002::5 ::1"),
    "2001:db8:*": ("2001:db8::5 2001:db8:5:6::", "2001:db9::5"),
    "2001:db8:1-ff": ("2001:db8:5::5 2001:db8:5:6::", "2001:db8::5 2001:db8:500::"),
    "2001:1-ff": ("2001:5:: 2001:5:6:7:8:9:a:b", "2001:db8::5"),
    "2001:db8:1-ff:*": ("2001:db8:5::5 2001:db8:5:6::", "2001:db8::5 2001:db8:500::"),
    # Ranges in the last parts, also after `::`.
    "2001:db8:0:0:0:0:0:*": ("2001:db8::5", "2001:db8::5:5"),
    "2001:db8:0:0:0:0:0:1-ff": ("2001:db8::5", "2001:db8:: 2001:db8::500"),
    "2001:db8:0:0:0:0:1-ff:*": ("2001:db8::5:0 2001:db8::5:5", "2001:db8::5"),
    "2001:db8::5:*": ("2001:db8::5:0 2001:db8::5:5", "2001:db8::5 2001:db8::5:5:5"),
    "2001:db8::5:1-ff": ("2001:db8::5:5", "2001:db8::5:0"),
    "2001:db8::5:1-ff:*": ("2001:db8::5:5:5", "2001:db8::5:5"),
    # IPv4.
    "192.168.0-100.*": ("192.168.50.200", "192.168.200.1"),
    "192.168.1.0-10": ("192.168.1.7", "192.168.1.11 192.168.2.1"),
    "192.168.1.{7,9}": ("192.168.1.7 192.168.1.9", "192.168.1.8"),
}
"""Addresses that `RemoteAddressStrategyFactory` of RocketMQ 4.9.7 matches, and that it does not."""

NOT_AS_IN_JAVA: dict[str, tuple[str, str]] = {
    "2001:db8::*": ("", "2001:db8:0:5:: 2001:db8::5:5"),
    "2001:db8::1-ff": ("2001:db8::5", "2001:db8:0:5:: 2001:db8:0:5:6:7:8:9"),
    "2001:db8::1-ff:*": ("2001:db8::5:5", "2001:db8:0:5:: 2001:db8:0:5:6:7:8:9"),
    "192.168.0-100.1-10": ("", "192.168.50.200"),
    "192.168.*.1": ("", "192.168.50.5"),
    "192.*.1.1": ("", "192.5.9.9"),
}
"""Addresses that only Bolide matches, and that only RocketMQ 4.9.7 does."""


@pytest.mark.parametrize("pattern", IN_JAVA)
def test_a_pattern_matches_as_in_rocketmq(pattern: str) -> None:
    inside, outside = IN_JAVA[pattern]
    assert all(is_matched(pattern, host) for host in inside.split())
    assert not any(is_matched(pattern, host) for host in outside.split())


@pytest.mark.parametrize("pattern", NOT_AS_IN_JAVA)
def test_a_pattern_that_rocketmq_misreads_means_what_it_says(pattern: str) -> None:
    ours, theirs = NOT_AS_IN_JAVA[pattern]
    assert all(is_matched(pattern, host) for host in ours.split())
    assert not any(is_matched(pattern, host) for host in theirs.split())


@pytest.mark.parametrize(
    "pattern",
    [
        "10.0.0", "10.0.0.256", "10.0.*", "10.0.0.1.*", "10.0.5-3.1", "10.0.0.1-", "10.0.-1.2",
        "10.0.0.1-256", "1*.0.0.0", "host.example.*", "localhost", "{1,2}", "10.0.{1,2}.3",
        "10.0.0.{}", "10.0.0.{1", "10.0.0.1,x", "::1::*", "1:2:3:4:5:6:7:8:*", "1:2-3:4", "g::*",
        "1::12345-2", "10.0.0.{1-5}", "10.0.0.+1-5", "10.0.0.1_0-20",
    ],
)  # fmt: skip
def test_anything_else_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_pattern(pattern)


bytes_ = st.integers(0, 255)
part = st.tuples(bytes_, bytes_).map(sorted)


@given(ranges=st.lists(part, min_size=4, max_size=4), address=st.ip_addresses(v=4))
def test_an_ipv4_range_is_that_of_each_part(ranges: list[list[int]], address: IPv4Address) -> None:
    pattern = ".".join(f"{low}-{high}" for low, high in ranges)
    expected = all(
        low <= value <= high for value, (low, high) in zip(address.packed, ranges, strict=True)
    )
    assert is_matched(pattern, str(address)) == expected
    assert is_matched(pattern, ".".join(str(low) for low, _ in ranges))


@given(address=st.ip_addresses(), other=st.ip_addresses())
def test_an_address_matches_itself_alone(
    address: IPv4Address | IPv6Address, other: IPv4Address | IPv6Address
) -> None:
    assert is_matched(str(address), str(address))
    if parts_of(str(address)) != parts_of(str(other)):
        assert not is_matched(str(address), str(other))


@given(address=st.ip_addresses(v=6), last=st.integers(0, 0xFFFF))
def test_an_ipv6_prefix_matches_all_that_begin_so(address: IPv6Address, last: int) -> None:
    assume(address.ipv4_mapped is None)  # an IPv4 address in disguise
    words = address.exploded.split(":")
    assert is_matched(":".join([*words[:3], "*"]), ":".join([*words[:3], *"abcd", f"{last:x}"]))
    assert is_matched(":".join([*words[:7], "*"]), ":".join([*words[:7], f"{last:x}"]))


@given(st.text(alphabet="0123456789abcdef.:*-,{} ", max_size=40))
def test_no_text_makes_the_parser_fail_otherwise(text: str) -> None:
    try:
        pattern = parse_pattern(text)
    except ValueError:
        return
    assert all(len(ranges) in {4, 8} for ranges in pattern)


def test_what_is_no_address_has_no_parts() -> None:
    assert parts_of("pipe") is None
    assert parts_of("fe80::1%eth0") == (0xFE80, 0, 0, 0, 0, 0, 0, 1)
