"""Single records by their place in the log."""

import asyncio

from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.queries import Queries


async def record_at(store: Store | Queries, physical_offset: int) -> bytes | None:
    """The whole record that begins there, or None if none does; the disk is read on a thread."""
    try:
        data = store.record_at(physical_offset, may_block=False)
    except NotInMemory:
        data = await asyncio.to_thread(store.record_at, physical_offset)
    return None if data is None else bytes(data)
