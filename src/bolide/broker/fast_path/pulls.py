"""Plain pulls served straight from the bytes received, ahead of frames and handlers.

The pulls of a consumer for a queue differ in three numbers (`kernel.pulls`). What was found out
about the first of them, that it may read, what it wants and how much, is kept as a lane until one
of the tables that were asked changes. What a lane cannot answer takes the ordinary way, `pulls`,
and so does all that goes wrong: refusals are written in one place.
"""

from dataclasses import dataclass
from functools import partial

import msgspec

from bolide.broker.consume.admission import Admitted
from bolide.broker.consume.long_polling import QueueKey
from bolide.broker.consume.pull import COMMIT, SUSPEND, Pull, Pulls
from bolide.broker.filters.filters import FunctionFilter, NotCompiled
from bolide.kernel import PullAnswers, Sieve, decode_frame, encode_frame, read_plain_pull
from bolide.kernel.pulls import Answer, PlainPull, refill
from bolide.kernel.units import UNIT_SIZE
from bolide.protocol import json_fields
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.headers.pull import PullHeader
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import DeferredReply, Dispatcher, Request
from bolide.store.reading import MessageFilter, ReadableQueue, ReadStatus, nearby

MAX_LANES = 16_384

_MOST_CODES = 512
"""Tags codes that a lane may want: each has its own copy, which is no larger than its key then."""
_NEAR_UNITS = 200
"""Units at the end of a queue that are in memory anyhow."""
_BLOCK = 1024
_MAX_BLOCKS = 256

_CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_BINARY = HeaderEncoding.ROCKETMQ.to_bytes(1)
_BINARY_CODES = [code.to_bytes(2) for code in _CODES]
_PROBE = 123_456_789_012, 987_654_321, 1_234_567
"""Numbers that nobody sends: if they come out of a header where they were put, others will too."""
_NOTHING = int(ResponseCode.PULL_NOT_FOUND), ReadStatus.OFFSET_OVERFLOW_ONE.value
_AT_END: Answer = (b"", 0, 0, 0, 0, 0)
"""In place of an answer: there is nothing behind the offset yet."""


@dataclass(slots=True, eq=False)
class Lane:
    """What the pulls of one key have in common."""

    header: PullHeader
    admitted: Admitted
    answers: PullAnswers
    units: int
    """Queue units that one looks at."""
    patience: float
    """Seconds that one may wait."""
    group: str
    topic: str
    queue_id: int
    queue: QueueKey
    commits: bool
    suspends: bool
    found: ReadableQueue | None = None
    """The queue, once it is there."""
    is_open: bool = True
    """Nothing of it has changed since."""
    tally: "Tally | None" = None
    """What its pulls got that the statistics do not know of."""


@dataclass(slots=True, eq=False)
class Tally:
    """What some pulls got, and how far the last one was behind."""

    calls: int = 0
    count: int = 0
    size: int = 0
    seconds: float = 0.0
    behind: int = 0
    late: float = 0.0


class HeldPull(DeferredReply):
    """A pull of a lane that waits; what `LongPolling` holds and what its connection is owed."""

    __slots__ = (
        "_lanes", "connection", "encoding", "key", "lane", "offset", "opaque", "pull", "tick",
    )  # fmt: skip

    def __init__(
        self,
        lanes: "PullLanes",
        lane: Lane,
        offset: int,
        opaque: int,
        encoding: HeaderEncoding,
        connection: Connection,
    ) -> None:
        super().__init__()
        self._lanes = lanes
        self.lane = lane
        self.connection = connection
        self.key = lane.queue
        self.offset = offset
        self.opaque = opaque
        self.encoding = encoding
        """How its header is written, and how it is to be answered."""
        self.pull: Pull | None = None
        """What the ordinary way makes of it, once it has to."""
        self.tick = 0

    def look(self, is_last: bool, /) -> bool:
        return self._lanes.look(self, is_last=is_last)

    def lose(self) -> None:
        super().lose()
        self._lanes.forget(self)


class PullLanes:
    """All lanes of a broker; belongs to one event loop."""

    def __init__(self, pulls: Pulls) -> None:
        self._pulls = pulls
        self._parts = parts = pulls.parts
        self._store = parts.store
        self._offsets = parts.offsets
        self._statistics = parts.statistics
        self._latencies = parts.statistics.get_latencies
        self._long_polling = parts.long_polling
        self._now = parts.now
        self._log = parts.store.log
        self._near = partial(nearby, parts.store.log)
        self._hooks = parts.hooks
        self._dispatcher = Dispatcher()
        self._lanes: dict[bytes, Lane] = {}
        self._keys: dict[str, list[bytes]] = {}  # by group
        self._counted: list[Lane] = []
        """Those with a tally."""
        self._laneless: set[bytes] = set()
        """Keys of which it is known that they get no lane."""
        self._blocks: dict[tuple[QueueKey, int], bytes | bytearray] = {}
        """Units of queues, so many at a time; they never change."""
        for cell in (parts.cell, parts.store_cell):
            cell.on_change(lambda _: self._close_all())
        for table in (parts.topics, parts.groups, parts.expiring):
            table.on_change(self._close_all)
        for members in (parts.clients, parts.filters.table):
            members.on_change(self._close_group)
        parts.statistics.ask_first(self._tell)

    def __len__(self) -> int:
        return len(self._lanes)

    def serve(self, data: bytes, position: int, connection: Connection) -> tuple[int, bytes] | None:
        """Serve the pull that lies whole at `position`, if it is one that can be answered at once.

        Returns:
            Where it ends, and the response; empty if it waits. None if it takes the ordinary way.
        """
        encoding = HeaderEncoding.JSON
        found = read_plain_pull(data, position)
        if found is None:
            encoding = HeaderEncoding.ROCKETMQ
            found = _read_binary(data, position)
            if found is None:
                return None
        end, key, offset, commit, opaque = found
        if end - position > connection.max_frame_size:
            return None
        lane = self._lanes.get(key) or self._open(key, connection)
        if lane is None or self._is_unusual(lane):
            return None
        begun = self._now()
        answer = self._read(lane, offset, opaque)
        if answer is None:
            return None
        if answer is not _AT_END:
            self._count(lane, answer, begun)
            reply = answer[0]
        elif lane.suspends:
            self._hold(HeldPull(self, lane, offset, opaque, encoding, connection))
            reply = b""
        else:
            reply = self._at_end(lane, offset, opaque)
        if lane.commits and commit >= 0:
            group, topic, queue_id = lane.group, lane.topic, lane.queue_id
            self._offsets.commit(group, topic, queue_id, commit, peer=connection.peer)
        return end, _in(encoding, reply)

    # ---- answers

    def _is_unusual(self, lane: Lane) -> bool:
        if self._hooks.consume:
            return True
        return self._offsets.is_reset(lane.group, lane.topic, lane.queue_id)

    def _read(self, lane: Lane, offset: int, opaque: int) -> Answer | None:
        """The answer with what there is from an offset on; None if that is not plain."""
        try:
            queue = lane.found
            if queue is None or queue.tail.is_closed:
                queue = lane.found = self._store.find_queue(lane.topic, lane.queue_id)
                if queue is None:
                    return None
            log_end = self._log.written
            low, high = queue.min_offset, queue.tail.end_below(log_end)
            if low <= offset < high:
                units = self._units(lane, queue, offset, high)
                return lane.answers.found(opaque, offset, low, high, log_end, units, self._near)
        except Exception:  # noqa: BLE001  the ordinary way meets it too, and answers or waits
            return None
        return _AT_END if low <= offset == high > 0 else None

    def _units(
        self, lane: Lane, queue: ReadableQueue, offset: int, high: int
    ) -> bytes | bytearray | memoryview:
        """The units that a pull looks at; far from the end they come out of whole blocks."""
        count = lane.units if lane.units < high - offset else high - offset
        if high - offset < _BLOCK + _NEAR_UNITS:
            return queue.units(offset, count, False)
        number, at = divmod(offset, _BLOCK)
        if at + count > _BLOCK:
            return queue.units(offset, count, False)
        block = self._blocks.get((lane.queue, number))
        if block is None:
            block = queue.units(number * _BLOCK, _BLOCK, False)
            if len(block) != _BLOCK * UNIT_SIZE:
                return queue.units(offset, count, False)  # the files of the first are gone
            if len(self._blocks) >= _MAX_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[lane.queue, number] = block
        return memoryview(block)[at * UNIT_SIZE : (at + count) * UNIT_SIZE]

    def _count(self, lane: Lane, answer: Answer, begun: float) -> None:
        _, next_offset, count, size, behind, stored = answer
        group, topic, queue_id = lane.group, lane.topic, lane.queue_id
        self._offsets.pulled(group, topic, queue_id, next_offset)
        if not count:
            self._statistics.got_nothing()
            return
        tally = lane.tally
        if tally is None:
            lane.tally = tally = Tally()
            self._counted.append(lane)
        now = self._now()
        seconds = now - begun
        tally.calls += 1
        tally.count += count
        tally.size += size
        tally.seconds += seconds
        tally.behind = behind
        tally.late = now - stored / 1000
        self._latencies.add(seconds * 1000)

    def _tell(self) -> None:
        """Have the statistics know what was counted."""
        lanes, self._counted = self._counted, []
        for lane in lanes:
            tally, lane.tally = lane.tally, None
            assert tally is not None
            key = lane.group, lane.topic, lane.queue_id
            self._statistics.got_by_calls(tally.calls, *key, tally.count, tally.size, tally.seconds)
            self._statistics.fell_behind(*key, tally.behind, max(tally.late, 0.0))

    def _at_end(self, lane: Lane, offset: int, opaque: int) -> bytes:
        self._statistics.got_nothing()
        self._offsets.pulled(lane.group, lane.topic, lane.queue_id, offset)
        low = self._store.min_offset(lane.topic, lane.queue_id)
        return lane.answers.tell(_NOTHING, opaque, offset, low, offset)

    # ---- waiting

    def _hold(self, held: HeldPull) -> None:
        held.connection.owe(held, 0)
        self._long_polling.hold(held, held.lane.patience)

    def look(self, held: HeldPull, *, is_last: bool) -> bool:
        """Answer a pull that waits, if there is an answer by now or no more time."""
        if held.connection.is_blocked and not is_last:
            held.on_room = partial(self._long_polling.wake, held)
            return False
        if held.is_lost:
            return True
        if not is_last and held.pull is None and held.lane.is_open:
            answered = self._look(held, held.lane)
            if answered is not None:
                return answered
        if held.pull is None:
            held.pull = self._ordinary(held)
            frame = Frame(code=_CODES[0], opaque=held.opaque, encoding=held.encoding)
            held.address(self._dispatcher, frame, held.connection)
        return self._pulls.look_again(held.pull, held, is_last=is_last)

    def forget(self, held: HeldPull) -> None:
        """Its connection is gone."""
        self._long_polling.drop(held)

    def _look(self, held: HeldPull, lane: Lane) -> bool | None:
        """Whether it was answered; None if its lane cannot say."""
        if self._is_unusual(lane):
            return None
        begun = self._now()
        answer = self._read(lane, held.offset, held.opaque)
        if answer is _AT_END:
            return False
        if answer is None or not answer[2]:  # what came is not wanted: it may wait on
            return None
        self._count(lane, answer, begun)
        held.connection.settle(held, _in(held.encoding, answer[0]))
        return True

    def _ordinary(self, held: HeldPull) -> Pull:
        lane = held.lane
        header = msgspec.structs.replace(lane.header, queue_offset=held.offset)
        return self._pulls.pull_of(header, lane.admitted, held.connection.peer)

    # ---- lanes

    def _open(self, key: bytes, connection: Connection) -> Lane | None:
        if key in self._laneless:
            return None
        try:
            lane = self._new_lane(key, connection)
        except NotCompiled:
            return None  # the ordinary way compiles it
        except Exception:  # noqa: BLE001  the ordinary way meets it too and answers
            lane = None
        if len(self._lanes) + len(self._laneless) >= MAX_LANES:
            self._close_all()
        if lane is None:
            self._laneless.add(key)
        else:
            self._lanes[key] = lane
            self._keys.setdefault(lane.group, []).append(key)
        return lane

    def _new_lane(self, key: bytes, connection: Connection) -> Lane | None:
        """Raises whatever keeps such a pull from being served."""
        frame = json_fields.decode(refill(key, *_PROBE))
        if frame.code not in _CODES or frame.flag or self._parts.hooks.consume:
            return None
        header = PullHeader.from_fields(frame.fields)
        if (header.queue_offset, header.commit_offset, frame.opaque) != _PROBE:
            return None
        if self._parts.cell.value.reject_pull_consumer_enable:  # then it matters who asks
            return None
        admitted = self._pulls.admission.admit(Request(header, frame, connection))
        wanted = self._parts.expiring.wanted(header.topic, admitted.wanted)
        return self._lane_of(header, admitted) if _is_plain(wanted) else None

    def _lane_of(self, header: PullHeader, admitted: Admitted) -> Lane:
        limits = self._pulls.limits(header, from_disk=False)
        wanted = admitted.wanted
        usual, slow, far = self._pulls.suggestions(admitted.group)
        answers = PullAnswers(
            max_count=limits.max_count,
            max_size=limits.max_size,
            codes=wanted.codes,
            brokers=(usual, slow),
            far=far,
            sys_flags=(admitted.topic.topic_sys_flag, admitted.group.group_sys_flag),
            sieve=wanted.record if isinstance(wanted.record, Sieve) else None,
        )
        chooses = wanted.codes is not None or wanted.record is not None
        scanned = limits.max_scanned // wanted.weight if chooses else 0
        return Lane(
            header=header,
            admitted=admitted,
            answers=answers,
            units=max(scanned, limits.max_count),
            patience=self._pulls.patience(header),
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            queue=(header.topic, header.queue_id),
            commits=bool(header.sys_flag & COMMIT),
            suspends=bool(header.sys_flag & SUSPEND),
        )

    def _close_all(self) -> None:
        self._blocks.clear()
        for lane in self._lanes.values():
            lane.is_open = False
        self._lanes.clear()
        self._keys.clear()
        self._laneless.clear()

    def _close_group(self, group: str) -> None:
        self._laneless.clear()
        for key in self._keys.pop(group, ()):
            self._lanes.pop(key).is_open = False


def _read_binary(data: bytes, position: int) -> PlainPull | None:
    """A pull with a binary header, as what the same one with a JSON header would be."""
    at = position + 8
    if data[position + 4 : position + 5] != _BINARY or data[at : at + 2] not in _BINARY_CODES:
        return None
    end = position + 4 + int.from_bytes(data[position : position + 4])
    if end > len(data):
        return None
    try:
        frame = decode_frame(data[position + 4 : end])
    except ProtocolError:
        return None
    frame.encoding = HeaderEncoding.JSON
    found = read_plain_pull(encode_frame(frame), 0)
    return found and (end, *found[1:])


def _in(encoding: HeaderEncoding, reply: bytes) -> bytes:
    """A response with its header written like that of the request."""
    if encoding is HeaderEncoding.JSON or not reply:
        return reply
    frame = decode_frame(reply[4:])
    frame.encoding = encoding
    return encode_frame(frame)


def _is_plain(wanted: MessageFilter) -> bool:
    """Whether the kernel can tell what is wanted."""
    if isinstance(wanted, FunctionFilter) or not isinstance(wanted.record, Sieve | None):
        return False
    if wanted.codes is None:
        return wanted.code is None
    return len(wanted.codes) <= _MOST_CODES
