"""Recurring messages: a timer for each occurrence, and a plain copy for consumers of the topic.

The pending timer is the message itself, due at its next occurrence. When that time comes, the copy
is delivered and the message is scheduled for the following occurrence, both in one burst. The copy
has an id made of the id of the message and the time, so that consumers can recognize a duplicate.

Occurrences missed while no broker ran are made up for by one delivery; then the schedule continues.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bolide.broker.consume.expiry import check_expiry
from bolide.broker.timers.timetable import TIMER_PROPERTIES, timer_draft
from bolide.model.cron import next_time
from bolide.model.expiry import expiry_of
from bolide.model.message import SysFlag
from bolide.model.message_checks import InvalidMessage
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record import Buffer, RecordDraft
from bolide.protocol.refusals import MessageIllegal

log = logging.getLogger(__name__)

_BOLIDE_PREFIX = b"BOLIDE_"
_MAX_SERIES = 100_000
_TRANSACTION = int(SysFlag.ROLLBACK)
_EXCLUSIVE_PROPERTIES = (
    *TIMER_PROPERTIES,
    PropertyName.DELAY_LEVEL,
    PropertyName.DEDUP_KEY,
    PropertyName.TRANSACTION_PREPARED,
)
_OCCURRENCE_PROPERTIES = (
    *TIMER_PROPERTIES,
    PropertyName.TIMER_OUT_MS,
    PropertyName.TIMER_ENQUEUE_MS,
    PropertyName.TIMER_DEQUEUE_MS,
    PropertyName.TIMER_ROLL_TIMES,
    PropertyName.SERIES_TURN,
)
_SERIES_PROPERTIES = (
    *_OCCURRENCE_PROPERTIES,
    PropertyName.CRON,
    PropertyName.CRON_ZONE,
    PropertyName.REAL_TOPIC,
    PropertyName.REAL_QUEUE_ID,
)


class Occurrence(NamedTuple):
    """One occurrence of a series; a second one with the same time and another nonce is an
    accident."""

    due: int
    nonce: str


class Recurring:
    """Schedules the next occurrence of a series; `continued` is called by the timer delivery.

    Args:
        find_topic: returns the topic of a series if it still exists.
    """

    def __init__(
        self,
        find_topic: Callable[[str], TopicConfig | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._find_topic = find_topic
        self._now = now
        self._last: dict[str, Occurrence] = {}
        """Last delivered occurrence of each series since the start."""

    def continued(
        self, draft: RecordDraft, properties: dict[str, str]
    ) -> Sequence[RecordDraft] | None:
        """Return the copy and the next timer of a due message; None if the message does not
        recur."""
        if PropertyName.CRON not in properties:
            return None
        series = properties.get(PropertyName.UNIQUE_ID, "")
        topic = self._find_topic(draft.topic.decode())
        if topic is None or not topic.write_queue_nums:
            log.info("message %s no longer recurs: its topic was deleted", series)
            self._last.pop(series, None)
            return []
        draft = draft._replace(queue_id=draft.queue_id % topic.write_queue_nums)
        occurrence = Occurrence(_due(properties), properties.get(PropertyName.SERIES_TURN, ""))
        return self._continue_series(draft, properties, series, occurrence)

    def _continue_series(
        self, draft: RecordDraft, properties: dict[str, str], series: str, occurrence: Occurrence
    ) -> list[RecordDraft]:
        last = self._last.get(series)
        copy = _copy(draft, properties, series, occurrence.due)
        if last is not None and last != occurrence and last.due >= occurrence.due:
            # A crash or a retried send left two timers of one series: one of them continues.
            return [copy] if last.due > occurrence.due else []
        if len(self._last) >= _MAX_SERIES:  # recalled series are among them
            self._last.clear()
        self._last[series] = occurrence
        due = self._next_due(properties, series, occurrence.due)
        if due is None:
            self._last.pop(series, None)
            return [copy]
        # The copy first: if the store refuses it, retries leave no second timer behind.
        return [copy, _next_timer(draft, properties, due)]

    def _next_due(self, properties: dict[str, str], series: str, due: int) -> int | None:
        try:
            return next_due(properties, max(due, int(self._now() * 1000)))
        except InvalidMessage as exc:
            log.error("message %s no longer recurs: %s", series, exc)  # noqa: TRY400  the message is at fault
            return None


def _due(properties: Mapping[str, str]) -> int:
    return int(properties.get(PropertyName.TIMER_OUT_MS, "0"))


def _copy(draft: RecordDraft, properties: Mapping[str, str], series: str, due: int) -> RecordDraft:
    """Build the plain copy for one occurrence; its due time identifies it after a crash."""
    remaining = {name: text for name, text in properties.items() if name not in _SERIES_PROPERTIES}
    remaining[PropertyName.UNIQUE_ID] = f"{series}.{due}"
    remaining[PropertyName.SERIES_ID] = series
    remaining[PropertyName.TIMER_OUT_MS] = str(due)
    return draft._replace(properties=encode_properties(remaining).encode(), born_timestamp=due)


def _next_timer(draft: RecordDraft, properties: Mapping[str, str], due: int) -> RecordDraft:
    remaining = {
        name: text for name, text in properties.items() if name not in _OCCURRENCE_PROPERTIES
    }
    return timer_draft(draft, remaining | _occurrence_properties(due), due)


def _occurrence_properties(due: int) -> dict[str, str]:
    return {
        PropertyName.TIMER_DELIVER_MS: str(due),
        PropertyName.SERIES_TURN: os.urandom(4).hex(),
    }


def begin_series(properties: dict[str, str], draft: RecordDraft, now: int) -> None:
    """Schedule the first occurrence of a recurring message; other messages are unchanged.

    Raises:
        MessageIllegal: the cron expression is invalid, or the message is of a kind that cannot
            recur.
    """
    if PropertyName.CRON not in properties:
        return
    other = next((name for name in _EXCLUSIVE_PROPERTIES if name in properties), None)
    if other is not None:
        raise MessageIllegal(
            f"{PropertyName.CRON} and {other}: a message may have only one of them"
        )
    if draft.sys_flag & _TRANSACTION:
        raise MessageIllegal(f"{PropertyName.CRON}: a transactional message cannot recur")
    try:
        due = next_due(properties, now)
    except InvalidMessage as exc:
        raise MessageIllegal(f"{PropertyName.CRON}: {exc}") from exc
    if due is None:
        raise MessageIllegal(
            f"{PropertyName.CRON}: the message expires before its first occurrence, or never occurs"
        )
    properties |= _occurrence_properties(due)


def next_due(properties: Mapping[str, str], after: int) -> int | None:
    """Return the first occurrence after a time, in milliseconds; None if the series has ended.

    Raises:
        InvalidMessage: the cron expression is invalid.
    """
    zone = properties.get(PropertyName.CRON_ZONE, "")
    due = next_time(properties[PropertyName.CRON], zone, after)
    expiry = expiry_of(properties)
    return None if due is None or (expiry is not None and due >= expiry) else due


def check_batch(body: Buffer, drafts: Sequence[RecordDraft]) -> None:
    """Raises MessageIllegal if a message of a batch uses a feature reserved for single messages."""
    if _BOLIDE_PREFIX not in bytes(body):
        return
    for draft in drafts:
        properties = decode_properties(str(draft.properties, "utf-8", "replace"))
        check_expiry(properties)
        if PropertyName.CRON in properties:
            raise MessageIllegal(
                f"{PropertyName.CRON}: a recurring message cannot be part of a batch"
            )
