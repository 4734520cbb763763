"""Results of sends and transactions."""

from enum import IntEnum

import msgspec

from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import ResponseCode


class SendStatus(IntEnum):
    """Durability of a stored message. Every status means that the message is stored."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    """The flush to disk did not finish within the broker's timeout."""

    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    """No replica is sufficiently in sync."""

    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    """No replica confirmed within the broker's timeout."""


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is stored. For a batch: the first message, and all ids joined by commas."""

    status: SendStatus
    message_id: str
    """The unique id, visible to consumers."""

    offset_message_id: str
    """The id that encodes the broker's address and the physical offset."""

    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str = "DefaultRegion"
    trace_on: bool = True
    recall_handle: str | None = None
    repeats: int = 0
    """How many of the messages were duplicates by their `dedup_key`."""

    @property
    def message_ids(self) -> list[str]:
        """The ids of the messages of a batch, in order."""
        return self.message_id.split(",")


class TransactionState(IntEnum):
    """The outcome of a local transaction."""

    UNKNOWN = 0
    """Undecided: the broker checks again later."""

    COMMIT = 8
    ROLLBACK = 12


class TransactionResult(SendResult, frozen=True, kw_only=True):
    """Where the half message is stored, and how its transaction ended."""

    state: TransactionState
    is_confirmed: bool
    """Whether the broker confirmed the end; if not, it checks back."""
