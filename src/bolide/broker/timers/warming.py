"""Reads ahead what is due soon, on a thread, so that its delivery need not wait for the disk."""

from bolide.broker.timers.hand import recalled_by
from bolide.kernel import read_record
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.store.message_store import MessageStore
from bolide.store.timers import Loaded, TimerFiles

_MOST = 5000
"""Messages of one reading; of more than so many most wait for others anyway."""


class Warmer:
    def __init__(self, store: MessageStore, files: TimerFiles) -> None:
        self._store = store
        self._files = files

    def warm(self, loaded: Loaded) -> list[tuple[str, int]]:
        """Bring messages into the page cache; returns what is recalled, with its slot. Blocks."""
        log = self._store.log
        for waiting in loaded.waiting[:_MOST]:
            if not log.is_hot(waiting.physical_offset):
                log.read(waiting.physical_offset, waiting.size)
        recalled = []
        for waiting in loaded.recalls:
            key = self._recalled(waiting.physical_offset)
            if key is not None:
                recalled.append((key, self._files.number(waiting.due)))
        return recalled

    def _recalled(self, place: int) -> str | None:
        data = self._store.record_at(place)
        try:
            record = read_record(data) if data is not None else None
        except BadRecord:
            return None
        return recalled_by(record.decode_properties()) if isinstance(record, Record) else None
