import pytest

from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import Placement, Record, encode_record, place_record, read_record
from bolide.protocol.record_errors import BadChecksum
from bolide.protocol.record_seal import SEAL_SIZE, check_seal, seal_record, with_seal_room
from tests.unit.protocol.test_record import DRAFT


def sealed(properties: bytes = b"TAGS\x01TagA\x02") -> bytearray:
    record = encode_record(DRAFT._replace(properties=with_seal_room(properties)))
    place_record(record, 0, Placement(1, 2, 3))
    seal_record(record)
    return record


@pytest.mark.parametrize("properties", [b"", b"TAGS\x01TagA\x02", b"TAGS\x01TagA"])
def test_a_sealed_record_is_sound_and_keeps_its_properties(properties: bytes) -> None:
    record = sealed(properties)
    check_seal(record)
    found = read_record(record)
    assert isinstance(found, Record)
    read = found.decode_properties()
    assert len(read.pop("__CRC32#")) == 10
    assert read == decode_properties(properties.decode())


def test_a_record_among_others_is_sealed_where_it_lies() -> None:
    alone = sealed()
    unsealed = alone[:-SEAL_SIZE] + with_seal_room(b"")
    buffer = bytearray(b"before") + unsealed + b"after"
    seal_record(memoryview(buffer), 6)
    assert buffer == b"before" + alone + b"after"
    check_seal(buffer, 6)


def test_a_change_of_any_byte_is_found() -> None:
    record = sealed()
    for at in range(4, len(record)):  # the size is judged by read_record
        record[at] ^= 1
        with pytest.raises(BadChecksum):
            check_seal(record)
        record[at] ^= 1
    check_seal(record)


def test_a_record_without_seal_is_refused() -> None:
    with pytest.raises(BadChecksum, match="no property __CRC32#"):
        check_seal(encode_record(DRAFT))
