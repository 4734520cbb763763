"""Offset requests: committed offsets and the bounds of queues (`ConsumerManageProcessor`)."""

from bolide.broker.background import COLD_READS, on_thread
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topics import TopicTable
from bolide.model.names import BROKER_GROUPS
from bolide.protocol import fastjson
from bolide.protocol.bodies.offsets import CorrectionOffsets
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import (
    CloneOffsetsHeader,
    CommitOffsetHeader,
    CorrectionOffsetHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeReply,
)
from bolide.protocol.refusals import (
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    QueryNotFound,
    ServiceNotAvailable,
)
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.contract import Store

_LONG_MAX = 2**63 - 1


class OffsetHandlers:
    """Stores and returns committed offsets, and looks up offsets of queues."""

    def __init__(
        self,
        *,
        store: Store,
        offsets: OffsetTable,
        groups: GroupTable,
        topics: TopicTable,
        clients: ClientTable,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._clients = clients

    @handles(QueryOffsetHeader, RequestCode.QUERY_CONSUMER_OFFSET)
    async def query(self, request: Request[QueryOffsetHeader]) -> Reply:
        header = request.header
        offset = self._offsets.find(header.consumer_group, header.topic, header.queue_id)
        if offset is not None and offset >= 0:
            return Reply(header=OffsetReply(offset))
        if header.set_zero_if_not_found is False:
            raise QueryNotFound("Not found, do not set to zero, maybe this group boot first")
        # A new group starts at 0 if the whole queue may still be in memory.
        if await on_thread(COLD_READS, self._is_recent, header.topic, header.queue_id):
            return Reply(header=OffsetReply(0))
        raise QueryNotFound("Not found, maybe this group consumer boot first")

    def _is_recent(self, topic: str, queue_id: int) -> bool:
        if self._store.min_offset(topic, queue_id) > 0:
            return False
        return self._store.is_recent(topic, queue_id, 0)

    @handles(CommitOffsetHeader, RequestCode.UPDATE_CONSUMER_OFFSET)
    def commit(self, request: Request[CommitOffsetHeader]) -> Reply:
        header = request.header
        self._validate(header)
        if self._offsets.is_frozen:
            raise ServiceNotAvailable(
                "no controller confirms that this broker is the master: commit again later"
            )
        is_committed = self._offsets.commit(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
            peer=request.connection.peer,
        )
        return Reply(remark=None if is_committed else "Offset has been previously reset")

    def _validate(self, header: CommitOffsetHeader) -> None:
        if header.consumer_group in BROKER_GROUPS:
            raise NoPermission(f"the offsets of {header.consumer_group} are the broker's own")
        if header.consumer_group not in self._groups:
            raise GroupNotFound(f"Group {header.consumer_group} not exist!")
        topic = self._topics.require(header.topic)
        if header.commit_offset < 0:
            raise InvalidParameter(
                f"offset {header.commit_offset} cannot be committed: it is negative"
            )
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if not 0 <= header.queue_id < queues and not self._is_former_queue(header):
            raise InvalidParameter(
                f"topic {header.topic} has no queue {header.queue_id}: its queues are 0"
                f" to {queues - 1}"
            )

    def _is_former_queue(self, header: CommitOffsetHeader) -> bool:
        """Whether the topic had this queue before its number of queues was reduced."""
        return self._store.max_offset(header.topic, header.queue_id) > 0

    # ---- bounds of a queue

    @handles(SearchOffsetHeader, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    async def search(self, request: Request[SearchOffsetHeader]) -> Reply:
        header = request.header
        offset = await on_thread(
            COLD_READS,
            self._store.offset_at,
            header.topic,
            header.queue_id,
            header.timestamp,
            header.boundary_type,
        )
        return Reply(header=OffsetReply(offset))

    @handles(MaxOffsetHeader, RequestCode.GET_MAX_OFFSET)
    def max_offset(self, request: Request[MaxOffsetHeader]) -> Reply:
        header = request.header
        return Reply(header=OffsetReply(self._store.max_offset(header.topic, header.queue_id)))

    @handles(QueueHeader, RequestCode.GET_MIN_OFFSET)
    def min_offset(self, request: Request[QueueHeader]) -> Reply:
        header = request.header
        return Reply(header=OffsetReply(self._store.min_offset(header.topic, header.queue_id)))

    @handles(QueueHeader, RequestCode.GET_EARLIEST_MSG_STORETIME)
    async def earliest_time(self, request: Request[QueueHeader]) -> Reply:
        header = request.header
        timestamp = await on_thread(
            COLD_READS, self._store.earliest_time, header.topic, header.queue_id
        )
        return Reply(header=StoreTimeReply(timestamp))

    # ---- for administrators

    @handles(CorrectionOffsetHeader, RequestCode.QUERY_CORRECTION_OFFSET)
    def correction(self, request: Request[CorrectionOffsetHeader]) -> Reply:
        """Lowest offset of all groups by queue, to which a restarted group is corrected.

        A queue in which the compared group is behind all others gets the maximum, as in RocketMQ.
        """
        header = request.header
        excluded = set((header.filter_groups or "").split(","))
        lowest = self._lowest_offsets(header.topic, excluded)
        for queue_id, offset in self._offsets.of(header.compare_group, header.topic).items():
            if lowest.get(queue_id, offset) > offset:
                lowest[queue_id] = _LONG_MAX
        return Reply(body=fastjson.encode(CorrectionOffsets(correction_offsets=lowest)))

    def _lowest_offsets(self, topic: str, excluded: set[str]) -> dict[int, int]:
        """Lowest offset of all groups by queue; offsets below the queue's minimum are ignored."""
        lowest: dict[int, int] = {}
        for group in self._offsets.groups_of(topic) - excluded:
            for queue_id, offset in self._offsets.of(group, topic).items():
                if offset >= self._store.min_offset(topic, queue_id):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        return lowest

    @handles(CloneOffsetsHeader, RequestCode.CLONE_GROUP_OFFSET)
    def clone(self, request: Request[CloneOffsetsHeader]) -> Reply:
        header = request.header
        topic = (header.topic or "").strip()
        for each in {topic} if topic else self._offsets.topics_of(header.src_group):
            is_wanted = header.offline or self._clients.wants(header.src_group, each)
            if is_wanted and each in self._topics:
                self._offsets.clone(header.src_group, header.dest_group, each)
        return Reply()
