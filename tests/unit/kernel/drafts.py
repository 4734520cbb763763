"""Sample drafts, and logs built from them."""

from collections.abc import Iterable

from bolide.kernel import records as reference
from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft

V4 = pack_host(Host("10.0.0.5", 54321))
V6 = pack_host(Host("2001:db8::1", 10911))
DRAFT = RecordDraft(
    topic=b"TopicTest",
    body=b"hello",
    properties=b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02",
    queue_id=3,
    born_timestamp=1700000000000,
    born_host=V4,
    store_host=pack_host(Host("10.0.0.1", 10911)),
)
STORED_AT = 1700000000123
ENCODED = bytes.fromhex(
    "0000007e daa320a7 3610a686 00000003 00000000 0000000000000007 0000000000001000 00000000"
    "0000018bcfe56800 0a0000050000d431 0000018bcfe5687b 0a00000100002a9f 00000000 0000000000000000"
    "00000005 68656c6c6f 09 546f70696354657374 0015 54414753015461674102 4b455953016b31206b3202"
)
"""DRAFT at queue offset 7 and physical offset 4096 (store.md, section 17)."""


def record(
    draft: RecordDraft, queue_offset: int, physical_offset: int, stored_at: int = STORED_AT
) -> bytes:
    target = bytearray(reference.record_size(draft))
    reference.write_record(target, 0, draft, queue_offset, physical_offset, stored_at)
    return bytes(target)


def log_of(drafts: Iterable[tuple[RecordDraft, int]], physical_offset: int = 0) -> bytes:
    """Encode records back to back from drafts and queue offsets, stored one second apart."""
    log = b""
    for number, (draft, queue_offset) in enumerate(drafts):
        place = physical_offset + len(log)
        log += record(draft, queue_offset, place, STORED_AT + number * 1000)
    return log
