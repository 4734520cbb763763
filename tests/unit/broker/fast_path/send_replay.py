"""What gate and handlers would store and reply for the requests that the fast path has served.

It decodes frames, writes records and replies with the ordinary codecs, and addresses half messages
with the functions of the handlers: nothing of it is shared with the compiled code.
"""

import struct

from bolide.broker.produce.addressing import is_stored_as_is
from bolide.broker.transactions.half_messages import Half, half_draft, op_draft
from bolide.kernel import records
from bolide.model.message import TransactionType
from bolide.model.properties import PropertyName
from bolide.protocol.batch import iter_batch
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.framing import FrameDecoder, encode_frame
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.headers.transactions import EndTransactionHeader
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record import RecordDraft

Touched = tuple[str, int, int, bytes]
"""Topic, queue id, units added, and all units of the queue."""

_UNIT = struct.Struct(">qIq")
_KEY = struct.Struct(">Iqq")


class Replay:
    """A log, its queues and keys, and the replies, of a broker that has only handlers."""

    def __init__(
        self,
        *,
        start: int,
        timestamp: int,
        suffix: str,
        born_host: bytes,
        store_host: bytes,
        host_digits: str,
        region: str,
    ) -> None:
        self._start = start
        self._timestamp = timestamp
        self._suffix = suffix
        self._born_host = born_host
        self._store_host = store_host
        self._host_digits = host_digits
        self._region = region
        self.log = bytearray()
        self.keys = bytearray()
        self.last_record = -1
        self._replies = bytearray()
        self._messages = 0
        self._ended: list[tuple[int, int, int]] = []
        self._queues: dict[tuple[str, int], bytearray] = {}
        self._touched: dict[tuple[str, int], int] = {}

    def serve(self, data: bytes) -> None:
        """Serve whole frames."""
        decoder = FrameDecoder()
        for frame in decoder.feed(data):
            assert not frame.is_response
            assert frame.remark is None
            if frame.code == RequestCode.END_TRANSACTION:
                self._end(frame, EndTransactionHeader.from_fields(frame.fields))
            else:
                self._send(frame, SendHeader.from_short(frame.fields))
        assert decoder.error is None
        assert not decoder.buffered

    def drain(self) -> tuple[bytes, int, list[Touched], list[tuple[int, int, int]]]:
        """Replies, messages, touched queues and ended transactions since the last call."""
        touched = [(*key, count, bytes(self._queues[key])) for key, count in self._touched.items()]
        drained = bytes(self._replies), self._messages, touched, self._ended
        self._replies, self._messages, self._touched, self._ended = bytearray(), 0, {}, []
        return drained

    def _send(self, frame: Frame, header: SendHeader) -> None:
        is_batch = frame.code == RequestCode.SEND_BATCH_MESSAGE
        assert frame.code == RequestCode.SEND_MESSAGE_V2 or is_batch
        assert (header.batch, header.reconsume_times, header.unit_mode) == (is_batch, 0, False)
        assert frame.body
        own = decode_properties(header.properties)
        draft = RecordDraft(
            header.topic.encode(), frame.body, self._marked(header.properties.encode()),
            header.queue_id, header.born_timestamp, self._born_host, self._store_host,
            header.flag, header.sys_flag,
        )  # fmt: skip
        if is_batch:
            drafts = self._batch(frame, header, draft)
        elif PropertyName.TRANSACTION_PREPARED in own:
            assert own[PropertyName.TRANSACTION_PREPARED] == "true"
            marked = own | decode_properties(self._suffix)
            drafts = [half_draft(draft, marked, header.producer_group)]
        else:
            assert is_stored_as_is(header.properties)
            drafts = [draft]
        places = [self._store(each) for each in drafts]
        if not frame.is_one_way:
            reply = SendReply(
                msg_id=",".join([f"{self._host_digits}{place:016X}" for place, _ in places]),
                queue_id=header.queue_id,
                queue_offset=places[0][1],
                transaction_id=None if is_batch else own[PropertyName.UNIQUE_ID],
                region=self._region,
                trace_on=True,
            )
            self._reply(frame, reply.to_fields())

    def _batch(self, frame: Frame, header: SendHeader, draft: RecordDraft) -> list[RecordDraft]:
        """The messages of a batch have its properties but its id, behind their own."""
        assert is_stored_as_is(header.properties)
        assert header.sys_flag == 0
        common = decode_properties(header.properties)
        common.pop(PropertyName.UNIQUE_ID, None)
        drafts = []
        for item in iter_batch(frame.body):
            properties = bytes(item.properties)
            assert is_stored_as_is(str(properties, "utf-8", "replace"))
            marked = self._marked(properties, encode_properties(common))
            drafts.append(draft._replace(body=bytes(item.body), flag=item.flag, properties=marked))
        assert drafts
        return drafts

    def _end(self, frame: Frame, header: EndTransactionHeader) -> None:
        record = records.read_record(bytes(self.log), header.commit_log_offset - self._start)
        half = Half.find(bytes(self.log[header.commit_log_offset - self._start :][: record.size]))
        assert half is not None
        assert (half.group, half.queue_offset) == (
            header.producer_group,
            header.tran_state_table_offset,
        )
        state = TransactionType(header.commit_or_rollback)
        assert state in {TransactionType.COMMIT, TransactionType.ROLLBACK}
        if state is TransactionType.COMMIT:
            self._store(half.committed_draft(self._store_host, half.queue_id))
        op = op_draft(half, state, self._store_host, 0.0)._replace(born_timestamp=self._timestamp)
        self._ended.append((half.queue_offset, int(state), self._store(op)[1]))
        if not frame.is_one_way:
            self._reply(frame, None)

    def _store(self, draft: RecordDraft) -> tuple[int, int]:
        """Returns physical offset and queue offset."""
        place, key = self._start + len(self.log), (draft.topic.decode(), draft.queue_id)
        queue = self._queues.setdefault(key, bytearray())
        queue_offset = len(queue) // _UNIT.size
        record = bytearray(records.record_size(draft))
        records.write_record(record, 0, draft, queue_offset, place, self._timestamp)
        code, hashes = records.describe(draft.topic, draft.properties)
        queue += _UNIT.pack(place, len(record), code)
        self.log += record
        for each in hashes:
            self.keys += _KEY.pack(each, place, self._timestamp)
        self._touched[key] = self._touched.get(key, 0) + 1
        self._messages += 1
        self.last_record = place
        return place, queue_offset

    def _reply(self, frame: Frame, fields: dict[str, str] | None) -> None:
        self._replies += encode_frame(
            Frame(
                flag=FrameFlag.RESPONSE, opaque=frame.opaque, encoding=frame.encoding,
                fields=fields,
            )
        )  # fmt: skip

    def _marked(self, properties: bytes, common: str = "") -> bytes:
        joint = b"" if not properties or properties.endswith(b"\x02") else b"\x02"
        return properties + joint + common.encode() + self._suffix.encode()
