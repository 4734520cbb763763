"""Sharing queues: who a group consists of when its broker has just come back."""

import asyncio
import math
from collections.abc import Collection
from typing import Any

from bolide.client.consumer.group.assignment import average
from bolide.client.consumer.group.rebalance import REJOIN_GRACE, AssignmentListener, Rebalancer
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ConsumerIds
from bolide.protocol.bodies.routes import BrokerRoute, TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from tests.support.aio import on_loop, until

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]
ADDRESS = "127.0.0.1:10911"


class Cluster:
    """A broker that knows these members, an instance that asks it, and a group's membership."""

    def __init__(self, *client_ids: str) -> None:
        self.client_ids = client_ids
        self.connected_again = -math.inf
        self.held: Collection[MessageQueue] = ()
        # The instance and what it leads to
        self.instance = self.routes = self.remoting = self
        self.suspects: frozenset[str] = frozenset()
        self.client_id = "a"
        # The membership
        self.group = "G"
        self.is_broadcasting = False
        self.filters = {"T": None}
        self.rebalance_needed = asyncio.Event()

    async def require(self, topic: str) -> TopicRoute:
        broker = BrokerRoute(broker_name="broker-a", cluster="c", broker_addrs={0: ADDRESS})
        return TopicRoute(broker_datas=[broker])

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        return QUEUES

    async def call(self, address: str, code: RequestCode, header: Header) -> Frame:
        body = fastjson.encode(ConsumerIds(consumer_id_list=list(self.client_ids)))
        return Frame(code=ResponseCode.SUCCESS, body=body)

    async def heartbeat(self) -> None:
        pass

    def reconnected_at(self, address: str) -> float:
        assert address == ADDRESS
        return self.connected_again

    # Where queues are held

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return frozenset(self.held)

    def topics(self) -> Collection[str]:
        return {"T"}

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        self.held = wanted
        return True


def rebalancer(cluster: Any, listener: AssignmentListener | None = None) -> Rebalancer:
    return Rebalancer(cluster, average, cluster, listener)


@on_loop
async def test_queues_of_a_member_that_left_are_shared_at_once() -> None:
    cluster = Cluster("a", "b")
    balancer = rebalancer(cluster)
    assert await balancer.balance()
    assert len(cluster.held) == 2
    cluster.client_ids = ("a",)
    assert await balancer.balance()
    assert len(cluster.held) == 4


@on_loop
async def test_nothing_changes_until_all_members_have_found_a_broker_that_was_gone() -> None:
    cluster = Cluster("a", "b")
    balancer = rebalancer(cluster)
    await balancer.balance()
    cluster.connected_again = now()
    cluster.client_ids = ("a",)
    assert not await balancer.balance()
    assert len(cluster.held) == 2
    cluster.client_ids = ("a", "b")
    assert await balancer.balance()
    assert len(cluster.held) == 2


@on_loop
async def test_a_member_that_does_not_find_the_broker_again_is_not_waited_for_long() -> None:
    cluster = Cluster("a", "b")
    balancer = rebalancer(cluster)
    await balancer.balance()
    cluster.connected_again = now() - REJOIN_GRACE
    cluster.client_ids = ("a",)
    assert await balancer.balance()
    assert len(cluster.held) == 4


@on_loop
async def test_a_new_member_gets_its_share_also_from_a_broker_that_was_gone() -> None:
    cluster = Cluster("a", "b")
    balancer = rebalancer(cluster)
    await balancer.balance()
    cluster.connected_again = now()
    cluster.client_ids = ("a", "b", "c", "d")
    assert await balancer.balance()
    assert len(cluster.held) == 1


@on_loop
async def test_a_listener_may_ask_for_a_round_and_hears_of_all_in_order() -> None:
    cluster, heard = Cluster("a"), []

    async def listen(_topic: str, _all: object, mine: frozenset[MessageQueue]) -> None:
        heard.append(len(mine))
        cluster.client_ids = ("a", "b")
        assert await balancer.balance()

    balancer = rebalancer(cluster, listen)
    running = asyncio.create_task(balancer.run())
    await until(lambda: heard == [4, 2])
    running.cancel()
    await asyncio.wait([running])


def now() -> float:
    return asyncio.get_running_loop().time()
