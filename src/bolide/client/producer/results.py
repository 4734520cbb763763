"""What a producer is told of a message it sent."""

from enum import IntEnum

import msgspec

from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import ResponseCode


class SendStatus(IntEnum):
    """How safe a stored message is. All of them mean that it is stored."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    """It was not on disk yet when the broker gave up waiting."""

    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    """No replica is near enough to wait for."""

    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    """No replica had it when the broker gave up waiting."""


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is stored. Of a batch: where the first one is, and all ids with commas."""

    status: SendStatus
    message_id: str
    """The id that consumers see."""

    offset_message_id: str
    """The id by which the broker finds it."""

    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str = "DefaultRegion"
    trace_on: bool = True
    recall_handle: str | None = None
    repeats: int = 0
    """How many of the messages the topic had already, by their `dedup_key`."""

    @property
    def message_ids(self) -> list[str]:
        """The ids of the messages of a batch, in their order."""
        return self.message_id.split(",")


class TransactionState(IntEnum):
    """What became of a local transaction."""

    UNKNOWN = 0
    """It cannot be told yet: the broker asks again later."""

    COMMIT = 8
    ROLLBACK = 12


class TransactionResult(SendResult, frozen=True, kw_only=True):
    """Where the half of a message is stored, and how its transaction ended."""

    state: TransactionState
    is_confirmed: bool
    """Whether the broker said that it has ended the transaction so; if not, it will ask."""
