"""Queues as brokers share them out: followed, kept when nobody says, or shared by the members."""

import asyncio
import math
from collections.abc import Collection, Mapping
from typing import Any

from bolide.client.consumer.group.assignment import average
from bolide.client.consumer.group.broker_rebalance import BrokerRebalancer
from bolide.client.consumer.group.rebalance import REJOIN_GRACE
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ConsumerIds
from bolide.protocol.bodies.heartbeat import MessageModel
from bolide.protocol.bodies.pop import Assignment, Assignments, RequestMode
from bolide.protocol.bodies.routes import BrokerRoute, TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import RequestCodeNotSupported
from tests.support.aio import on_loop

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]
WHOLE = MessageQueue("T", "broker-a", -1)


class Cluster:
    """A broker that assigns, an instance that asks it, a membership, and where queues are held."""

    def __init__(self, *assigned: Assignment, knows: bool = True, is_old: bool = False) -> None:
        self.answer = Assignments(message_queue_assignments=list(assigned) if knows else None)
        self.is_old = is_old
        self.connected_again = -math.inf
        self.held: Collection[MessageQueue] = ()
        self.modes: Mapping[MessageQueue, RequestMode] = {}
        self.instance = self.routes = self.remoting = self
        self.suspects: frozenset[str] = frozenset()
        self.client_id, self.group, self.model = "a", "G", MessageModel.CLUSTERING
        self.is_broadcasting = False
        self.filters: dict[str, object] = {"T": None}
        self.rebalance_needed = asyncio.Event()

    async def require(self, topic: str) -> TopicRoute:
        broker = BrokerRoute(broker_name="broker-a", broker_addrs={0: "one:1", 1: "two:1"})
        return TopicRoute(broker_datas=[broker])

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        return QUEUES

    async def call(self, address: str, code: RequestCode, *_: object, body: bytes = b"") -> Frame:
        answer: object = ConsumerIds(consumer_id_list=["a", "b"])
        if code is RequestCode.QUERY_ASSIGNMENT:
            assert address == "one:1"
            if self.is_old:
                raise RequestCodeNotSupported("request type 400 not supported")
            answer = self.answer
        return Frame(code=ResponseCode.SUCCESS, body=fastjson.encode(answer))

    async def heartbeat(self) -> None: ...

    def heartbeat_soon(self) -> None: ...

    def rebalance_soon(self) -> None: ...

    def reconnected_at(self, address: str) -> float:
        return self.connected_again

    def set_modes(self, topic: str, modes: Mapping[MessageQueue, RequestMode]) -> None:
        self.modes = modes

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return frozenset(queue for queue in self.held if queue.topic == topic)

    def topics(self) -> Collection[str]:
        return {queue.topic for queue in self.held}

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        if topic == "T":
            self.held = list(wanted)
        return True


def rebalancer(cluster: Any, *, ordered: bool = False) -> BrokerRebalancer:
    return BrokerRebalancer(cluster, average, cluster, None, lambda _topic: ordered)


def popped() -> Assignment:
    return Assignment(message_queue=WHOLE, mode=RequestMode.POP)


@on_loop
async def test_what_the_broker_gives_is_held_in_the_mode_it_says() -> None:
    cluster = Cluster(popped())
    assert await rebalancer(cluster).balance()
    assert (cluster.held, cluster.modes) == ([WHOLE], {WHOLE: RequestMode.POP})
    cluster.answer = Assignments(message_queue_assignments=[])
    assert await rebalancer(cluster).balance()
    assert cluster.held == []


@on_loop
async def test_what_is_held_stays_when_the_broker_cannot_say_or_has_just_come_back() -> None:
    silent = Cluster(knows=False)
    assert not await rebalancer(silent).balance()
    back = Cluster(popped())
    back.held, back.connected_again = [QUEUES[0]], asyncio.get_running_loop().time()
    assert not await rebalancer(back).balance()
    assert back.held == [QUEUES[0]]
    back.connected_again -= REJOIN_GRACE
    assert await rebalancer(back).balance()
    assert back.held == [WHOLE]


@on_loop
async def test_members_share_queues_themselves_where_brokers_are_old_or_order_matters() -> None:
    for cluster, ordered in ((Cluster(is_old=True), False), (Cluster(popped()), True)):
        assert await rebalancer(cluster, ordered=ordered).balance()
        assert (cluster.held, cluster.modes) == (QUEUES[:2], {})


@on_loop
async def test_retries_of_pops_are_subscribed_to_while_their_topic_is_pulled() -> None:
    cluster = Cluster(Assignment(message_queue=QUEUES[0]))
    balancer = rebalancer(cluster)
    await balancer.balance()
    assert cluster.filters.keys() == {"T", "%RETRY%G_T", "%RETRY%G+T"}
    cluster.answer = Assignments(message_queue_assignments=[popped()])
    await balancer.balance()
    assert cluster.filters.keys() == {"T"}
