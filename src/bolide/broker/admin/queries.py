"""Look-ups of messages by key or offset, and of queue entries (`QueryMessageProcessor`)."""

from bolide.auth.access import FoundMessageCheck
from bolide.broker.background import ADMIN, message_at, on_thread
from bolide.broker.filters.subscriptions import FilterTable
from bolide.broker.metadata.clients import ClientTable
from bolide.protocol import fastjson
from bolide.protocol.bodies.queues import ConsumeQueueEntry, ConsumeQueueSlice
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.protocol.headers.query import (
    ConsumeQueueHeader,
    IndexType,
    QueryMessageHeader,
    QueryMessageReply,
    ViewMessageHeader,
)
from bolide.protocol.record import Record, read_record
from bolide.protocol.refusals import InvalidParameter, ServerError
from bolide.protocol.tags import tags_key
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.queries import Queries
from bolide.store.reading import ReadableQueue

_MAX_BYTES = MAX_FRAME_SIZE - 64 * 1024
"""Maximum size of the messages in a reply; the rest of the frame is for its header."""
_MAX_ENTRIES = 10_000


class QueryHandlers:
    """Looks up messages in the store; disk reads run on a thread."""

    def __init__(
        self,
        *,
        store: Queries,
        clients: ClientTable,
        filters: FilterTable,
        check_found: FoundMessageCheck | None = None,
    ) -> None:
        self._store = store
        self._clients = clients
        self._filters = filters
        self._check_found = check_found or FoundMessageCheck()

    @handles(QueryMessageHeader, RequestCode.QUERY_MESSAGE)
    async def query(self, request: Request[QueryMessageHeader]) -> Reply:
        header = request.header
        if header.max_num < 1:
            raise InvalidParameter(f"maxNum={header.max_num}: ask for at least one message")
        body = await on_thread(ADMIN, self._find, header)
        index_end = QueryMessageReply(*self._store.index_end())
        if not body:
            remark = "can not find message, maybe time range not correct"
            return Reply(code=ResponseCode.QUERY_NOT_FOUND, header=index_end, remark=remark)
        return Reply(header=index_end, body=body)

    def _find(self, header: QueryMessageHeader) -> bytes:
        by_tags = header.index_type == IndexType.TAGS and not header.by_unique_key
        found = self._store.find(
            header.topic,
            tags_key(header.key) if by_tags else header.key,
            limit=None if header.by_unique_key else header.max_num,
            begin=header.begin_timestamp,
            end=header.end_timestamp,
        )
        return _joined(found)

    @handles(ViewMessageHeader, RequestCode.VIEW_MESSAGE_BY_ID)
    async def view(self, request: Request[ViewMessageHeader]) -> Reply:
        physical_offset = request.header.offset
        found = await message_at(self._store, physical_offset)
        if found is None:
            raise ServerError(
                f"can not find message by the offset, {physical_offset}: no message begins there,"
                f" or it was deleted; the store has messages from {self._store.log.min_offset}"
                f" to {self._store.log.written}"
            )
        record = read_record(found)
        if isinstance(record, Record):
            self._check_found(request, record)
        return Reply(body=found)

    @handles(ConsumeQueueHeader, RequestCode.QUERY_CONSUME_QUEUE)
    async def consume_queue(self, request: Request[ConsumeQueueHeader]) -> Reply:
        header = request.header
        queue = self._store.find_queue(header.topic, header.queue_id)
        if queue is None:
            raise ServerError(f"{header.queue_id}@{header.topic} is not exist!")
        body = ConsumeQueueSlice(
            min_queue_index=queue.min_offset,
            max_queue_index=queue.end_below(self._store.log.readable),
        )
        if header.consumer_group is not None:
            self._add_subscription(body, header.consumer_group, header.topic)
        is_inside = body.min_queue_index <= header.index < body.max_queue_index
        count = min(header.count, body.max_queue_index - header.index, _MAX_ENTRIES)
        body.queue_data = (
            await on_thread(ADMIN, _entries, queue, header.index, count) if is_inside else []
        )
        where = f"{header.queue_id}@{header.topic}"
        remark = None if is_inside else f"Index {header.index} of {where} is not exist!"
        return Reply(body=fastjson.encode(body), remark=remark)

    def _add_subscription(self, body: ConsumeQueueSlice, group: str, topic: str) -> None:
        body.subscription_data = self._clients.subscription(group, topic)
        if body.subscription_data is None:
            body.filter_data = f"{group}@{topic} is not online!"
        elif found := self._filters.find(topic, group):
            found.dead = found.is_dead()
            body.filter_data = fastjson.encode(found).decode()
        else:
            body.filter_data = "null"  # what Java prints of a filter that is not there


def _entries(queue: ReadableQueue, queue_offset: int, count: int) -> list[ConsumeQueueEntry]:
    return [
        ConsumeQueueEntry(
            physic_offset=unit.physical_offset, physic_size=unit.size, tags_code=unit.tags_code
        )
        for unit in queue.read(queue_offset, max(count, 0))
    ]


def _joined(records: list[memoryview]) -> bytes:
    """Copy as many records as fit into a reply, before the log can drop their file."""
    size = 0
    kept: list[memoryview] = []
    for record in records:
        size += len(record)
        if kept and size > _MAX_BYTES:
            break
        kept.append(record)
    return b"".join(kept)
