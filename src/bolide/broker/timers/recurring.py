"""Messages that recur: a timer each time, and a plain copy to whoever consumes the topic.

What waits is the message itself, as a timer for its next time. When that comes, the copy is
delivered and the message waits for the time after it, both in one burst. A copy has an id of its
own, made of the message's and of the time, so that one delivered twice is known by it.

Times that passed while no broker ran are made up for by one delivery, then the next follow.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bolide.broker.consume.expiry import check_expiry
from bolide.broker.timers.timetable import ASKING, waiting_draft
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

_OURS = b"BOLIDE_"
_MOST_REMEMBERED = 100_000
_TRANSACTION = int(SysFlag.ROLLBACK)
_NOT_TOGETHER = (
    *ASKING,
    PropertyName.DELAY_LEVEL,
    PropertyName.DEDUP_KEY,
    PropertyName.TRANSACTION_PREPARED,
)
_OF_ONE_TURN = (
    *ASKING,
    PropertyName.TIMER_OUT_MS,
    PropertyName.TIMER_ENQUEUE_MS,
    PropertyName.TIMER_DEQUEUE_MS,
    PropertyName.TIMER_ROLL_TIMES,
    PropertyName.SERIES_TURN,
)
_OF_THE_SERIES = (
    *_OF_ONE_TURN,
    PropertyName.CRON,
    PropertyName.CRON_ZONE,
    PropertyName.REAL_TOPIC,
    PropertyName.REAL_QUEUE_ID,
)


class Turn(NamedTuple):
    """One wait of a series; two with one time and different marks are there by accident."""

    due: int
    mark: str


class Recurring:
    """Goes on with series whose time has come; `continued` is asked by the timer.

    Args:
        find_topic: to see whether the topic of a series is still there.
    """

    def __init__(
        self,
        find_topic: Callable[[str], TopicConfig | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._find_topic = find_topic
        self._now = now
        self._last: dict[str, Turn] = {}
        """The last turn of each series since the start."""

    def continued(
        self, draft: RecordDraft, properties: dict[str, str]
    ) -> Sequence[RecordDraft] | None:
        """What becomes of a message at its time: the copy and the next wait; None: it is plain."""
        if PropertyName.CRON not in properties:
            return None
        series = properties.get(PropertyName.UNIQUE_ID, "")
        topic = self._find_topic(draft.topic.decode())
        if topic is None or not topic.write_queue_nums:
            log.info("message %s recurs no more: its topic is gone", series)
            self._last.pop(series, None)
            return []
        draft = draft._replace(queue_id=draft.queue_id % topic.write_queue_nums)
        turn = Turn(_due(properties), properties.get(PropertyName.SERIES_TURN, ""))
        return self._turned(draft, properties, series, turn)

    def _turned(
        self, draft: RecordDraft, properties: dict[str, str], series: str, turn: Turn
    ) -> list[RecordDraft]:
        last = self._last.get(series)
        copy = _copy(draft, properties, series, turn.due)
        if last is not None and last != turn and last.due >= turn.due:
            # A crash, or a sender who tried twice, left two of one series: one goes on.
            return [copy] if last.due > turn.due else []
        if len(self._last) >= _MOST_REMEMBERED:  # those that were recalled are among them
            self._last.clear()
        self._last[series] = turn
        due = self._next(properties, series, turn.due)
        if due is None:
            self._last.pop(series, None)
            return [copy]
        # The copy first: if the store refuses it, no second wait is left behind at each try.
        return [copy, _waiting(draft, properties, due)]

    def _next(self, properties: dict[str, str], series: str, due: int) -> int | None:
        try:
            return next_due(properties, max(due, int(self._now() * 1000)))
        except InvalidMessage as exc:
            log.error("message %s recurs no more: %s", series, exc)  # noqa: TRY400  no bug of ours
            return None


def _due(properties: Mapping[str, str]) -> int:
    return int(properties.get(PropertyName.TIMER_OUT_MS, "0"))


def _copy(draft: RecordDraft, properties: Mapping[str, str], series: str, due: int) -> RecordDraft:
    """The message of one time, as a plain one; by its due time a crash is got over."""
    kept = {name: text for name, text in properties.items() if name not in _OF_THE_SERIES}
    kept[PropertyName.UNIQUE_ID] = f"{series}.{due}"
    kept[PropertyName.SERIES_ID] = series
    kept[PropertyName.TIMER_OUT_MS] = str(due)
    return draft._replace(properties=encode_properties(kept).encode(), born_timestamp=due)


def _waiting(draft: RecordDraft, properties: Mapping[str, str], due: int) -> RecordDraft:
    kept = {name: text for name, text in properties.items() if name not in _OF_ONE_TURN}
    return waiting_draft(draft, kept | _turn(due), due)


def _turn(due: int) -> dict[str, str]:
    return {
        PropertyName.TIMER_DELIVER_MS: str(due),
        PropertyName.SERIES_TURN: os.urandom(4).hex(),
    }


def begin_series(properties: dict[str, str], draft: RecordDraft, now: int) -> None:
    """Have a message that recurs wait for its first time; nothing for others.

    Raises:
        MessageIllegal: its times cannot be read, or it is of a kind that cannot recur.
    """
    if PropertyName.CRON not in properties:
        return
    other = next((name for name in _NOT_TOGETHER if name in properties), None)
    if other is not None:
        raise MessageIllegal(f"{PropertyName.CRON} and {other}: a message has one of them")
    if draft.sys_flag & _TRANSACTION:
        raise MessageIllegal(f"{PropertyName.CRON}: a transactional message cannot recur")
    try:
        due = next_due(properties, now)
    except InvalidMessage as exc:
        raise MessageIllegal(f"{PropertyName.CRON}: {exc}") from exc
    if due is None:
        raise MessageIllegal(f"{PropertyName.CRON}: it expires before it comes, or never comes")
    properties |= _turn(due)


def next_due(properties: Mapping[str, str], after: int) -> int | None:
    """The first time of a series behind a moment, in milliseconds; None if it has ended.

    Raises:
        InvalidMessage: its times cannot be read.
    """
    zone = properties.get(PropertyName.CRON_ZONE, "")
    due = next_time(properties[PropertyName.CRON], zone, after)
    expiry = expiry_of(properties)
    return None if due is None or (expiry is not None and due >= expiry) else due


def check_batch(body: Buffer, drafts: Sequence[RecordDraft]) -> None:
    """Raises MessageIllegal if what only single messages may ask for is asked for in a batch."""
    if _OURS not in bytes(body):
        return
    for draft in drafts:
        properties = decode_properties(str(draft.properties, "utf-8", "replace"))
        check_expiry(properties)
        if PropertyName.CRON in properties:
            raise MessageIllegal(f"{PropertyName.CRON}: a message that recurs is sent by itself")
