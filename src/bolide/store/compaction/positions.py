"""The table of how far each queue has been compacted: `compaction/position-checkpoint`.

JSON as RocketMQ writes it (`CompactionPositionMgr`): {"queueOffsetMap": {"<topic>_<queue id>": n}}
where n is the queue offset of the last message that a compaction took into account. A message
below was compared with all older ones; a lost or old table only makes the next compaction do more.
"""

import logging
import threading
from pathlib import Path

import msgspec

from bolide import snapshot
from bolide.protocol import fastjson
from bolide.store.disk import Disk

log = logging.getLogger(__name__)

NOTHING = -1


class _Table(msgspec.Struct):
    queue_offset_map: dict[str, int] = msgspec.field(name="queueOffsetMap", default_factory=dict)


class Positions:
    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._offsets: dict[str, int] = {}
        self._lock = threading.Lock()  # one thread at a time saves

    def load(self) -> None:
        """Read the table; one that cannot be read counts as empty."""
        for data in snapshot.read(self._path):
            try:
                table = fastjson.decode(data, _Table)
            except fastjson.BadJson as exc:
                log.warning("%s cannot be read: %s", self._path, exc)
            else:
                self._offsets = table.queue_offset_map
                return

    def get(self, topic: str, queue_id: int) -> int:
        return self._offsets.get(f"{topic}_{queue_id}", NOTHING)

    def set(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set and save a position. Raises OSError. Blocks."""
        with self._lock:
            self._offsets[f"{topic}_{queue_id}"] = queue_offset
            self._save()

    def forget(self, topic: str) -> None:
        """Drop the positions of a topic. Raises OSError. Blocks."""
        with self._lock:
            names = [name for name in self._offsets if name.rpartition("_")[0] == topic]
            for name in names:
                del self._offsets[name]
            if names:
                self._save()

    def _save(self) -> None:
        self._disk.replace(self._path, msgspec.json.encode(_Table(self._offsets)))
