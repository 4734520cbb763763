"""Plain sends served straight from the bytes received, ahead of frames and handlers.

What it does not know it leaves to the ordinary way, `handlers/send.py`, and so it does with all
that goes wrong: refusals are written in one place. The topics it serves are a table of slots that
is made anew when topics or settings change.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from bolide.broker.attributes import has_window
from bolide.broker.config import BrokerConfig
from bolide.broker.durability import Durability, unavailable
from bolide.broker.hooks import Hooks
from bolide.broker.intake import Intake
from bolide.broker.marks import Marks
from bolide.broker.peers import packed_peer
from bolide.broker.statistics import Statistics
from bolide.broker.topics import TopicTable
from bolide.config import ConfigCell
from bolide.kernel.sends import PlainSend, SendAnswers, read_plain_send
from bolide.model.message import Host
from bolide.model.names import WRITE, is_dead_letter_topic, is_retry_topic, is_sendable
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import encode_frame
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record import MAX_V1_TOPIC_SIZE, RecordDraft
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Later
from bolide.store.appending import Appended
from bolide.store.errors import StoreUnwritable

_OFFSET_DIGITS = 16


class Slot(NamedTuple):
    """A topic that plain sends may go to."""

    topic: bytes
    queues: int
    has_window: bool


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
                topic.topic_name.encode(),
                max(topic.write_queue_nums, topic.read_queue_nums),
                has_window(topic),
            )
            for topic in self._topics
            if _is_plain(topic, config)
        }  # fmt: skip

    def serve(
        self, data: bytes, position: int, connection: Connection, until: float
    ) -> tuple[int, bytes]:
        replies: list[bytes] = []
        longest = connection.max_frame_size
        while True:
            send = read_plain_send(data, position)
            if send is None or send.end - position > longest:
                break
            slot = self.slots.get(send.topic)
            if slot is None or send.queue_id >= slot.queues:
                break
            if slot.has_window and PropertyName.DEDUP_KEY in send.properties:
                break
            started = self._now()
            try:
                appended = self._append(send, slot, connection.peer)
            except Exception:  # noqa: BLE001  the ordinary way meets it too and answers
                break
            took = self._now() - started
            self._statistics.sent(send.topic, send.queue_id, 1, appended.size, took)
            if self._durability.waits:
                self._answer_when_safe(send, appended, connection)
            elif not send.one_way:
                replies.append(self._answer(send, appended, ResponseCode.SUCCESS))
            position = send.end
            if time.monotonic() > until:
                break
        return position, b"".join(replies)

    def _append(self, send: PlainSend, slot: Slot, peer: str) -> Appended:
        draft = RecordDraft(
            slot.topic, send.body, self._marks.add_to(send.properties).encode(), send.queue_id,
            send.born_timestamp, packed_peer(peer), self._store_host, send.flag, send.sys_flag,
        )  # fmt: skip
        return self._intake.append(draft)

    def _answer_when_safe(
        self, send: PlainSend, appended: Appended, connection: Connection
    ) -> None:
        promise = Later()
        connection.owe(promise, len(send.body))

        def tell(outcome: int | StoreUnwritable) -> None:
            connection.settle(
                promise, None if send.one_way else self._told(send, appended, outcome)
            )

        self._durability.when_safe(appended, tell)

    def _told(self, send: PlainSend, appended: Appended, outcome: int | StoreUnwritable) -> bytes:
        if isinstance(outcome, StoreUnwritable):
            return self._refuse(send, outcome)
        return self._answer(send, appended, outcome)

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
