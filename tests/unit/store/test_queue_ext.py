"""Units of consume queue extensions: which addresses are some, and what is broken."""

import struct
from pathlib import Path

import pytest

from bolide.store.message_store import MessageStore
from bolide.store.queue_ext import ExtUnit, QueueExtensions, is_address
from bolide.store.reading import MessageFilter
from tests.support.store import draft, small_config

FIRST = -(2**63)
SIZE = 128


def unit(tags: int, bits: bytes = b"", *, size: int | None = None) -> bytes:
    length = 20 + len(bits) if size is None else size
    return struct.pack(">hqqh", length, tags, 1_700_000_000_000, len(bits)) + bits


def extensions(root: Path, data: bytes, *, file: int = 0, length: int = SIZE) -> QueueExtensions:
    directory = root / "consumequeue_ext" / "T" / "3"
    directory.mkdir(parents=True)
    (directory / f"{file:020d}").write_bytes(data.ljust(length, b"\0"))
    return QueueExtensions(root, SIZE)


@pytest.mark.parametrize(
    ("tags_code", "is_one"),
    [(-(2**63), True), (-(2**31) - 1, True), (-(2**31), False), (0, False), (2**31, False)],
)
def test_only_what_is_lower_than_any_hash_is_an_address(tags_code: int, *, is_one: bool) -> None:
    assert is_address(tags_code) is is_one


def test_a_unit_is_read_at_its_place_in_its_file(tmp_path: Path) -> None:
    found = extensions(tmp_path, unit(1, b"\x01") + unit(-7, b"\xff\x00"), file=SIZE)
    expected = ExtUnit(tags_code=-7, store_timestamp=1_700_000_000_000, bit_map=b"\xff\x00")
    assert found.find("T", 3, FIRST + SIZE + 21) == expected


def test_a_unit_may_have_no_bit_map(tmp_path: Path) -> None:
    found = extensions(tmp_path, unit(5)).find("T", 3, FIRST)
    assert found is not None
    assert (found.tags_code, found.bit_map) == (5, b"")


@pytest.mark.parametrize(
    ("topic", "queue_id", "address"),
    [("U", 3, FIRST), ("T", 4, FIRST), ("T", 3, FIRST + SIZE), ("T", 3, 2598919)],
    ids=["topic", "queue", "file", "no address"],
)
def test_what_is_not_there_is_not_found(
    topic: str, queue_id: int, address: int, tmp_path: Path
) -> None:
    assert extensions(tmp_path, unit(5)).find(topic, queue_id, address) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff",
        unit(1, b"ab", size=21),
        unit(1, b"ab", size=23),
        unit(1, size=19),
        struct.pack(">hqqh", 19, 1, 1, -1),
        unit(1, b"x" * 105),
    ],
    ids=["zeros", "end mark", "short", "long", "tiny", "negative", "into the end mark"],
)
def test_a_broken_unit_is_not_found(data: bytes, tmp_path: Path) -> None:
    assert extensions(tmp_path, data).find("T", 3, FIRST) is None


def test_a_unit_may_reach_to_the_end_mark(tmp_path: Path) -> None:
    found = extensions(tmp_path, unit(1, b"x" * 104)).find("T", 3, FIRST)
    assert found is not None
    assert found.bit_map == b"x" * 104


@pytest.mark.parametrize("length", range(22))
def test_a_file_cut_at_any_byte_of_a_unit_has_none(length: int, tmp_path: Path) -> None:
    assert extensions(tmp_path, unit(1, b"ab")[:length], length=0).find("T", 3, FIRST) is None


@pytest.mark.parametrize(("code", "found"), [(7, 1), (8, 0)])
def test_a_read_filters_by_the_code_in_the_extension(code: int, found: int, tmp_path: Path) -> None:
    config = small_config(tmp_path, queue_ext_file_size=SIZE)
    with MessageStore(config) as store:
        store.append(draft(topic="T", queue_id=3))
    (queue_file,) = (tmp_path / "consumequeue" / "T" / "3").iterdir()
    with queue_file.open("r+b") as file:
        file.seek(12)
        file.write(struct.pack(">q", FIRST))
    extensions(tmp_path, unit(7))
    with MessageStore(config) as store:
        wanted = MessageFilter(code=lambda tags_code: tags_code == code)
        assert len(store.read("T", 3, 0, wanted=wanted).records) == found


def test_where_an_extension_is_missing_all_messages_may_match(tmp_path: Path) -> None:
    found = extensions(tmp_path, b"")
    assert found.through(lambda _code: False, "T", 3)(FIRST)
