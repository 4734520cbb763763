import mmap
import struct
import zlib
from typing import Any

import pytest

from bolide.protocol.record import Blank, Record, RecordDraft, encode_blank
from bolide.protocol.record_errors import (
    BadChecksum,
    BadLengths,
    BadMagic,
    BadRecord,
    RecordTooLarge,
    TruncatedRecord,
)
from bolide.protocol.tags import index_hash, java_hash
from tests.golden.test_record_golden import Case, cases, draft
from tests.unit.kernel.drafts import DRAFT, ENCODED, STORED_AT, V6
from tests.unit.kernel.kernels import Kernel


def write(kernel: Kernel, given: RecordDraft, room: int = 1000, at: int = 0) -> bytes:
    target = bytearray(room)
    size = kernel.write_record(target, at, given, 7, 4096, STORED_AT)
    return bytes(target[at : at + size])


def test_the_record_of_the_specification(kernel: Kernel) -> None:
    assert write(kernel, DRAFT) == ENCODED
    assert kernel.record_size(DRAFT) == len(ENCODED)


@pytest.mark.parametrize("case", cases("record"))
def test_java_writes_the_same_bytes(kernel: Kernel, case: Case) -> None:
    golden = bytes.fromhex(case["hex"])
    properties = bytes(_read(kernel, golden).properties)
    target = bytearray(len(golden))
    place = (case["queue_offset"], case["physical_offset"], case["store_timestamp"])
    assert kernel.write_record(target, 0, draft(case, properties), *place) == len(golden)
    assert target.hex() == golden.hex()


def test_a_record_goes_into_a_mapping_at_its_position(kernel: Kernel) -> None:
    with mmap.mmap(-1, 4096) as mapping, memoryview(mapping) as view:
        assert kernel.write_record(view, 100, DRAFT, 7, 4096, STORED_AT) == len(ENCODED)
        around = bytes(view[:100]) + bytes(view[100 + len(ENCODED) :])
        assert bytes(view[100 : 100 + len(ENCODED)]) == ENCODED
    assert not any(around)


@pytest.mark.parametrize("topic_size", [0, 127, 128, 255, 32767])
def test_a_long_topic_makes_a_record_of_version_2(kernel: Kernel, topic_size: int) -> None:
    given = DRAFT._replace(topic=b"t" * topic_size)
    found = _read(kernel, write(kernel, given, 40_000))
    assert found.topic == "t" * topic_size
    assert found.message().version == (1 if topic_size <= 127 else 2)


def test_the_hosts_say_which_address_bits_are_set(kernel: Kernel) -> None:
    given = DRAFT._replace(born_host=V6, sys_flag=0x20 | 0x1)
    found = _read(kernel, write(kernel, given))
    assert (found.sys_flag, found.born_host, found.store_host) == (0x11, V6, DRAFT.store_host)


def test_the_size_field_is_stored_after_everything_else() -> None:
    """Only the plain-Python version writes through an object that can observe the order."""
    from bolide.kernel import records as reference

    stores: list[slice] = []

    class Watched(bytearray):
        def __setitem__(self, key: Any, value: Any) -> None:
            stores.append(key)
            super().__setitem__(key, value)

    reference.write_record(Watched(1000), 10, DRAFT, 7, 4096, STORED_AT)
    assert stores == [slice(14, 10 + len(ENCODED)), slice(10, 14)]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"body": bytes(101)}, "body"),
        ({"properties": bytes(0x8000)}, "properties"),
        ({"topic": bytes(0x8000)}, "topic"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    kernel: Kernel, change: dict[str, bytes], part: str
) -> None:
    given = DRAFT._replace(**change)  # type: ignore[arg-type]  # the keys vary
    with pytest.raises(RecordTooLarge, match=part):
        kernel.record_size(given, 100)


def test_a_body_at_the_limit_is_taken(kernel: Kernel) -> None:
    assert kernel.record_size(DRAFT._replace(body=bytes(100)), 100) == len(ENCODED) + 95


@pytest.mark.parametrize("field", ["queue_id", "flag", "sys_flag", "reconsume_times"])
@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**64])
def test_a_number_that_does_not_fit_leaves_no_trace(
    kernel: Kernel, field: str, number: int
) -> None:
    given = DRAFT._replace(**{field: number})  # type: ignore[arg-type]  # the keys vary
    target = bytearray(1000)
    with pytest.raises(struct.error):
        kernel.record_size(given)
    with pytest.raises(struct.error):
        kernel.write_record(target, 0, given, 7, 4096, STORED_AT)
    assert not any(target)


@pytest.mark.parametrize("position", [-1, 1, 126, 10_000])
def test_a_record_is_not_written_past_the_end(kernel: Kernel, position: int) -> None:
    target = bytearray(len(ENCODED))
    with pytest.raises(ValueError, match="do not fit"):
        kernel.write_record(target, position, DRAFT, 7, 4096, STORED_AT)
    assert target == bytes(len(ENCODED))


def test_a_body_may_be_any_buffer(kernel: Kernel) -> None:
    view = memoryview(b"..hello..")[2:7]
    assert write(kernel, DRAFT._replace(body=view, properties=bytearray(DRAFT.properties))) == (
        ENCODED
    )


def test_tags_and_keys_of_the_specification(kernel: Kernel) -> None:
    code, hashes = kernel.describe(b"TopicTest", b"TAGS\x01TagA\x02KEYS\x01OrderID188\x02")
    assert (code, hashes) == (2598919, (1231271670, index_hash("TopicTest", "T#TagA")))


def test_the_unique_key_comes_first_and_blank_words_are_left_out(kernel: Kernel) -> None:
    properties = memoryview(b"KEYS\x01 b  a \x02UNIQ_KEY\x01u v\x02")
    expected = tuple(index_hash("T", key) for key in ("u v", "b", "a"))
    assert kernel.describe(b"T", properties) == (0, expected)


def test_of_two_pairs_with_one_name_the_later_counts(kernel: Kernel) -> None:
    properties = b"TAGS\x01a\x02TAGS\x01b\x02TAGS\x01\x02KEYS\x01x\x02KEYS\x01y"
    assert kernel.describe(b"T", properties) == (98, (index_hash("T", "y"), index_hash("T", "T#b")))


def test_text_outside_of_ascii_hashes_as_in_java(kernel: Kernel) -> None:
    code, hashes = kernel.describe("主题".encode(), "TAGS\x01中文\x02KEYS\x01🙂 é\x02".encode())
    assert code == 646394
    assert hashes == tuple(index_hash("主题", key) for key in ("🙂", "é", "T#中文"))


def test_bytes_that_are_not_utf_8_count_as_replaced(kernel: Kernel) -> None:
    code, hashes = kernel.describe(b"T", b"TAGS\x01a\xff\x02KEYS\x01\xe4\xb8 \xc3\x02")
    assert code == java_hash("a�")
    assert hashes == (*(index_hash("T", "�"),) * 2, index_hash("T", "T#a�"))


def test_the_smallest_hash_is_filed_under_0(kernel: Kernel) -> None:
    key = "DWIECHC"
    assert java_hash(f"T#{key}") == -(2**31)  # has no absolute value in Java
    assert kernel.describe(b"T", f"KEYS\x01{key}".encode()) == (0, (0,))


def test_a_record_reads_back_as_it_was_written(kernel: Kernel) -> None:
    found = _read(kernel, b".." + ENCODED + b"..", 2)
    assert (found.topic, found.queue_offset, found.physical_offset) == ("TopicTest", 7, 4096)
    assert (bytes(found.body), bytes(found.properties)) == (b"hello", DRAFT.properties)
    assert found.size == len(ENCODED)


def test_a_blank_record_is_told_apart(kernel: Kernel) -> None:
    assert kernel.read_record(encode_blank(100)) == Blank(100)


@pytest.mark.parametrize("cut", range(len(ENCODED)))
def test_a_record_cut_anywhere_is_truncated(kernel: Kernel, cut: int) -> None:
    with pytest.raises(TruncatedRecord):
        kernel.read_record(ENCODED[:cut])


@pytest.mark.parametrize("size", [0, 7, 39, 71, 87, 90, 125, 127, 2**32 - 1])
def test_a_wrong_size_is_found_out(kernel: Kernel, size: int) -> None:
    with pytest.raises((BadLengths, TruncatedRecord)):
        kernel.read_record(size.to_bytes(4) + ENCODED[4:] + b"\0")


def test_a_changed_body_is_found_out_if_asked(kernel: Kernel) -> None:
    changed = ENCODED.replace(b"hello", b"jello")
    assert bytes(_read(kernel, changed).body) == b"jello"
    with pytest.raises(BadChecksum):
        kernel.read_record(changed, check_crc=True)


@pytest.mark.parametrize("position", [-1, 126, 127])
def test_a_position_outside_reads_no_record(kernel: Kernel, position: int) -> None:
    with pytest.raises((BadRecord, struct.error)):
        kernel.read_record(ENCODED, position)


def test_something_else_is_no_record(kernel: Kernel) -> None:
    with pytest.raises(BadMagic):
        kernel.read_record(bytes(200))


def test_the_checksum_of_the_specification(kernel: Kernel) -> None:
    assert kernel.body_crc(b"hello") == 907060870
    assert kernel.body_crc(memoryview(b"")) == 0


@pytest.mark.parametrize("start", range(3))
def test_checksums_of_every_length_are_those_of_zlib(kernel: Kernel, start: int) -> None:
    data = bytes(n * n % 251 for n in range(700))
    for end in range(start, len(data)):
        part = memoryview(data)[start:end]
        assert kernel.body_crc(part) == zlib.crc32(part) & 0x7FFF_FFFF, end


def test_views_of_a_record_keep_no_other_hold_on_a_mapping(kernel: Kernel) -> None:
    with mmap.mmap(-1, 4096) as mapping, memoryview(mapping) as view:
        kernel.write_record(view, 0, DRAFT, 7, 4096, STORED_AT)
        kernel.read_record(view)
        kernel.scan(view, 0, len(view), 0)
        with pytest.raises(BadRecord):
            kernel.read_record(view, 200)


def _read(kernel: Kernel, data: bytes, position: int = 0) -> Record:
    found = kernel.read_record(data, position)
    assert isinstance(found, Record)
    return found
