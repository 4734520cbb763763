"""When a message is due, and how it is addressed to the timer topic (`HookUtils`)."""

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

TIMER_PROPERTIES = (
    PropertyName.TIMER_DELAY_SEC,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.START_DELIVER_TIME,
)
"""Properties that request a delivery time; of several the first counts."""

_RELATIVE = {PropertyName.TIMER_DELAY_SEC: 1000, PropertyName.TIMER_DELAY_MS: 1}
_INTEGER = re.compile(r"[+-]?[0-9]{1,16}")
_TIMER_TOPIC = TIMER_TOPIC.encode()
_TIMER_PROPERTIES_BYTES = [name.encode() for name in TIMER_PROPERTIES]


class Timetable:
    """Delivery times under the settings of a broker."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        now: Callable[[], float] = time.time,
        *,
        lenient: bool = False,
    ) -> None:
        """Args:
        lenient: refuse no message; they were admitted before.
        """
        self._cell = cell
        self._now = now
        self._lenient = lenient

    def due(self, properties: Mapping[str, str]) -> int | None:
        """Return when to deliver a message, in milliseconds; None for at once.

        Raises:
            MessageIllegal: the requested time is malformed or too far away.
            ServerError: the timer is disabled.
        """
        requested = next((name for name in TIMER_PROPERTIES if name in properties), None)
        if requested is None or PropertyName.TIMER_OUT_MS in properties:
            return None
        now = int(self._now() * 1000)
        if self._lenient:
            known = _INTEGER.fullmatch(properties[requested])
            due = self._due_from(requested, properties[requested], now) if known else now
            return due if due > now else None
        return self._checked_due(requested, properties, now)

    def _checked_due(self, requested: str, properties: Mapping[str, str], now: int) -> int | None:
        config = self._cell.value
        if not config.timer_wheel_enable:
            raise ServerError(
                f"{requested} requests a delivery time, but timerWheelEnable is false:"
                " set it to true, or use a delay level (property DELAY)"
            )
        due = self._due_from(requested, properties[requested], now)
        if due <= now:
            if PropertyName.TIMER_DELETE_UNIQUE_ID in properties:
                raise MessageIllegal("a recall comes too late: the time of its message is over")
            # The first occurrence of a series may pass while its message is being addressed. Only
            # the timer continues the series, so it delivers that one, too.
            return due if PropertyName.CRON in properties else None
        if due - now > config.timer_max_delay_sec * 1000:
            raise MessageIllegal(
                f"{requested}={properties[requested]} is further away than timerMaxDelaySec="
                f"{config.timer_max_delay_sec} allows: choose an earlier time, or raise it"
            )
        return due

    def _due_from(self, requested: str, text: str, now: int) -> int:
        if not _INTEGER.fullmatch(text):
            raise MessageIllegal(f"{requested}={text!r} is no time: it must be a whole number")
        if requested not in _RELATIVE:
            return int(text)
        due = now + int(text) * _RELATIVE[requested]
        # A whole second means that RocketMQ truncated the time, see `due_of`.
        return due + (due % self._cell.value.timer_precision_ms == 0)

    def recall_handle(self, draft: RecordDraft) -> str | None:
        """Return the handle with which the sender can recall a timer message."""
        if draft.topic != _TIMER_TOPIC:
            return None
        properties = decode_properties(str(draft.properties, "utf-8", "replace"))
        topic = properties[PropertyName.REAL_TOPIC]
        if is_retry_topic(topic):
            return None
        return RecallHandle(
            topic=topic,
            broker_name=self._cell.value.broker_name,
            # One more: RocketMQ takes a whole second for the end of the slot before.
            timestamp=int(properties[PropertyName.TIMER_OUT_MS]) + 1,
            unique_id=properties[PropertyName.UNIQUE_ID],
        ).encode()


def timer_draft(draft: RecordDraft, properties: Mapping[str, str], due: int) -> RecordDraft:
    """Address a draft to the timer topic; its properties record the real topic and queue."""
    updated = dict(properties)
    updated[PropertyName.TIMER_OUT_MS] = str(due)
    if not any(name in updated for name in _RELATIVE):
        updated[PropertyName.TIMER_DELIVER_MS] = str(due)  # marks the time as exact, see `due_of`
    updated[PropertyName.REAL_TOPIC] = draft.topic.decode()
    updated[PropertyName.REAL_QUEUE_ID] = str(draft.queue_id)
    return draft._replace(
        topic=_TIMER_TOPIC, queue_id=0, properties=encode_properties(updated).encode()
    )


def refuse_foreign_recall(properties: Mapping[str, str], topic: str) -> None:
    """Raises MessageIllegal if a message for a topic would recall a message of another one."""
    key = properties.get(PropertyName.TIMER_DELETE_UNIQUE_ID)
    if key is not None and "+" in key and not key.startswith(f"{topic}+"):
        raise MessageIllegal(
            f"{PropertyName.TIMER_DELETE_UNIQUE_ID}={key!r} names another topic than that of the"
            f" message, {topic!r}: a message recalls only messages of its own topic"
        )


def refuse_in_batch(drafts: Sequence[RecordDraft]) -> None:
    """Raises MessageIllegal if a message of a batch requests a time: it would be delivered
    early."""
    for draft in drafts:
        text = bytes(draft.properties)
        if any(name in text for name in _TIMER_PROPERTIES_BYTES):
            properties = decode_properties(text.decode(errors="replace"))
            requested = next((name for name in TIMER_PROPERTIES if name in properties), None)
            if requested and PropertyName.TIMER_OUT_MS not in properties:
                raise MessageIllegal(
                    f"a batch with {requested}: timer messages cannot be part of a batch"
                )


def due_of(properties: Mapping[str, str], precision_ms: int) -> int | None:
    """Return when a timer message is due; None if its properties do not say.

    RocketMQ stores the slot before the due time and delivers at its end; Bolide stores the due
    time.
    """
    out = _number(properties.get(PropertyName.TIMER_OUT_MS))
    if out is None or out % precision_ms:
        return out
    if not any(name in properties for name in _RELATIVE):
        for name in (PropertyName.TIMER_DELIVER_MS, PropertyName.START_DELIVER_TIME):
            requested = _number(properties.get(name))
            if requested is not None and out <= requested <= out + precision_ms:
                return requested
    return out + precision_ms


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _INTEGER.fullmatch(text) else None
