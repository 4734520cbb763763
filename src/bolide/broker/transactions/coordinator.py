"""All that a broker does with transactions, put together."""

from bolide.broker.clients import ClientTable
from bolide.broker.config import BrokerConfig
from bolide.broker.offsets import OffsetTable
from bolide.broker.transactions.asking import Asking
from bolide.broker.transactions.checking import Checking, CheckingParts
from bolide.broker.transactions.ending import EndingParts, Endings
from bolide.broker.transactions.half import Half
from bolide.broker.transactions.half_queue import HalfQueue
from bolide.broker.transactions.listing import Listing
from bolide.config import ConfigCell
from bolide.model.message import Host
from bolide.protocol.refusals import InvalidParameter
from bolide.store.config import StoreConfig


class Coordinator:
    """The transactions of one broker; `run` is their task.

    Args:
        last_record: as `HalfQueue` wants it.
    """

    def __init__(  # noqa: PLR0913  it stands between producers, administrators and the store
        self,
        parts: EndingParts,
        *,
        cell: ConfigCell[BrokerConfig],
        store_cell: ConfigCell[StoreConfig],
        offsets: OffsetTable,
        clients: ClientTable,
        host: Host,
        last_record: int = -1,
    ) -> None:
        self.waits = parts.durability.waits
        """Whether what was appended is not safe at once."""
        self.queue = HalfQueue(
            parts.store,
            parts.intake,
            parts.durability,
            offsets,
            store_host=parts.store_host,
            last_record=last_record,
            now=parts.now,
        )
        self.endings = Endings(parts, self.queue)
        asking = Asking(clients, host, cell.value.broker_name)
        self.checking = Checking(
            CheckingParts(
                cell=cell,
                store_cell=store_cell,
                store=parts.store,
                topics=parts.topics,
                now=parts.now,
            ),
            self.queue,
            asking,
        )
        self.listing = Listing(parts.store, self.queue, self.checking, host)

    async def run(self) -> None:
        await self.checking.run()

    def save(self) -> None:
        """Note how far the queues are; at the end, when nothing runs any more. Blocks."""
        self.queue.save()

    async def resume(self, half: Half) -> None:
        """Have the producer of a half that was set aside asked again, unless it is already.

        Raises:
            InvalidParameter: it was not set aside, or the transaction has ended since.
            ServiceNotAvailable: the store takes no messages now.
        """
        await self.queue.loaded()
        newest = await self.queue.find_newest(half)
        if newest is None or not half.is_aside:
            raise InvalidParameter(f"transaction {half.unique_id} is not set aside")
        if not newest.is_aside:
            return
        _, place = self.endings.resume(newest)
        await self.endings.safe(place)
