"""A store directory with some hundred messages in several files, closed."""

from dataclasses import replace
from pathlib import Path

from bolide.model.message import Host
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import RecordDraft
from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore

HOST = pack_host(Host("10.0.0.1", 10911))
BORN = 1_700_000_000_000
SETTINGS = StoreConfig(
    commit_log_file_size=16 * 1024,
    consume_queue_file_size=20 * 40,
    max_hash_slots=50,
    max_index_entries=400,
)


def draft(number: int, topic: str = "Orders", queue_id: int = 0, body: bytes = b"") -> RecordDraft:
    """A message that tells its number by tags, keys, unique id and body."""
    properties = f"TAGS\1t{number % 3}\2KEYS\1k{number} all\2UNIQ_KEY\1U{number:06d}\2"
    text = body or (f"body {number} " * (number % 9 + 1)).encode()
    return RecordDraft(topic.encode(), text, properties.encode(), queue_id, BORN, HOST, HOST)


def filled(root: Path, count: int = 300, settings: StoreConfig = SETTINGS) -> StoreConfig:
    """Append to two topics of two queues and close; the second call goes on where the first was."""
    config = replace(settings, root=root)
    with MessageStore(config, background=False) as store:
        begin = store.units
        for number in range(begin, begin + count):
            store.append(draft(number, "Orders" if number % 3 else "Bills", number % 2))
    return config


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Turn one bit of a file over."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def log_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def queue_file(root: Path, topic: str = "Orders", queue_id: int = 0) -> Path:
    return min((root / "consumequeue" / topic / str(queue_id)).iterdir())
