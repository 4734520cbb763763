"""Messages to store, and stores whose files are so small that a few messages fill them."""

from pathlib import Path

from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Record, RecordDraft, read_record
from bolide.store.config import FlushMode, StoreConfig

V4 = pack_host(Host("10.0.0.5", 54321))
V6 = pack_host(Host("2001:db8::1", 10911))
STORE_HOST = pack_host(Host("10.0.0.1", 10911))
MONDAY_NOON = 1_700_481_600.0
"""A time far from the hour at which expired files go."""


def draft(
    topic: str = "T",
    body: bytes = b"hello",
    *,
    queue_id: int = 0,
    properties: dict[str, str] | None = None,
    sys_flag: int = 0,
    born_host: bytes = V4,
    store_host: bytes = STORE_HOST,
) -> RecordDraft:
    return RecordDraft(
        topic=topic.encode(),
        body=body,
        properties=encode_properties(properties or {}).encode(),
        queue_id=queue_id,
        born_timestamp=1_700_000_000_000,
        born_host=born_host,
        store_host=store_host,
        sys_flag=sys_flag,
    )


def small_config(
    root: Path,
    *,
    log_size: int = 4096,
    queue_units: int = 8,
    mode: FlushMode = FlushMode.ASYNC,
    **changes: object,
) -> StoreConfig:
    """Deletion waits for nothing, and the test machine's own disk is never too full."""
    values = {
        "root": root,
        "commit_log_file_size": log_size,
        "consume_queue_file_size": 20 * queue_units,
        "max_hash_slots": 7,
        "max_index_entries": 20,
        "flush_mode": mode,
        "delete_log_files_interval": 0.0,
        "delete_queue_files_interval": 0.0,
        "disk_warning_ratio": 1.0,
        "disk_clean_forcibly_ratio": 1.0,
        "disk_max_used_ratio": 1.0,
        **changes,
    }
    return StoreConfig(**values)  # type: ignore[arg-type]  # options are typed by the class


def record_of(data: memoryview | bytes | None) -> Record:
    assert data is not None
    record = read_record(data)
    assert isinstance(record, Record)
    return record


def body_of(data: memoryview | bytes | None) -> bytes:
    return bytes(record_of(data).body)
