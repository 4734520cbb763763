"""Which time a message asks for, and how it waits until then (`HookUtils`)."""

import re
import time
from collections.abc import Callable, Mapping, Sequence

from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import TIMER_TOPIC, is_retry_topic
from bolide.model.properties import PropertyName
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.recall_handle import RecallHandle
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import MessageIllegal, ServerError

ASKING = (
    PropertyName.TIMER_DELAY_SEC,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.START_DELIVER_TIME,
)
"""The properties by which a message asks; of several the first counts."""

_RELATIVE = {PropertyName.TIMER_DELAY_SEC: 1000, PropertyName.TIMER_DELAY_MS: 1}
_WHOLE = re.compile(r"[+-]?[0-9]{1,16}")
_TIMER_TOPIC = TIMER_TOPIC.encode()
_ASKING_BYTES = [name.encode() for name in ASKING]


class Timetable:
    """What the settings of a broker make of the wishes of messages."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        now: Callable[[], float] = time.time,
        *,
        lenient: bool = False,
    ) -> None:
        """`lenient`: the messages were admitted before, so none is refused now."""
        self._cell = cell
        self._now = now
        self._lenient = lenient

    def due(self, properties: Mapping[str, str]) -> int | None:
        """When a message is to be delivered, in milliseconds; None at once.

        Raises:
            MessageIllegal: it asks for what is no time, or too far away.
            ServerError: the broker takes no such messages.
        """
        asked = next((name for name in ASKING if name in properties), None)
        if asked is None or PropertyName.TIMER_OUT_MS in properties:
            return None
        now = int(self._now() * 1000)
        if self._lenient:
            known = _WHOLE.fullmatch(properties[asked])
            due = self._exact(asked, properties[asked], now) if known else now
            return due if due > now else None
        return self._admitted(asked, properties, now)

    def _admitted(self, asked: str, properties: Mapping[str, str], now: int) -> int | None:
        config = self._cell.value
        if not config.timer_wheel_enable:
            raise ServerError(
                f"{asked} asks for a time, but timerWheelEnable is false: set it to true, or use a"
                " delay level (property DELAY)"
            )
        due = self._exact(asked, properties[asked], now)
        if due <= now:
            if PropertyName.TIMER_DELETE_UNIQUE_ID in properties:
                raise MessageIllegal("a recall comes too late: the time of its message is over")
            return None
        if due - now > config.timer_max_delay_sec * 1000:
            raise MessageIllegal(
                f"{asked}={properties[asked]} is further away than timerMaxDelaySec="
                f"{config.timer_max_delay_sec} allows: ask for an earlier time, or raise it"
            )
        return due

    def _exact(self, asked: str, text: str, now: int) -> int:
        if not _WHOLE.fullmatch(text):
            raise MessageIllegal(f"{asked}={text!r} is no time: it must be a whole number")
        if asked not in _RELATIVE:
            return int(text)
        due = now + int(text) * _RELATIVE[asked]
        # A whole second says that RocketMQ cut the rest off, see `due_of`.
        return due + (due % self._cell.value.timer_precision_ms == 0)

    def recall_handle(self, draft: RecordDraft) -> str | None:
        """By what the sender can take a message back that has to wait."""
        if draft.topic != _TIMER_TOPIC:
            return None
        properties = decode_properties(str(draft.properties, "utf-8", "replace"))
        topic = properties[PropertyName.REAL_TOPIC]
        if is_retry_topic(topic):
            return None
        return RecallHandle(
            topic=topic,
            broker_name=self._cell.value.broker_name,
            # One later: RocketMQ takes a whole second for the end of the slot before.
            timestamp=int(properties[PropertyName.TIMER_OUT_MS]) + 1,
            unique_id=properties[PropertyName.UNIQUE_ID],
        ).encode()


def waiting_draft(draft: RecordDraft, properties: Mapping[str, str], due: int) -> RecordDraft:
    """The draft as it waits in the timer's topic; its properties say where it belongs."""
    kept = dict(properties)
    kept[PropertyName.TIMER_OUT_MS] = str(due)
    if not any(name in kept for name in _RELATIVE):
        kept[PropertyName.TIMER_DELIVER_MS] = str(due)  # says that it is exact, see `due_of`
    kept[PropertyName.REAL_TOPIC] = draft.topic.decode()
    kept[PropertyName.REAL_QUEUE_ID] = str(draft.queue_id)
    return draft._replace(
        topic=_TIMER_TOPIC, queue_id=0, properties=encode_properties(kept).encode()
    )


def refuse_in_batch(drafts: Sequence[RecordDraft]) -> None:
    """Raises MessageIllegal if a message of a batch asks for a time: it would come early."""
    for draft in drafts:
        text = bytes(draft.properties)
        if any(name in text for name in _ASKING_BYTES):
            properties = decode_properties(text.decode(errors="replace"))
            asked = next((name for name in ASKING if name in properties), None)
            if asked and PropertyName.TIMER_OUT_MS not in properties:
                raise MessageIllegal(
                    f"a batch with {asked}: messages that wait are sent one by one"
                )


def due_of(properties: Mapping[str, str], precision_ms: int) -> int | None:
    """When a message that waits is due, None if nothing says it.

    RocketMQ writes down the slot before the time and delivers at its end; we write down the time.
    """
    out = _number(properties.get(PropertyName.TIMER_OUT_MS))
    if out is None or out % precision_ms:
        return out
    if not any(name in properties for name in _RELATIVE):
        for name in (PropertyName.TIMER_DELIVER_MS, PropertyName.START_DELIVER_TIME):
            asked = _number(properties.get(name))
            if asked is not None and out <= asked <= out + precision_ms:
                return asked
    return out + precision_ms


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None
