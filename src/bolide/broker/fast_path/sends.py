"""Plain sends and transactions taken straight from the bytes received into the log.

What it does not know it leaves to the ordinary way, `handlers`, and so it does with all
that goes wrong: refusals are written in one place. The topics it serves are a table of slots that
is made anew when topics or settings change.
"""

import time
from collections.abc import Sequence

from bolide.broker.hooks import Hooks
from bolide.broker.metadata.topic_attributes import has_window
from bolide.broker.metadata.topics import TopicTable, validate_topic
from bolide.broker.produce.addressing import BrokerProperties, packed_peer
from bolide.broker.produce.durability import Durability, unavailable
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.broker.transactions.half_queue import HalfQueue
from bolide.config import ConfigCell
from bolide.kernel import Slot
from bolide.model.message import Host
from bolide.model.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    WRITE,
    is_dead_letter_topic,
    is_retry_topic,
    is_sendable,
)
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import FrameDecoder, encode_frame
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record import MAX_V1_TOPIC_SIZE
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.connection import Connection
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import StoreUnwritable

_OFFSET_DIGITS = 16


class SendLanes:
    """What the fast path asks first; `kernel.Sends` does the work."""

    def __init__(  # noqa: PLR0913  it stands beside the handlers and needs what they need
        self,
        *,
        cell: ConfigCell[BrokerConfig],
        store_cell: ConfigCell[StoreConfig],
        store: Store,
        topics: TopicTable,
        intake: Intake,
        durability: Durability,
        statistics: Statistics,
        store_host: Host,
        hooks: Hooks,
        halves: HalfQueue,
    ) -> None:
        digits = OffsetId(store_host, 0).encode()[:-_OFFSET_DIGITS]
        self._sends = store.plain_sends(pack_host(store_host), digits)
        self._append = store.append_sends
        self._topics = topics
        self._intake = intake
        self._durability = durability
        self._hooks = hooks
        self._statistics = statistics
        self._halves = halves
        self._cell = cell
        self._store_cell = store_cell
        self._count = 0
        """Messages of this burst."""
        self._seconds = 0.0
        """How long their appends took."""
        self._uncounted = 0.0
        """How long the appends took that the statistics of the queues do not know of."""
        self._log_end = 0
        if self._sends is not None:
            intake.on_end = self._note
            statistics.ask_first(self._tell_queues)
            cell.on_change(lambda _: self._settings_changed())
            store_cell.on_change(lambda _: self._settings_changed())
            topics.on_change(self._fill)
            topics_of_halves = _system_slot(HALF_TOPIC), _system_slot(OP_HALF_TOPIC)
            self._sends.open_transactions(*topics_of_halves, halves.claim)
            self._settings_changed()

    def _settings_changed(self) -> None:
        config = self._cell.value
        self._marks = BrokerProperties.of(config)
        answer = self._marks.answer.to_fields()
        assert self._sends is not None
        self._sends.configure(
            suffix=self._marks.suffix.encode(),
            region=answer["MSG_REGION"],
            trace_on=answer["TRACE_ON"],
            max_body=self._store_cell.value.max_message_size,
            max_batch=config.max_batch_count,
        )
        self._sends.takes_halves = not config.reject_transaction_message
        self._fill()

    def _fill(self) -> None:
        """Note again which topics it may serve."""
        config = self._cell.value
        closed = config.start_accept_send_request_time_stamp > 0
        assert self._sends is not None
        self._sends.slots = {} if closed else {
            slot.topic: slot
            for slot in map(_slot, (each for each in self._topics if _is_plain(each, config)))
        }  # fmt: skip

    def serve(self, data: bytes, position: int, connection: Connection) -> tuple[int, bytes] | None:
        """Take the plain sends and ends of transactions there; where they end, and the answers.

        None: there are none, or they cannot be taken. Answers that must wait for the disk follow.
        """
        if self._sends is None or self._hooks.send:
            return None
        begun = time.monotonic()
        peer = packed_peer(connection.peer)
        try:
            taken = self._append(self._sends, data, position, connection.max_frame_size, peer)
        except Exception:  # noqa: BLE001  the ordinary way meets it too and answers
            self._note_ended(self._sends.take_ended())
            return None
        end, answers, self._log_end, generation, count = taken
        if end == position:
            return None
        if ended := self._sends.take_ended():
            self._note_ended(ended)
            count -= len(ended)  # the op messages that tell of it: nobody sent those
        self._count += count
        seconds = time.monotonic() - begun
        self._seconds += seconds
        self._uncounted += seconds
        if self._intake.ending is None:
            self._intake.expect_end()
        if self._durability.waits:
            since = self._durability.now()
            held = _Held(self, connection, answers, self._log_end, generation, since)
            connection.owe(held, end - position)
            self._durability.keep(held)
            return end, b""
        return end, answers

    def _note_ended(self, ended: Sequence[tuple[int, int, int]]) -> None:
        for each in ended:
            self._halves.record_end(*each)

    def _note(self) -> None:
        """Have the pulls woken that wait for what the burst brought, if anybody waits."""
        if self._count:
            self._statistics.add_put_latency(self._count, self._seconds / self._count)
            self._count, self._seconds = 0, 0.0
        if self._intake.is_awaited:
            self._tell_queues()

    def _tell_queues(self) -> None:
        """Say by queue what came since the last time, to the statistics and to who waits."""
        assert self._sends is not None
        # What is not on the disk cannot be read: who asks for it now will wait.
        may_wait = self._intake.is_awaited or self._durability.waits
        touched = [
            (topic, queue_id, *units.take_fresh())
            for topic, queue_id, units in self._sends.take_touched()
        ]
        sent = sum(count for topic, _, count, _ in touched if topic != OP_HALF_TOPIC)
        each = self._uncounted / (sent or 1)
        self._uncounted = 0.0
        for topic, queue_id, count, size in touched:
            if topic != OP_HALF_TOPIC:  # nobody sent those
                self._statistics.sent_singly(topic, queue_id, count, size, each)
            if may_wait:
                self._intake.touch(topic, queue_id, self._log_end)

    def instead(self, answers: bytes, outcome: int | StoreUnwritable) -> bytes:
        """What must be said instead of each of the answers."""
        frames = FrameDecoder().feed(answers)
        return b"".join([encode_frame(self._instead_of(frame, outcome)) for frame in frames])

    def _instead_of(self, answer: Frame, outcome: int | StoreUnwritable) -> Frame:
        if not isinstance(outcome, StoreUnwritable):
            answer.code = outcome
            return answer
        self._statistics.failed()
        return Frame(
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
            fields=self._marks.answer.to_fields(),
            flag=FrameFlag.RESPONSE,
            opaque=answer.opaque,
            encoding=answer.encoding,
            remark=unavailable(outcome).remark,
        )


class _Held:
    """Answers that leave when the disk has the messages."""

    __slots__ = ("_answers", "_connection", "_lanes", "end", "generation", "since")

    def __init__(
        self,
        lanes: SendLanes,
        connection: Connection,
        answers: bytes,
        end: int,
        generation: int,
        since: float,
    ) -> None:
        self._lanes = lanes
        self._connection = connection
        self._answers = answers
        self.end = end
        self.generation = generation
        self.since = since

    def tell(self, outcome: int | StoreUnwritable, /) -> None:
        answers = self._answers
        if outcome is not ResponseCode.SUCCESS:
            answers = self._lanes.instead(answers, outcome)
        self._connection.settle(self, answers or None)

    def lose(self) -> None:
        """The messages are kept; nobody is told."""

    def go_on(self) -> None:
        """It waits for the disk, not for the peer."""


def _slot(topic: TopicConfig) -> Slot:
    queues = max(topic.write_queue_nums, topic.read_queue_nums)
    return Slot(topic.topic_name.encode(), queues, has_window(topic))


def _system_slot(topic: str) -> Slot:
    return Slot(topic.encode(), 1, False)


def _is_plain(topic: TopicConfig, config: BrokerConfig) -> bool:
    name = topic.topic_name
    return bool(
        topic.perm & WRITE
        and (config.broker_permission & WRITE or not topic.order)
        and topic.topic_filter_type == "SINGLE_TAG"
        and len(name) <= MAX_V1_TOPIC_SIZE
        and is_sendable(name)
        and not name.startswith(SYSTEM_TOPIC_PREFIX)  # the broker itself reads those
        and not is_retry_topic(name)
        and not is_dead_letter_topic(name)
        and _is_valid(name)
    )


def _is_valid(topic: str) -> bool:
    try:
        validate_topic(topic)
    except InvalidParameter:
        return False
    return True
