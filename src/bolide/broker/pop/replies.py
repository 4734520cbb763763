"""What pops are answered with."""

from itertools import count

from bolide.broker.config import BrokerConfig
from bolide.broker.pop.retries import shown
from bolide.broker.pop.serving import Ask, Take, Taken
from bolide.kernel import read_record
from bolide.model.names import is_retry_topic
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.pop import PopHeader, PopReply
from bolide.protocol.pop_info import (
    ORDERED,
    Receipt,
    message_offsets,
    order_counts,
    retry_mark,
    start_offsets,
)
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.remoting.dispatch import Reply

_numbers = count()


def nothing_reply(header: PopHeader, code: ResponseCode, pop_time: int, rest: int) -> Reply:
    """Clients read the numbers whatever the code is."""
    answer = PopReply(
        pop_time=pop_time,
        invisible_time=header.invisible_time,
        revive_qid=ORDERED if header.order else 0,
        rest_num=rest,
    )
    return Reply(code=code, header=answer, remark="NO_MESSAGE_IN_QUEUE")


def found_reply(ask: Ask, taken: Taken, config: BrokerConfig) -> Reply:
    header = ask.header
    revive_queue = ORDERED if header.order else next(_numbers) % config.revive_queue_num
    takes = taken.takes
    counts = [
        order_counts(take.topic, take.queue_id, info.counts or {}, info.least_count)
        for take, info in taken.orders
    ]
    answer = PopReply(
        pop_time=taken.pop_time,
        invisible_time=max(header.invisible_time, 0),
        revive_qid=revive_queue,
        rest_num=taken.rest,
        start_offset_info=start_offsets((take.topic, take.queue_id, take.start) for take in takes),
        msg_offset_info=message_offsets(
            (take.topic, take.queue_id, take.offsets) for take in takes
        ),
        order_count_info=";".join(counts) if header.order else None,
    )
    body = b"".join(_body(ask, taken, take, revive_queue, config) for take in takes)
    return Reply(header=answer, body=body, remark="FOUND")


def _body(ask: Ask, taken: Taken, take: Take, revive_queue: int, config: BrokerConfig) -> bytes:
    if not is_retry_topic(take.topic) or config.pop_response_return_actual_retry_topic:
        return b"".join(take.found.records)
    if take.topic == ask.header.topic:
        return b"".join(take.found.records)
    return b"".join(
        _renamed(ask, taken, take, record, revive_queue, config.broker_name)
        for record in take.found.records
    )


def _renamed(
    ask: Ask, taken: Taken, take: Take, data: memoryview, revive_queue: int, broker_name: str
) -> bytes:
    try:
        record = read_record(data)
    except BadRecord:
        return bytes(data)  # its consumer finds out
    assert isinstance(record, Record)
    receipt = Receipt(
        take.start, taken.pop_time, max(ask.header.invisible_time, 0), revive_queue,
        retry_mark(take.topic), broker_name, take.queue_id, record.queue_offset,
    )  # fmt: skip
    return shown(record, ask.header.topic, receipt)
