"""Queues that a user chose himself: tried for again until all of them are held."""

import asyncio
import logging
from collections.abc import Collection

from bolide.client.consuming.rebalance import Holder
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)

AGAIN = 0.5
"""Seconds until queues that could not be had are tried for again."""


class ChosenQueues:
    """Has exactly the chosen queues held. `run` gets those that `choose` did not get at once."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._chosen: Collection[MessageQueue] = ()
        self._missing = asyncio.Event()
        self._changing = asyncio.Lock()  # each change reads what is held

    async def choose(self, queues: Collection[MessageQueue]) -> None:
        """Hold these and no others; some may come later."""
        async with self._changing:
            self._chosen = queues
            await self._change()

    async def run(self) -> None:
        while True:
            await self._missing.wait()
            await asyncio.sleep(AGAIN)
            async with self._changing:
                try:
                    await self._change()
                except Exception:
                    log.exception("queues could not be got; they are tried for again")

    async def _change(self) -> None:
        self._missing.set()
        complete = True
        for topic in {queue.topic for queue in self._chosen} | set(self._holder.topics()):
            wanted = [queue for queue in self._chosen if queue.topic == topic]
            complete &= await self._holder.change(topic, wanted)
        if complete:
            self._missing.clear()
