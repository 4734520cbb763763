"""Single messages by physical offset."""

from pathlib import Path

from bolide.broker.background import message_at
from bolide.store.errors import NotInMemory
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop
from tests.support.store import draft, small_config


class Cold(MessageStore):
    """A store with all records on disk only."""

    def record_at(self, physical_offset: int, *, may_block: bool = True) -> memoryview | None:
        if not may_block:
            raise NotInMemory(self.config.value.root, physical_offset)
        return super().record_at(physical_offset)


@on_loop
async def test_a_message_is_found_in_memory_and_on_the_disk(tmp_path: Path) -> None:
    for kind in (MessageStore, Cold):
        with kind(small_config(tmp_path / kind.__name__)) as store:
            place = store.append(draft("T")).physical_offset
            found = await message_at(store, place)
            assert found == bytes(store.record_at(place) or b"")
            assert await message_at(store, place + 1) is None
