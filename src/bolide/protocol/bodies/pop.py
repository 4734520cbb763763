"""Bodies of POP consumption (5.x)."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import field

from bolide.protocol.bodies.heartbeat import MessageModel
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class RequestMode(StrEnum):
    """Whether a group pulls or pops the messages of a topic."""

    PULL = "PULL"
    POP = "POP"


class AssignmentQuery(Struct, kw_only=True):
    """QUERY_ASSIGNMENT; the strategies are AVG and AVG_BY_CIRCLE."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


class Assignment(Struct, kw_only=True):
    """A queue assigned to a client; queue -1 means all queues of that broker."""

    message_queue: MessageQueue
    mode: RequestMode = RequestMode.PULL
    attachments: dict[str, str] | None = None


class Assignments(Struct, kw_only=True):
    """Answer to QUERY_ASSIGNMENT. Absent: keep the current queues; empty: drop all."""

    message_queue_assignments: list[Assignment] | None = None


class RequestModeSetting(Struct, kw_only=True):
    """SET_MESSAGE_REQUEST_MODE."""

    topic: str
    consumer_group: str
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: Int = 0


class RequestModeTable(Struct, kw_only=True):
    """Answer to GET_ALL_MESSAGE_REQUEST_MODE, by topic and group."""

    message_request_mode_map: dict[str, dict[str, RequestModeSetting]] = field(default_factory=dict)


class BatchAck(Struct, kw_only=True):
    """Acknowledged messages of one pop: a bit set of distances from the start offset."""

    consumer_group: str = field(name="c")
    topic: str = field(name="t")
    retry: str = field(name="r", default="0")
    start_offset: Long = field(name="so")
    queue_id: Int = field(name="q")
    revive_queue_id: Int = field(name="rq")
    pop_time: Long = field(name="pt")
    invisible_time: Long = field(name="it")
    bit_set: bytes = field(name="b", default=b"")

    def offsets(self) -> Iterator[int]:
        """The queue offsets acknowledged, in order."""
        return (self.start_offset + distance for distance in _distances(self.bit_set))


class BatchAcks(Struct, kw_only=True):
    """BATCH_ACK_MESSAGE."""

    broker_name: str | None = None
    acks: list[BatchAck] = field(default_factory=list)


def bit_set(distances: Iterable[int]) -> bytes:
    """The bytes of a Java BitSet: lowest bit first, no zero byte at the end."""
    bits = 0
    for distance in distances:
        bits |= 1 << distance
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _distances(bits: bytes) -> Iterator[int]:
    for at, byte in enumerate(bits):
        for bit in range(8):
            if byte >> bit & 1:
                yield at * 8 + bit
