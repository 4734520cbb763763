import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.model.message import Host
from bolide.protocol.hosts import pack_host, unpack_host


@given(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20))
def test_round_trip(packed: bytes) -> None:
    assert pack_host(unpack_host(packed)) == packed


def test_addresses_and_ports_are_big_endian() -> None:
    assert pack_host(Host("10.0.0.1", 10911)).hex() == "0a00000100002a9f"
    assert unpack_host(bytes(15) + b"\1" + b"\0\0\2\1") == Host("::1", 513)


def test_a_name_is_no_address() -> None:
    with pytest.raises(ValueError, match="broker"):
        pack_host(Host("broker.example", 1))
