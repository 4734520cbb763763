"""Our record codec against bytes written by the Java classes; see the README beside this file."""

import json
from pathlib import Path
from typing import Any

import pytest

from bolide.model.message import Host, Message, StoredMessage
from bolide.protocol.batch import encode_batch, iter_batch
from bolide.protocol.compression import decompress
from bolide.protocol.hosts import pack_host, unpack_host
from bolide.protocol.message_id import OffsetId, UniqueId
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record import (
    Placement,
    Record,
    RecordDraft,
    encode_message,
    encode_record,
    place_record,
    read_record,
)
from bolide.protocol.record_seal import check_seal, seal_record, with_seal_room
from bolide.protocol.tags import java_hash

Case = dict[str, Any]

VERSIONS = ("5.x", "4.9")
MESSAGE_FIELDS = (
    *("topic", "properties", "flag", "queue_id", "queue_offset", "physical_offset", "sys_flag"),
    *("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset"),
    "body_crc",
)


def cases(kind: str, *versions: str) -> list[Any]:
    found = []
    for version in versions or VERSIONS:
        text = (Path(__file__).parent / f"records-{version}.jsonl").read_text()
        found += [
            pytest.param(case, id=f"{version} {case['name'][:40]}")
            for case in map(json.loads, text.splitlines())
            if case["kind"] == kind
        ]
    assert found, kind
    return found


def host(case: list[Any]) -> Host:
    return unpack_host(bytes.fromhex(case[0]) + case[1].to_bytes(4, "big"))


def read(data: bytes) -> Record:
    record = read_record(data, check_crc=True)
    assert isinstance(record, Record)
    return record


def draft(case: Case, properties: bytes) -> RecordDraft:
    return RecordDraft(
        case["topic"].encode(),
        bytes.fromhex(case["body"]),
        properties,
        case["queue_id"],
        case["born_timestamp"],
        pack_host(host(case["born_host"])),
        pack_host(host(case["store_host"])),
        case["flag"],
        case["sys_flag"],
        case["reconsume_times"],
        case["prepared_transaction_offset"],
    )


def placed(case: Case, properties: bytes) -> bytearray:
    record = encode_record(draft(case, properties))
    place = Placement(case["queue_offset"], case["physical_offset"], case["store_timestamp"])
    place_record(record, 0, place)
    return record


@pytest.mark.parametrize("case", cases("record", "5.x"))
def test_we_write_the_record_java_writes(case: Case) -> None:
    assert placed(case, encode_properties(case["properties"]).encode()).hex() == case["hex"]


@pytest.mark.parametrize("case", cases("record", "4.9"))
def test_we_write_the_record_4_9_writes_from_its_property_string(case: Case) -> None:
    properties = encode_properties(case["properties"]).removesuffix("\x02").encode()
    assert placed(case, properties).hex() == case["hex"]


@pytest.mark.parametrize("case", cases("record"))
def test_we_read_what_java_wrote(case: Case) -> None:
    message = read(bytes.fromhex(case["hex"])).message()
    for name in MESSAGE_FIELDS:
        assert getattr(message, name) == case[name], name
    assert message.body == bytes.fromhex(case["body"])
    assert message.born_host == host(case["born_host"])
    assert message.store_host == host(case["store_host"])
    assert message.size == len(case["hex"]) // 2
    assert message.version == (2 if len(message.topic.encode()) > 127 else 1)


@pytest.mark.parametrize("case", cases("record", "5.x"))
def test_a_message_of_5_x_is_written_back_as_it_was(case: Case) -> None:
    message: StoredMessage = read(bytes.fromhex(case["hex"])).message()
    assert encode_message(message).hex() == case["hex"]


@pytest.mark.parametrize("case", [case for case in cases("record") if "plain" in case.values[0]])
def test_bodies_compressed_by_java_inflate(case: Case) -> None:
    record = read(bytes.fromhex(case["hex"]))
    assert decompress(record.body, record.sys_flag).hex() == case["plain"]


@pytest.mark.parametrize("case", cases("sealed", "5.x"))
def test_we_seal_as_java_does(case: Case) -> None:
    record = placed(case, with_seal_room(case["properties"].encode()))
    seal_record(record)
    assert record.hex() == case["hex"]
    check_seal(record)


@pytest.mark.parametrize("case", cases("crc_property", "5.x"))
def test_the_crc_property_has_its_digits_reversed(case: Case) -> None:
    properties = decode_properties(bytes.fromhex(case["hex"]).decode())
    assert int(properties["__CRC32#"][::-1]) == case["crc"]


@pytest.mark.parametrize("case", cases("batch", "5.x"))
def test_we_write_the_batch_java_writes(case: Case) -> None:
    assert encode_batch(batch_messages(case)).hex() == case["hex"]


@pytest.mark.parametrize("case", cases("batch"))
def test_we_read_the_batch_java_wrote(case: Case) -> None:
    items = iter_batch(bytes.fromhex(case["hex"]))
    assert [item.message("T") for item in items] == batch_messages(case)


def batch_messages(case: Case) -> list[Message]:
    return [
        Message.unchecked("T", bytes.fromhex(item["body"]), item["properties"], item["flag"])
        for item in case["messages"]
    ]


@pytest.mark.parametrize("case", cases("properties", "5.x"))
def test_we_write_the_property_string_java_writes(case: Case) -> None:
    assert encode_properties(case["properties"]) == case["text"]


@pytest.mark.parametrize("case", cases("parse"))
def test_we_read_property_strings_as_java_does(case: Case) -> None:
    assert decode_properties(case["text"]) == case["properties"]


@pytest.mark.parametrize("case", cases("offset_id"))
def test_offset_ids_are_the_same(case: Case) -> None:
    identity = OffsetId(Host(case["ip"], case["port"]), case["offset"])
    assert identity.encode() == case["id"]
    assert OffsetId.decode(case["id"]) == identity


@pytest.mark.parametrize("case", cases("unique_id"))
def test_unique_ids_are_taken_apart_as_java_does(case: Case) -> None:
    parts = UniqueId.decode(case["id"])
    assert (parts.ip.hex(), parts.pid) == (case["ip"], case["pid"])
    assert parts.month_ms == case["month_ms"]
    assert parts.encode() == case["id"]


@pytest.mark.parametrize("case", cases("hash"))
def test_string_hashes_are_the_same(case: Case) -> None:
    assert java_hash(case["text"]) == case["hash"]
