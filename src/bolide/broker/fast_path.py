"""Plain sends served straight from the bytes received, ahead of frames and handlers.

What it does not know it leaves to the ordinary way, `handlers/send.py`, and so it does with all
that goes wrong: refusals are written in one place. The topics it serves are a table of slots that
is made anew when topics or settings change.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from bolide.broker.config import BrokerConfig
from bolide.broker.durability import Durability, unavailable
from bolide.broker.hooks import Hooks
from bolide.broker.intake import Intake
from bolide.broker.marks import Marks
from bolide.broker.names import WRITE, is_dead_letter_topic, is_retry_topic, is_sendable
from bolide.broker.peers import packed_peer
from bolide.broker.statistics import Statistics
from bolide.broker.topics import TopicTable
from bolide.config import ConfigCell
from bolide.kernel.sends import PlainSend, SendAnswers, read_plain_send
from bolide.model.message import Host
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import encode_frame
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record import MAX_V1_TOPIC_SIZE, RecordDraft
from bolide.protocol.record_errors import RecordTooLarge
from bolide.remoting.connection import Connection
from bolide.store.appending import Appended
from bolide.store.errors import StoreClosed, StoreUnwritable

_OFFSET_DIGITS = 16


class Slot(NamedTuple):
    """A topic that plain sends may go to."""

    topic: bytes
    queues: int


class FastPath:
    """The broker's `remoting.connection.FastPath`."""

    def __init__(  # noqa: PLR0913  it stands beside the handlers and needs what they need
        self,
        *,
        cell: ConfigCell[BrokerConfig],
        topics: TopicTable,
        intake: Intake,
        durability: Durability,
        statistics: Statistics,
        store_host: Host,
        hooks: Hooks,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._topics = topics
        self._intake = intake
        self._durability = durability
        self._statistics = statistics
        self._store_host = pack_host(store_host)
        self._host_digits = OffsetId(store_host, 0).encode()[:-_OFFSET_DIGITS]
        self._hooks = hooks
        self._now = now
        self.slots: dict[str, Slot] = {}
        self._cell = cell
        cell.on_change(self._settings_changed)
        topics.on_change(self._fill)
        self._settings_changed(cell.value)

    def _settings_changed(self, config: BrokerConfig) -> None:
        self._marks = Marks.of(config)
        answer = self._marks.answer.to_fields()
        self._answers = SendAnswers(self._host_digits, answer["MSG_REGION"], answer["TRACE_ON"])
        self._fill()

    def _fill(self) -> None:
        """Note again which topics it may serve."""
        config = self._cell.value
        closed = self._hooks.send or config.start_accept_send_request_time_stamp > 0
        self.slots = {} if closed else {
            topic.topic_name: Slot(
                topic.topic_name.encode(), max(topic.write_queue_nums, topic.read_queue_nums)
            )
            for topic in self._topics
            if _is_plain(topic, config)
        }  # fmt: skip

    def serve(self, data: bytes, position: int, connection: Connection) -> tuple[int, bytes]:
        replies = []
        while True:
            send = read_plain_send(data, position)
            if send is None:
                break
            slot = self.slots.get(send.topic)
            if slot is None or send.queue_id >= slot.queues:
                break
            try:
                reply = self._take(send, slot, connection)
            except (RecordTooLarge, StoreUnwritable, StoreClosed, ValueError):
                break  # the ordinary way finds the same and says so
            if reply is not None:
                replies.append(reply)
            position = send.end
        return position, b"".join(replies)

    def _take(self, send: PlainSend, slot: Slot, connection: Connection) -> bytes | None:
        started = self._now()
        draft = RecordDraft(
            slot.topic, send.body, self._marks.add_to(send.properties).encode(), send.queue_id,
            send.born_timestamp, packed_peer(connection.peer), self._store_host, send.flag,
            send.sys_flag,
        )  # fmt: skip
        appended = self._intake.append(draft)
        took = self._now() - started
        self._statistics.sent(send.topic, send.queue_id, 1, appended.size, took)
        if not self._durability.waits:
            return None if send.one_way else self._answer(send, appended, ResponseCode.SUCCESS)
        if not send.one_way:
            self._answer_when_safe(send, appended, connection)
        return None

    def _answer_when_safe(
        self, send: PlainSend, appended: Appended, connection: Connection
    ) -> None:
        def tell(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                connection.send_later(self._refuse(send, outcome))
            else:
                connection.send_later(self._answer(send, appended, outcome))

        self._durability.when_safe(appended, tell)

    def _answer(self, send: PlainSend, appended: Appended, code: int) -> bytes:
        return self._answers.write(send, appended.physical_offset, appended.queue_offset, code)

    def _refuse(self, send: PlainSend, reason: StoreUnwritable) -> bytes:
        return encode_frame(
            Frame(
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
                fields=self._marks.answer.to_fields(),
                flag=FrameFlag.RESPONSE,
                opaque=send.opaque,
                remark=unavailable(reason).remark,
            )
        )


def _is_plain(topic: TopicConfig, config: BrokerConfig) -> bool:
    name = topic.topic_name
    return bool(
        topic.perm & WRITE
        and (config.broker_permission & WRITE or not topic.order)
        and topic.topic_filter_type == "SINGLE_TAG"
        and len(name) <= MAX_V1_TOPIC_SIZE
        and is_sendable(name)
        and not is_retry_topic(name)
        and not is_dead_letter_topic(name)
    )
