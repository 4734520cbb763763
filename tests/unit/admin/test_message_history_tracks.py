"""State of a message in the groups of its topic."""

import pytest

from bolide.admin.message_history import Track, TrackType
from bolide.model.message import Host, StoredMessage
from bolide.protocol.bodies.consumers import Connection, ConsumerConnections
from bolide.protocol.bodies.groups import GroupList
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel, Subscription
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.stats import ConsumeStats, QueueProgress
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import ConsumerNotOnline, ServerError
from bolide.remoting.address import split_address
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import Cast, cast

OFFSET = 5
QUEUE = MessageQueue("Orders", "broker-a", 0)


def consumers(
    *,
    kind: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    model: MessageModel = MessageModel.CLUSTERING,
    tags: tuple[str, ...] = (),
) -> ConsumerConnections:
    return ConsumerConnections(
        connection_set=[Connection(client_id="x")],
        consume_type=kind,
        message_model=model,
        subscription_table={"Orders": Subscription(topic="Orders", tags_set=[*tags])},
    )


async def track(stage: Cast, clients: object, consumed: int) -> Track:
    broker = stage.first
    progress = {QUEUE: QueueProgress(broker_offset=9, consumer_offset=consumed)}
    broker.answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(["billing"]))
    broker.answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, clients)
    broker.answers(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table=progress))
    host = Host(*split_address(broker.address))
    message = StoredMessage("Orders", b"x", {"TAGS": "paid"}, queue_offset=OFFSET, store_host=host)
    (found,) = await stage.admin.tracks.of(message)
    return found


@pytest.mark.parametrize(
    ("clients", "consumed", "kind"),
    [
        (consumers(), OFFSET + 1, TrackType.CONSUMED),
        (consumers(), OFFSET, TrackType.NOT_CONSUME_YET),
        (consumers(tags=("paid",)), OFFSET + 1, TrackType.CONSUMED),
        (consumers(tags=("sent",)), OFFSET + 1, TrackType.CONSUMED_BUT_FILTERED),
        (consumers(tags=("sent",)), OFFSET, TrackType.NOT_CONSUME_YET),
        (consumers(kind=ConsumeType.CONSUME_ACTIVELY), OFFSET + 1, TrackType.PULL),
        (consumers(model=MessageModel.BROADCASTING), 0, TrackType.CONSUME_BROADCASTING),
    ],
)
@on_loop
async def test_kinds_of_tracks(
    clients: ConsumerConnections, consumed: int, kind: TrackType
) -> None:
    async with cast() as stage:
        assert await track(stage, clients, consumed) == Track("billing", kind)


@on_loop
async def test_a_group_without_consumers_is_not_online() -> None:
    def offline(_fields: dict[str, str]) -> Reply:
        raise ConsumerNotOnline("not online")

    async with cast() as stage:
        found = await track(stage, offline, 0)

        assert found.kind is TrackType.NOT_ONLINE
        assert "no client of group 'billing'" in (found.reason or "")


@on_loop
async def test_what_a_broker_will_not_tell_is_unknown() -> None:
    def broken(_fields: dict[str, str]) -> Reply:
        raise ServerError("out of memory")

    async with cast() as stage:
        found = await track(stage, broken, 0)

        assert found == Track("billing", TrackType.UNKNOWN, "out of memory")
