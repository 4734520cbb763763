"""Plain sends and transactions on the fast path: from received bytes into the log, plan by plan."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from operator import attrgetter
from time import monotonic
from time import time as wall_clock
from typing import Any

import msgspec

from bolide.broker.fast_path._sends import SendFlow, SendPlans, SendTarget, find_ends
from bolide.broker.fast_path.fall_through import FallThrough, FallThroughs
from bolide.broker.fast_path.plans import HEADER_AT, SENDS, Plans, SenderPlans
from bolide.broker.gate import Gate, access_key_of
from bolide.broker.metadata.topic_attributes import has_window, is_compacted
from bolide.broker.metadata.topics import validate_topic
from bolide.broker.metrics.traffic import FIFO, NORMAL, TRANSACTION
from bolide.broker.produce.addressing import BrokerProperties
from bolide.broker.produce.durability import Durability, unavailable
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.broker.transactions.half_queue import HalfQueue
from bolide.config import ConfigCell
from bolide.model.message import Host, TransactionType
from bolide.model.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    WRITE,
    is_dead_letter_topic,
    is_retry_topic,
    is_sendable,
)
from bolide.model.properties import PropertyName
from bolide.protocol import binary_fields
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import FrameDecoder, encode_frame
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.headers.transactions import EndTransactionHeader
from bolide.protocol.hosts import pack_host
from bolide.protocol.message_id import OffsetId
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import MAX_V1_TOPIC_SIZE
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Request
from bolide.remoting.latencies import BOUNDS, RpcLatencies, RpcOutcome
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import StoreUnwritable
from bolide.store.tables import has_batch_queues
from bolide.version import ROCKETMQ_VERSION

_OFFSET_DIGITS = 16
_ERROR = int(FallThrough.ERROR)
_MAX_NAME = 512
"""Bytes of the longest group, with a topic, that plans are made for."""
_MAX_MESSAGES = 500
"""Messages served under one hold of the append lock: other appends wait meanwhile."""

_SLICE = 200
"""Queues that statistics are told of in one go: milliseconds, if they are new to them."""

_REQUESTS = (
    RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.END_TRANSACTION,
)  # fmt: skip
"""In the order in which the flow counts them."""

Served = tuple[int, int, int]
"""How many of each were served."""

Outcome = tuple[int, bytes, int]
"""Where serving stopped, the replies so far, and why it stopped as a `FallThrough`."""


class SendPath:
    """Serves sends by plans, and makes the plans; belongs to one event loop."""

    def __init__(  # noqa: PLR0913  it stands beside the handlers and needs what they need
        self,
        *,
        cell: ConfigCell[BrokerConfig],
        store_cell: ConfigCell[StoreConfig],
        store: Store,
        intake: Intake,
        durability: Durability,
        statistics: Statistics,
        store_host: Host,
        gate: Gate,
        halves: HalfQueue,
        plans: Plans,
        fall_throughs: FallThroughs,
        latencies: RpcLatencies,
    ) -> None:
        digits = OffsetId(store_host, 0).encode()[:-_OFFSET_DIGITS]
        self._flow = SendFlow(
            pack_host(store_host), digits, _system_target(HALF_TOPIC), _system_target(OP_HALF_TOPIC)
        )
        self._store = store
        self._reserve = store.reserve
        self._publish = store.publish
        self._is_enabled = store.takes_raw_records
        self._intake = intake
        self._durability = durability
        self._gate = gate
        self._hooks = gate.hooks
        self._statistics = statistics
        self._fresh: list[tuple[str, int, int, int, float]] = []
        """What statistics are to be told: topic, queue, messages, bytes, seconds of each."""
        self._halves = halves
        self._plans = plans
        self._fall_throughs = fall_throughs
        self._latencies = latencies
        self._requests = [[0] * (len(BOUNDS) + 1) for _ in _REQUESTS]
        """Requests by kind and bucket of their latency, not reported yet."""
        self._request_ms = [0.0] * len(_REQUESTS)
        self._traffic = statistics.traffic
        self._cell = cell
        self._store_cell = store_cell
        self._count = 0
        """Messages of this burst."""
        self._seconds = 0.0
        """Seconds that their appends took."""
        self._unreported = 0.0
        """Seconds of appends that the statistics of the queues have not been told of."""
        self._log_end = 0
        self.configure()

    def configure(self) -> None:
        """Take over the settings."""
        config = self._cell.value
        self._properties = BrokerProperties.of(config)
        fields = self._properties.answer.to_fields()
        reply_fields, reply_end = _json_reply_parts(fields)
        binary_head, binary_tail = _binary_reply_parts(fields)
        self._flow.configure(
            suffix=self._properties.suffix.encode(),
            reply_fields=reply_fields,
            reply_end=reply_end,
            binary_head=binary_head,
            binary_fields=binary_tail,
            max_body=self._store_cell.value.max_message_size,
            max_batch=config.max_batch_count,
        )

    # ---- plans

    def prepare(self, request: Request[SendHeader], header: SendHeader, topic: TopicConfig) -> None:
        """Keep what gate and handler have decided about a send that they let through."""
        config, frame = self._cell.value, request.frame
        if not self._is_enabled or self._gate.watches_sends or not is_plain_topic(topic, config):
            return
        if config.start_accept_send_request_time_stamp > 0:
            return
        targets_in = _find_targets(frame.code, header)
        if targets_in is None:
            return
        name = topic.topic_name.encode()
        plans = self._plans.find_sends(request.connection, access_key_of(frame))
        known = None if plans is None else targets_in(plans).get(name)
        if known is not None and known.is_open:
            return
        plans = self._new_plans(request)
        if plans is not None:
            targets_in(plans)[name] = self._target(name, topic)

    def prepare_end(self, request: Request[EndTransactionHeader]) -> None:
        """Keep that a sender may end the transactions of its producer group."""
        if not self._is_enabled or self._gate.watches_sends:
            return
        header, connection = request.header, request.connection
        named = (
            [header.producer_group]
            if header.topic is None
            else [header.producer_group, header.topic]
        )
        name = "\0".join(named).encode(errors="surrogatepass")
        plans = self._plans.find_sends(connection, access_key_of(request.frame))
        if (plans is not None and name in plans.ends) or len(name) > _MAX_NAME:
            return
        plans = self._new_plans(request)
        if plans is not None:
            plans.ends.add(name)
            self._plans.of(connection).sends.signed_ends |= plans.access_key is not None

    def _new_plans(self, request: Request[Any]) -> SendPlans | None:
        """The plans that one is about to be added to; None if it is for no other request."""
        presented = self._gate.prepared_for(request.frame, request.connection)
        if presented is None:
            return None
        self._plans.reserve()
        return self._plans.sends_of(request.connection, presented)

    def _target(self, name: bytes, topic: TopicConfig) -> SendTarget:
        target = self._plans.find_target(name)
        if target is None:
            queues = max(topic.write_queue_nums, topic.read_queue_nums)
            target = SendTarget(name, queues, has_window(topic))
            self._plans.add_target(target)
        return target

    # ---- serving

    def serve(  # noqa: C901, PLR0911  called for every buffer, where each further call costs 1 %
        self, data: bytes, position: int, connection: Connection, sender: SenderPlans
    ) -> Outcome:
        """Serve the sends and ends of transactions at `position`, as far as plans cover them.

        Replies that wait for the disk are sent later.
        """
        plans, flow, hooks = sender.sends, self._flow, self._hooks
        if not plans or hooks.send or hooks.request:
            return position, b"", self._reason_without_plans(data, position)
        started = monotonic()
        claimed = self._claim(data, position) if plans.ends or plans.signed_ends else None
        try:
            room = self._reserve()
        except Exception as exc:  # noqa: BLE001  the handlers meet it too and answer
            self._fall_throughs.failed("send", exc)
            room = None
        if room is None:
            self._complete_ends(claimed)
            return position, b"", FallThrough.STORE
        end, replies, written, count, reason = position, b"", 0, 0, _ERROR
        try:
            end, replies, written, count, reason = flow.run(
                data,
                position,
                connection.max_frame_size,
                _MAX_MESSAGES,
                sender.born_host,
                plans,
                claimed,
                room,
            )
        except Exception as exc:  # noqa: BLE001  the handlers meet it too and answer
            self._fall_throughs.failed("send", exc)
        finally:  # in every case: it releases the append lock
            log_end, generation = self._publish(
                room, written, count, flow.last_record, flow.drain_changed()
            )
        if claimed is not None:
            self._complete_ends(claimed)
        if reason:
            reason = self._handle_stop(reason)
            if end == position:
                if reason:
                    return position, b"", reason
                return self.serve(data, position, connection, sender)
        elif end == position:
            return position, b"", reason
        self._count += count
        self._log_end = log_end
        seconds = monotonic() - started
        self._seconds += seconds
        self._unreported += seconds
        if self._intake.ending is None:
            self._intake.expect_end()
        if self._durability.answers_wait:
            served = flow.drain_requests()
            waiting = _ReplyOnDurable(
                self, connection, replies, log_end, generation, (started, served)
            )
            connection.expect_reply(waiting, end - position)
            self._durability.add_waiter(waiting)
            return end, b"", reason
        self._count_requests(flow.drain_requests(), seconds)
        return end, replies, reason

    def _handle_stop(self, reason: int) -> int:
        """Open the queue that the flow lacked, or log its error; SERVED if it can go on."""
        flow = self._flow
        if reason == FallThrough.QUEUE and flow.missing_queue is not None:
            target, queue_id = flow.missing_queue
            target.open_queue(queue_id, self._store.tail(target.topic, queue_id))
            return FallThrough.SERVED
        if flow.error is not None:
            self._fall_throughs.failed("send", flow.error)
        return reason

    def _reason_without_plans(self, data: bytes, position: int) -> FallThrough:
        """Why a request of a sender without plans, or one that a hook watches, is not served."""
        received = len(data) - position
        if received < 8 or received < 4 + int.from_bytes(data[position : position + 4]):
            return FallThrough.SERVED  # the frame is incomplete
        if not data.startswith(SENDS, position + HEADER_AT):
            return FallThrough.OTHER_REQUEST
        return FallThrough.HOOK if self._gate.watches_sends else FallThrough.UNPREPARED

    def _claim(self, data: bytes, position: int) -> set[int]:
        """Mark the half messages as ended that the received requests are about to end.

        Under the append lock nothing outside the flow can be asked; what the flow does not end is
        open again afterwards.
        """
        return {each for each in find_ends(data, position) if self._halves.claim(each)}

    def _complete_ends(self, claimed: set[int] | None) -> None:
        for queue_offset, state, op_offset, topic, born in self._flow.drain_ended():
            self._halves.record_end(queue_offset, state, op_offset)
            if state == TransactionType.COMMIT:
                self._traffic.transaction_committed(topic, wall_clock() - born / 1000)
            else:
                self._traffic.transaction_rolled_back(topic)
            self._count -= 1  # its op message is internal and does not count as a send
        for queue_offset in claimed or ():
            self._halves.open.reopen(queue_offset)

    # ---- bursts and statistics

    def end_burst(self) -> None:
        """Count the sends of a burst, and report its queues if a consumer waits."""
        if self._count:
            self._fall_throughs.served_sends += self._count
            self._statistics.add_put_latency(self._count, self._seconds / self._count)
            self._count, self._seconds = 0, 0.0
        if self._intake.is_awaited:
            self.report_queues()

    def report_queues(self) -> None:
        """Report by queue what was appended since the last time: to statistics and long polling."""
        self._take_fresh()
        self._report_first(len(self._fresh))

    def report_in_slices(self) -> Iterator[None]:
        """Report most of it; yields every few milliseconds, so that other work can run."""
        self._take_fresh()
        for _ in range(len(self._fresh) // _SLICE):  # sends meanwhile add to the end
            self._report_first(_SLICE)
            yield

    def _report_first(self, count: int) -> None:
        fresh = self._fresh[:count]
        del self._fresh[:count]
        for each in fresh:
            self._statistics.sent_singly(*each)

    def _take_fresh(self) -> None:
        # With SYNC_FLUSH messages cannot be read yet: a pull that comes now will have to wait.
        may_wait = self._intake.is_awaited or self._durability.waits
        touched = [
            (topic, queue_id, *tail.take_fresh())
            for topic, queue_id, tail in self._flow.drain_touched()
        ]
        sent = sum(count for topic, _, count, _ in touched if topic != OP_HALF_TOPIC)
        each = self._unreported / (sent or 1)
        self._unreported = 0.0
        for topic, queue_id, count, size in touched:
            if topic != OP_HALF_TOPIC:  # op messages are internal and do not count as sends
                self._fresh.append((topic, queue_id, count, size, each))
            if may_wait:
                self._intake.touch(topic, queue_id, self._log_end)

    def _count_requests(self, served: Served, seconds: float) -> None:
        """Count the requests of a run; all of them were answered at its end."""
        milliseconds = seconds * 1000
        bucket = bisect_left(BOUNDS, milliseconds)
        for kind, count in enumerate(served):
            if count:
                self._requests[kind][bucket] += count
                self._request_ms[kind] += milliseconds * count

    def report_traffic(self) -> None:
        """Report requests and sizes of messages to what metrics count."""
        for kind, code in enumerate(_REQUESTS):
            if any(self._requests[kind]):
                outcome = RpcOutcome(code, ResponseCode.SUCCESS)
                self._latencies.add_counts(outcome, self._requests[kind], self._request_ms[kind])
                self._requests[kind] = [0] * (len(BOUNDS) + 1)
                self._request_ms[kind] = 0.0
        for target in self._flow.drain_counted():
            is_half = target.name == HALF_TOPIC
            for name, (sizes, total) in zip((NORMAL, FIFO), target.take_sizes(), strict=True):
                if total:
                    message_type = TRANSACTION if is_half else name
                    self._traffic.counts_in(target.name, message_type, sizes, total)

    # ---- replies that wait for the disk

    def replies_for(self, replies: bytes, outcome: int | StoreUnwritable) -> bytes:
        """The replies to send in place of those that were written when the store accepted."""
        frames = FrameDecoder().feed(replies)
        return b"".join([encode_frame(self._reply_for(frame, outcome)) for frame in frames])

    def _reply_for(self, reply: Frame, outcome: int | StoreUnwritable) -> Frame:
        if not isinstance(outcome, StoreUnwritable):
            reply.code = outcome
            return reply
        self._statistics.failed()
        return Frame(
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
            fields=self._properties.answer.to_fields(),
            flag=FrameFlag.RESPONSE,
            opaque=reply.opaque,
            encoding=reply.encoding,
            remark=unavailable(outcome).remark,
        )

    def now(self) -> float:
        return self._durability.now()

    def answered(self, served: Served, started: float, outcome: int) -> None:
        """Count requests that waited for the disk."""
        seconds = monotonic() - started
        for code, count in zip(_REQUESTS, served, strict=True):
            if count:
                self._latencies.add(RpcOutcome(code, outcome), seconds, count)


class _ReplyOnDurable:
    """Replies that leave when their messages are durable."""

    __slots__ = ("_connection", "_path", "_replies", "_served", "end", "generation", "since")

    def __init__(
        self,
        path: SendPath,
        connection: Connection,
        replies: bytes,
        end: int,
        generation: int,
        served: tuple[float, Served],
    ) -> None:
        self._path = path
        self._connection = connection
        self._replies = replies
        self._served = served
        self.end = end
        self.generation = generation
        self.since = path.now()

    def complete(self, outcome: int | StoreUnwritable, /) -> None:
        replies = self._replies
        if outcome is not ResponseCode.SUCCESS:
            replies = self._path.replies_for(replies, outcome)
        started, served = self._served
        if isinstance(outcome, StoreUnwritable):
            outcome = ResponseCode.SERVICE_NOT_AVAILABLE
        self._path.answered(served, started, outcome)
        self._connection.send_expected(self, replies or None)

    def connection_lost(self) -> None:
        """The connection is gone: the messages stay, the replies go nowhere."""

    def peer_reads_again(self) -> None:
        """The replies wait for the disk, not for the peer."""


def is_plain_topic(topic: TopicConfig, config: BrokerConfig) -> bool:
    """Whether sends to a topic need none of the special treatment that handlers know."""
    name = topic.topic_name
    return bool(
        topic.perm & WRITE
        and (config.broker_permission & WRITE or not topic.order)
        and topic.topic_filter_type == "SINGLE_TAG"
        and not is_compacted(topic)
        and not has_batch_queues(topic)
        and len(name) <= MAX_V1_TOPIC_SIZE
        and is_sendable(name)
        and not name.startswith(SYSTEM_TOPIC_PREFIX)  # read by the broker itself
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


def _system_target(topic: str) -> SendTarget:
    return SendTarget(topic.encode(), 1, False)


def _find_targets(
    code: int, header: SendHeader
) -> Callable[[SendPlans], dict[bytes, SendTarget]] | None:
    """Where plans of the kind that a request is of are kept; None if the fast path serves none."""
    if code == RequestCode.SEND_BATCH_MESSAGE:
        return attrgetter("batches") if header.batch else None
    if code != RequestCode.SEND_MESSAGE_V2 or header.batch:
        return None
    if PropertyName.TRANSACTION_PREPARED not in header.properties:
        return attrgetter("singles")
    prepared = decode_properties(header.properties).get(PropertyName.TRANSACTION_PREPARED)
    return attrgetter("halves") if prepared == "true" else None


def _json_reply_parts(fields: dict[str, str]) -> tuple[bytes, bytes]:
    """What every JSON reply has before its opaque, behind the fields of its own, and after it."""
    shared = msgspec.json.encode(fields)[1:]
    return (
        shared + b',"flag":1,"language":"PYTHON","opaque":',
        f',"serializeTypeCurrentRPC":"JSON","version":{ROCKETMQ_VERSION}}}'.encode(),
    )


def _binary_reply_parts(fields: dict[str, str]) -> tuple[bytes, bytes]:
    """A binary reply header up to its fields, and the last of these."""
    head = binary_fields.encode(Frame(flag=FrameFlag.RESPONSE))
    return head, binary_fields.encode(Frame(fields=fields))[len(head) :]
