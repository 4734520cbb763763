"""Plain pulls on the fast path: served from received bytes, plan by plan.

The pulls of a consumer for a queue differ in three numbers and the signature (`_pulls.read_pull`);
the rest of the header is the key of their plan, the access key included. A pull without a plan
falls through, and what the handlers decide about it becomes the plan of its key.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from operator import mul
from time import monotonic

import msgspec

from bolide.broker.consume.admission import Admitted
from bolide.broker.consume.long_polling import QueueKey
from bolide.broker.consume.pull import COMMIT, SUSPEND, Pull, Pulls
from bolide.broker.counters import EDGES
from bolide.broker.fast_path._pulls import PullReplies, read_pull
from bolide.broker.fast_path.fall_through import FallThrough, FallThroughs
from bolide.broker.fast_path.plans import Plans, PullPlan, PullTally, SenderPlans
from bolide.broker.filters.filters import FunctionFilter
from bolide.broker.gate import Gate
from bolide.broker.metadata.topic_attributes import is_compacted
from bolide.distribution import Distribution
from bolide.kernel import Sieve, SigningKey
from bolide.kernel.units import UNIT_SIZE
from bolide.protocol import json_fields
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, HeaderEncoding
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.signature import SIGNATURE
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import DeferredReply, Dispatcher, Request
from bolide.remoting.latencies import BOUNDS, RpcLatencies, RpcOutcome
from bolide.store.errors import NotInMemory
from bolide.store.reading import MessageFilter, ReadableQueue, ReadStatus, nearby
from bolide.store.tables import has_batch_queues

_MAX_CODES = 512
"""Tags codes that a plan may want: each plan has its own copy."""
_NEAR_UNITS = 200
"""Units at the end of a queue that are in memory in any case."""
_BLOCK = 1024
_MAX_BLOCKS = 256

_CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_WAITED = -1
"""Stands for the code of a pull that has waited."""
_QUEUE_OFFSET, _COMMIT_OFFSET, _OPAQUE = b'"queueOffset":"', b'"commitOffset":"', b'"opaque":'
_SIGNATURE = f'"{SIGNATURE}":"'.encode()
_BINARY_KEY = struct.Struct(">h3xi4x")
"""Code and flag of a key; language, version and the length of the remark are not compared."""
_SLICE = 200
"""Queues that statistics are told of in one go: milliseconds, if they are new to them."""
_CUT_OUT = ("queueOffset", "commitOffset", SIGNATURE)
_PROBE = 123_456_789_012, 987_654_321, 1_234_567
"""Unlikely numbers: if a header decodes to them where they were put, it decodes to any others."""
_MIDDLES = tuple((low + high) / 2 for low, high in pairwise((0.0, *EDGES, 2 * EDGES[-1])))
_PROBE_SIGNATURE = "bm90IGEgc2lnbmF0dXJlISEhISE="
_NOTHING = int(ResponseCode.PULL_NOT_FOUND), ReadStatus.OFFSET_OVERFLOW_ONE.value

PullReply = tuple[bytes, int, int, int, int, int]
"""What `PullReplies.found` returns."""

Outcome = tuple[int, bytes, int]
"""Where serving stopped, the reply if there is one, and why it stopped as a `FallThrough`."""


class PullPath:
    """Serves pulls by plans, and makes the plans; belongs to one event loop."""

    def __init__(
        self,
        pulls: Pulls,
        *,
        gate: Gate,
        plans: Plans,
        fall_throughs: FallThroughs,
        latencies: RpcLatencies,
    ) -> None:
        self._pulls = pulls
        self._parts = parts = pulls.parts
        self._gate = gate
        self._plans = plans
        self._fall_throughs = fall_throughs
        self._store = parts.store
        self._offsets = parts.offsets
        self._statistics = parts.statistics
        self._read_counts = {code: [0] * (len(EDGES) + 1) for code in (*_CODES, _WAITED)}
        """Times of reads by request code and bucket, those of waiting pulls apart; not reported
        yet."""
        self._wait_counts = {code: [0] * (len(BOUNDS) + 1) for code in _CODES}
        """How long pulls waited that got messages, by code and bucket, not reported yet."""
        self._wait_ms = dict.fromkeys(_CODES, 0.0)
        self._longest = 0.0
        self._long_polling = parts.long_polling
        self._now = parts.now
        self._is_slave = pulls.is_slave
        self._log = parts.store.log
        self._near = partial(nearby, parts.store.log)
        self._dispatcher = Dispatcher(latencies=latencies)
        self._latencies = latencies
        self._tallied: list[PullPlan] = []
        """Plans with a tally."""
        self._blocks: dict[tuple[QueueKey, int], bytes | bytearray] = {}
        """Units of queues, a block at a time; they never change while their topic exists."""

    # ---- serving

    def serve(
        self, data: bytes, position: int, connection: Connection, sender: SenderPlans
    ) -> Outcome:
        """Serve the pull at `position`, if a plan covers it and its messages are in memory."""
        request = read_pull(data, position)
        if request is None:
            return position, b"", FallThrough.OTHER_REQUEST
        end, key, queue_offset, commit_offset, opaque = request
        if end - position > connection.max_frame_size:
            return position, b"", FallThrough.TOO_LARGE
        plan = sender.pulls.get(key)
        if plan is None or not plan.is_open:
            sender.candidate = key, opaque
            return position, b"", FallThrough.UNPREPARED
        reason = self._exception_of(plan)
        if plan.signing_key is not None and not plan.signing_key.is_signed(data, position):
            reason = FallThrough.SIGNATURE
        if reason:
            return position, b"", reason
        started = self._now()
        reply, reason = self._read(plan, queue_offset, opaque)
        if reply is not None:
            self._count(plan, reply, started, plan.code)
            data = reply[0]
        elif reason:
            return position, b"", reason
        elif plan.suspends:
            self._hold(WaitingPull(self, plan, queue_offset, opaque, connection))
            data = b""
        else:
            data = self._at_end(plan, queue_offset, opaque)
        self._fall_throughs.served_pulls += 1
        if plan.commits and commit_offset >= 0 and not self._offsets.is_frozen:
            self._offsets.commit(
                plan.group, plan.topic, plan.queue_id, commit_offset, peer=connection.peer
            )
        return end, data, FallThrough.SERVED

    def _exception_of(self, plan: PullPlan) -> int:
        """Why the handlers must serve a pull that has a plan; SERVED if they need not."""
        if self._gate.watches_pulls:
            return FallThrough.HOOK
        if self._is_slave():
            return FallThrough.SLAVE
        if self._offsets.is_reset(plan.group, plan.topic, plan.queue_id):
            return FallThrough.OFFSET_RESET
        return FallThrough.SERVED

    def _read(self, plan: PullPlan, queue_offset: int, opaque: int) -> tuple[PullReply | None, int]:
        """The reply with the messages from an offset on; without one, why there is none.

        No reply and SERVED: the offset is the end of the queue.
        """
        try:
            queue = plan.queue
            if queue is None or queue.tail.is_closed:
                queue = plan.queue = self._store.find_queue(plan.topic, plan.queue_id)
                if queue is None:
                    return None, FallThrough.QUEUE
            log_end = self._log.readable
            low, high = queue.min_offset, queue.tail.end_below(log_end)
            if high <= queue.tail.base:  # the end may lie among the units in the files
                high = queue.end_below(log_end, may_block=False)
            if low <= queue_offset < high:
                units = self._units(plan, queue, queue_offset, high)
                reply = plan.replies.found(
                    opaque, queue_offset, low, high, log_end, units, self._near
                )
                return reply, FallThrough.SERVED if reply else FallThrough.COLD_READ
        except NotInMemory:
            return None, FallThrough.COLD_READ
        except Exception as exc:  # noqa: BLE001  the handlers meet it too, and answer or wait
            self._fall_throughs.failed("pull", exc)
            return None, FallThrough.ERROR
        is_at_end = low <= queue_offset == high > 0
        return None, FallThrough.SERVED if is_at_end else FallThrough.OUT_OF_RANGE

    def _units(
        self, plan: PullPlan, queue: ReadableQueue, queue_offset: int, high: int
    ) -> bytes | bytearray | memoryview:
        """The units that a pull looks at; far from the end they come from a cache of blocks."""
        count = plan.units if plan.units < high - queue_offset else high - queue_offset
        if high - queue_offset < _BLOCK + _NEAR_UNITS:
            return queue.units(queue_offset, count, False)
        number, at = divmod(queue_offset, _BLOCK)
        if at + count > _BLOCK:
            return queue.units(queue_offset, count, False)
        block = self._blocks.get((plan.queue_key, number))
        if block is None:
            block = queue.units(number * _BLOCK, _BLOCK, False)
            if len(block) != _BLOCK * UNIT_SIZE:
                return queue.units(queue_offset, count, False)  # its first files are gone
            if len(self._blocks) >= _MAX_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[plan.queue_key, number] = block
        return memoryview(block)[at * UNIT_SIZE : (at + count) * UNIT_SIZE]

    def forget_units(self) -> None:
        """Empty the cache of units: a topic may have been removed."""
        self._blocks.clear()

    def _at_end(self, plan: PullPlan, queue_offset: int, opaque: int) -> bytes:
        self._statistics.got_nothing()
        self._latencies.add(RpcOutcome(plan.code, ResponseCode.PULL_NOT_FOUND), 0.0)
        self._statistics.caught_up(plan.group, plan.topic, plan.queue_id)
        if plan.tally is not None:
            plan.tally.behind, plan.tally.late = 0, 0.0
        self._offsets.pulled(plan.group, plan.topic, plan.queue_id, queue_offset)
        low = self._store.min_offset(plan.topic, plan.queue_id)
        return plan.replies.empty(_NOTHING, opaque, queue_offset, low, queue_offset)

    # ---- statistics

    def _count(self, plan: PullPlan, reply: PullReply, started: float, code: int) -> None:
        _, next_offset, count, size, behind, stored = reply
        self._offsets.pulled(plan.group, plan.topic, plan.queue_id, next_offset)
        if not count:
            self._statistics.got_nothing()
            outcome = RpcOutcome(plan.code, ResponseCode.PULL_RETRY_IMMEDIATELY)
            self._latencies.add(outcome, self._now() - started)
            return
        tally = plan.tally
        if tally is None:
            plan.tally = tally = PullTally()
            self._tallied.append(plan)
        now = self._now()
        seconds = now - started
        tally.calls += 1
        tally.count += count
        tally.size += size
        tally.seconds += seconds
        tally.behind = behind
        tally.late = now - stored / 1000
        self._read_counts[code][bisect_right(EDGES, seconds * 1000)] += 1
        self._longest = max(self._longest, seconds * 1000)

    def report_tallies(self) -> None:
        """Report what was delivered to the statistics, which ask before they are read."""
        self._report_reads()
        self._report_waits()
        self._report_first(len(self._tallied))

    def report_in_slices(self) -> Iterator[None]:
        """Report most of it; yields every few milliseconds, so that other work can run."""
        for _ in range(len(self._tallied) // _SLICE):  # pulls meanwhile add to the end
            self._report_first(_SLICE)
            yield

    def _report_first(self, count: int) -> None:
        plans = self._tallied[:count]
        del self._tallied[:count]
        for plan in plans:
            tally, plan.tally = plan.tally, None
            assert tally is not None
            key = plan.group, plan.topic, plan.queue_id
            self._statistics.got_by_calls(tally.calls, *key, tally.count, tally.size, tally.seconds)
            self._statistics.fell_behind(*key, tally.behind, max(tally.late, 0.0))
            self._statistics.traffic.pulled(plan.group, plan.topic, tally.count, tally.size)

    def _report_reads(self) -> None:
        """Report the times of reads; without a wait, that of a request is that of its read."""
        for code, counts in self._read_counts.items():
            if not any(counts):
                continue
            self._statistics.get_latencies.add_counts(counts, self._longest)
            if code != _WAITED:
                found = Distribution(EDGES)
                found.counts = counts
                # The middle of each bucket, to save an addition for each pull.
                total = sum(map(mul, counts, _MIDDLES))
                outcome = RpcOutcome(code, ResponseCode.SUCCESS)
                self._latencies.add_counts(outcome, found.within(BOUNDS).counts, total)
            self._read_counts[code] = [0] * (len(EDGES) + 1)

    def _report_waits(self) -> None:
        for code, counts in self._wait_counts.items():
            if any(counts):
                outcome = RpcOutcome(code, ResponseCode.SUCCESS, is_long_polling=True)
                self._latencies.add_counts(outcome, counts, self._wait_ms[code])
                self._wait_counts[code] = [0] * (len(BOUNDS) + 1)
                self._wait_ms[code] = 0.0

    # ---- long polling

    def _hold(self, waiting: "WaitingPull") -> None:
        waiting.connection.expect_reply(waiting, 0)
        self._long_polling.hold(waiting, waiting.plan.max_wait)

    def retry(self, waiting: "WaitingPull", *, is_last: bool) -> bool:
        """Answer a waiting pull if messages have arrived or its time is up; whether it did."""
        if waiting.connection.is_blocked and not is_last:
            waiting.on_room = partial(self._long_polling.wake, waiting)
            return False
        if waiting.is_lost:
            return True
        if not is_last and waiting.pull is None and waiting.plan.is_open:
            answered = self._retry_by_plan(waiting, waiting.plan)
            if answered is not None:
                return answered
        if waiting.pull is None:
            waiting.pull = self._pull_of(waiting)
            encoding = waiting.plan.encoding
            frame = Frame(code=waiting.plan.code, opaque=waiting.opaque, encoding=encoding)
            waiting.address(self._dispatcher, frame, waiting.connection, waiting.since)
        return self._pulls.retry(waiting.pull, waiting, is_last=is_last)

    def forget(self, waiting: "WaitingPull") -> None:
        """Drop a waiting pull whose connection is gone."""
        self._long_polling.drop(waiting)

    def _retry_by_plan(self, waiting: "WaitingPull", plan: PullPlan) -> bool | None:
        """Whether the plan answered the pull; None if the handlers must decide."""
        if self._exception_of(plan):
            return None
        started = self._now()
        reply, reason = self._read(plan, waiting.queue_offset, waiting.opaque)
        if reply is None:
            return None if reason else False
        if not reply[2]:  # none of the messages is wanted: the pull may go on waiting
            return None
        self._count(plan, reply, started, _WAITED)
        waited = (monotonic() - waiting.since) * 1000
        self._wait_counts[plan.code][bisect_left(BOUNDS, waited)] += 1
        self._wait_ms[plan.code] += waited
        waiting.connection.send_expected(waiting, reply[0])
        return True

    def _pull_of(self, waiting: "WaitingPull") -> Pull:
        plan = waiting.plan
        header = msgspec.structs.replace(plan.header, queue_offset=waiting.queue_offset)
        return self._pulls.pull_of(header, plan.admitted, waiting.connection.peer)

    # ---- plans

    def prepare(self, request: Request[PullHeader], admitted: Admitted) -> None:
        """Keep what gate and handler have decided about a pull that they let through."""
        frame, connection = request.frame, request.connection
        sender = self._plans.of(connection)
        if sender.candidate is None or self._gate.watches_pulls or self._is_slave():
            return
        (key, opaque), sender.candidate = sender.candidate, None
        if opaque != frame.opaque:
            return
        if self._parts.cell.value.reject_pull_consumer_enable:  # depends on who else is there
            return
        # Plans read plain consume queues, in which a unit is a message.
        if is_compacted(admitted.topic) or has_batch_queues(admitted.topic):
            return
        if frame.code not in _CODES or frame.flag or not _is_key_of(key, request):
            return
        wanted = self._parts.expiring.wanted(request.header.topic, admitted.wanted)
        presented = self._gate.prepared_for(frame, connection) if _is_plain(wanted) else None
        if presented is not None:
            code = RequestCode(frame.code)
            plan = self._plan_of(code, request.header, admitted, frame.encoding, presented.secret)
            self._plans.add_pull(connection, key, plan)

    def _plan_of(
        self,
        code: RequestCode,
        header: PullHeader,
        admitted: Admitted,
        encoding: HeaderEncoding,
        secret: bytes | None,
    ) -> PullPlan:
        limits = self._pulls.limits(header, from_disk=False)
        wanted = admitted.wanted
        usual, slow, far = self._pulls.suggestions(admitted.group)
        replies = PullReplies(
            binary=encoding is HeaderEncoding.ROCKETMQ,
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
        return PullPlan(
            header,
            admitted,
            replies,
            code=code,
            encoding=encoding,
            units=max(scanned, limits.max_count),
            max_wait=self._pulls.max_wait(header),
            flags=(bool(header.sys_flag & COMMIT), bool(header.sys_flag & SUSPEND)),
            signing_key=None if secret is None else SigningKey(secret),
        )


class WaitingPull(DeferredReply):
    """A pull of a plan that waits: a waiter of `LongPolling` and a reply its connection owes."""

    __slots__ = (
        "_path", "connection", "key", "opaque", "plan", "pull", "queue_offset", "since", "tick",
    )  # fmt: skip

    def __init__(
        self,
        path: PullPath,
        plan: PullPlan,
        queue_offset: int,
        opaque: int,
        connection: Connection,
    ) -> None:
        super().__init__()
        self.is_long_polling = True
        self.since = monotonic()
        self._path = path
        self.plan = plan
        self.connection = connection
        self.key = plan.queue_key
        self.queue_offset = queue_offset
        self.opaque = opaque
        self.pull: Pull | None = None
        """The pull as the handlers see it, once they had to decide."""
        self.tick = 0

    def retry(self, is_last: bool, /) -> bool:
        return self._path.retry(self, is_last=is_last)

    def connection_lost(self) -> None:
        super().connection_lost()
        self._path.forget(self)


def refill(key: bytes, queue_offset: int, commit_offset: int, opaque: int) -> bytes:
    """The JSON header of a key with these numbers. If it decodes to them, so do all of that key.

    Where a signature was cut out, the same is true of that: its letters need no escapes.
    """
    key = key.replace(_QUEUE_OFFSET, _QUEUE_OFFSET + b"%d" % queue_offset, 1)
    key = key.replace(_COMMIT_OFFSET, _COMMIT_OFFSET + b"%d" % commit_offset, 1)
    key = key.replace(_SIGNATURE, _SIGNATURE + _PROBE_SIGNATURE.encode(), 1)
    return key.replace(_OPAQUE, _OPAQUE + b"%d" % opaque, 1)


def _is_key_of(key: bytes, request: Request[PullHeader]) -> bool:
    """Whether a key stands for this request, whatever its numbers and its signature are."""
    if request.frame.encoding is not HeaderEncoding.JSON:
        return _is_binary_key_of(key, request.frame)
    text = refill(key, *_PROBE)
    if not json_fields.is_strict(text):
        return False
    try:
        frame = json_fields.decode(text)
        probe = PullHeader.from_fields(frame.fields)
    except ProtocolError:
        return False
    if (probe.queue_offset, probe.commit_offset, frame.opaque) != _PROBE:
        return False
    probed, given = frame.fields or {}, request.frame.fields or {}
    if SIGNATURE in given and probed.get(SIGNATURE) != _PROBE_SIGNATURE:
        return False
    is_same = frame.code == request.frame.code and frame.flag == request.frame.flag
    return is_same and _constant_fields(probed) == _constant_fields(given)


def _is_binary_key_of(key: bytes, request: Frame) -> bool:
    """As `_is_key_of`; the key has been parsed once, field by field."""
    code, flag = _BINARY_KEY.unpack_from(key)
    fields: dict[str, str] = {}
    at = _BINARY_KEY.size
    while at < len(key):
        end = at + 2 + int.from_bytes(key[at : at + 2])
        name, at = key[at + 2 : end].decode(errors="replace"), end
        if name not in _CUT_OUT:
            end += 4 + int.from_bytes(key[at : at + 4])
            if end > at + 4:  # an empty value is none
                fields[name] = key[at + 4 : end].decode(errors="replace")
            at = end
    is_same = (code, flag) == (request.code, request.flag)
    return is_same and fields == _constant_fields(request.fields or {})


def _constant_fields(fields: dict[str, str]) -> dict[str, str]:
    """What all pulls of a key have in common."""
    return {name: fields[name] for name in fields if name not in _CUT_OUT}


def _is_plain(wanted: MessageFilter) -> bool:
    """Whether compiled code can decide what is wanted."""
    if isinstance(wanted, FunctionFilter) or not isinstance(wanted.record, Sieve | None):
        return False
    if wanted.codes is None:
        return wanted.code is None
    return len(wanted.codes) <= _MAX_CODES
