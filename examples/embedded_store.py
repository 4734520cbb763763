"""Store messages in a store directory, without a broker, and read them back.

python examples/embedded_store.py DIRECTORY
"""

import sys
import time
from pathlib import Path

from bolide.errors import BolideError
from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Record, RecordDraft, read_record
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadStatus

HERE = pack_host(Host("127.0.0.1", 10911))


def order(number: int) -> RecordDraft:
    properties = encode_properties({"TAGS": "paid", "KEYS": f"order-{number}"})
    return RecordDraft(
        topic=b"Orders",
        body=f"order number {number}".encode(),
        properties=properties.encode(),
        queue_id=0,
        born_timestamp=int(time.time() * 1000),
        born_host=HERE,
        store_host=HERE,
    )


def body(data: memoryview) -> str:
    record = read_record(data)
    assert isinstance(record, Record)
    return record.message().body.decode()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/embedded_store.py DIRECTORY")
    # Small files for a small store: by default log files have 1 GiB, index files 400 MiB.
    config = StoreConfig(
        root=Path(sys.argv[1]),
        flush_mode=FlushMode.SYNC,
        commit_log_file_size=16 * 1024 * 1024,
        max_hash_slots=10_000,
        max_index_entries=40_000,
    )
    try:
        with MessageStore(config) as store:
            for number in range(3):
                appended = store.append(order(number))
            print("on the disk:", store.wait_flushed(appended))

            offset = store.min_offset("Orders", 0)
            while (found := store.read("Orders", 0, offset)).status is ReadStatus.FOUND:
                for data in found.records:
                    print(body(data))
                offset = found.next_offset

            newest, *_ = store.find("Orders", "order-1")
            print("found by key:", body(newest))
    except BolideError as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
