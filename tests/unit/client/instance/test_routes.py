import asyncio

import msgspec
import pytest

from bolide.client.errors import BrokerUnknown, RouteNotFound
from bolide.client.instance.routes import (
    BrokerAddress,
    Routes,
    TopicTemplate,
    publish_queues,
    subscribe_queues,
)
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import BrokerRoute, QueueRoute, TopicRoute
from tests.support.aio import on_loop


def route(**perms: int) -> TopicRoute:
    """Two queues on each named broker, with these permissions; broker a has a slave."""
    return TopicRoute(
        queue_datas=[
            QueueRoute(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=perm)
            for name, perm in perms.items()
        ],
        broker_datas=[
            BrokerRoute(
                broker_name=name,
                cluster="c",
                broker_addrs={0: f"{name}:1", 1: f"{name}:2"} if name == "a" else {0: f"{name}:1"},
            )
            for name in perms
        ],
    )


class Asked:
    """A NameServer's memory."""

    def __init__(self, **known: TopicRoute) -> None:
        self.known = known
        self.topics: list[str] = []

    async def __call__(self, topic: str) -> TopicRoute | None:
        self.topics.append(topic)
        await asyncio.sleep(0)
        return self.known.get(topic)


def queues(topic: str, *places: tuple[str, int]) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue(topic, name, number) for name, number in places)


def test_producers_use_writable_queues_with_a_master_and_consumers_readable_ones() -> None:
    found = route(b=6, a=2, c=4, d=6)
    found.broker_datas[3].broker_addrs = {1: "d:2"}
    assert tuple(publish_queues("T", found)) == queues("T", ("a", 0), ("a", 1), ("b", 0), ("b", 1))
    readers = [queue.broker_name for queue in subscribe_queues("T", found)]
    assert readers == ["b", "b", "c", "c", "d", "d"]


def test_an_order_setting_fixes_the_queues_of_producers() -> None:
    found = route(a=6)
    found.order_topic_conf = "a:1;b:2"
    assert tuple(publish_queues("T", found)) == queues("T", ("a", 0), ("b", 0), ("b", 1))


@on_loop
async def test_a_route_is_asked_for_once_whoever_wants_it() -> None:
    asked = Asked(T=route(a=6))
    routes = Routes(asked)
    assert routes.find("T") is None
    await asyncio.gather(*(routes.require("T") for _ in range(10)))
    assert asked.topics == ["T"]
    assert routes.find_publish_queues("T") == queues("T", ("a", 0), ("a", 1))
    assert await routes.subscribe_queues("T") == queues("T", ("a", 0), ("a", 1))


@on_loop
async def test_a_topic_without_a_route_is_asked_for_again() -> None:
    asked = Asked()
    routes = Routes(asked)
    for _ in range(2):
        with pytest.raises(RouteNotFound, match="topic 'T' has no route: create it"):
            await routes.publish_queues("T")
    assert asked.topics == ["T", "T"]


@on_loop
async def test_a_missing_topic_gets_the_queues_of_its_pattern() -> None:
    wide = route(a=7)
    wide.queue_datas[0] = msgspec.structs.replace(
        wide.queue_datas[0], read_queue_nums=8, write_queue_nums=8
    )
    asked = Asked(TBW102=wide)
    routes = Routes(asked)
    found = await routes.publish_queues("T", TopicTemplate("TBW102", 3))
    assert found == queues("T", ("a", 0), ("a", 1), ("a", 2))
    assert wide.queue_datas[0].write_queue_nums == 8
    asked.known["T"] = route(a=6)
    assert await routes.refresh("T")
    assert await routes.publish_queues("T") == queues("T", ("a", 0), ("a", 1))


@on_loop
async def test_a_topic_that_nobody_may_write_to_is_told_apart() -> None:
    routes = Routes(Asked(T=route(a=4)))
    with pytest.raises(RouteNotFound, match="no route to a queue to send to"):
        await routes.publish_queues("T")
    assert await routes.subscribe_queues("T")


@on_loop
async def test_changes_are_told_and_a_lost_route_is_told_of_and_kept() -> None:
    changed: list[str] = []
    asked = Asked(T=route(a=6, b=6))
    routes = Routes(asked, on_change=changed.append)
    await routes.require("T")
    assert changed == ["T"]
    asked.known["T"] = route(b=6, a=6)
    assert not await routes.refresh("T")
    asked.known["T"] = route(b=6)
    assert await routes.refresh("T")
    del asked.known["T"]
    with pytest.raises(RouteNotFound, match="'T'"):
        await routes.refresh("T")
    assert routes.find_publish_queues("T") == queues("T", ("b", 0), ("b", 1))
    assert changed == ["T", "T"]


@on_loop
async def test_brokers_are_those_of_the_routes_in_use() -> None:
    news: list[int] = []
    asked = Asked(T=route(a=6), U=route(b=6))
    routes = Routes(asked, on_new_broker=lambda: news.append(1))
    await routes.require("T")
    await routes.require("U")
    assert routes.brokers == {"a": {0: "a:1", 1: "a:2"}, "b": {0: "b:1"}}
    assert len(news) == 2
    routes.forget_all_but(["T"])
    assert routes.brokers.keys() == {"a"}
    assert routes.find("U") is None
    assert len(news) == 2
    assert (routes.name_of("a:2"), routes.name_of("b:1")) == ("a", None)


@on_loop
async def test_a_master_that_is_not_known_is_asked_for() -> None:
    asked = Asked(T=route(a=6))
    routes = Routes(asked)
    await routes.require("T")
    asked.known["T"] = route(a=6, b=6)
    assert await routes.require_master("b", "T") == "b:1"
    del asked.known["T"]
    with pytest.raises(BrokerUnknown, match="'c' is not known"):
        await routes.require_master("c", "T")


@on_loop
async def test_a_pull_goes_to_the_wanted_member_else_to_any() -> None:
    routes = Routes(Asked(T=route(a=6, b=6)))
    await routes.require("T")
    assert routes.find_broker("a", 0) == BrokerAddress("a:1", is_slave=False)
    assert routes.find_broker("a", 1) == BrokerAddress("a:2", is_slave=True)
    assert routes.find_broker("a", 2) == BrokerAddress("a:1", is_slave=False)
    assert routes.find_broker("b", 1) == BrokerAddress("b:1", is_slave=False)
    assert routes.find_broker("c", 0) is None


@on_loop
async def test_the_newest_word_on_a_broker_counts() -> None:
    asked = Asked(New=route(a=6), Old=route(a=6))
    news: list[int] = []
    routes = Routes(asked, on_new_broker=lambda: news.append(1))
    for topic in ("New", "Old"):
        await routes.require(topic)
    del asked.known["Old"]
    moved = asked.known["New"] = route(a=6)
    moved.broker_datas[0].broker_addrs = {0: "elsewhere:1"}
    await routes.refresh("New")
    with pytest.raises(RouteNotFound):
        await routes.refresh("Old")
    assert routes.brokers == {"a": {0: "elsewhere:1"}}
    assert len(news) == 2
    asked.known["Old"] = route(a=6)
    assert not await routes.refresh("Old")
    assert routes.master("a") == "a:1"


@on_loop
async def test_a_route_that_is_forgotten_while_it_is_asked_for_again_is_not_found() -> None:
    asked = Asked(T=route(a=4))
    routes = Routes(asked)
    await routes.require("T")
    del asked.known["T"]
    asking = asyncio.create_task(routes.publish_queues("T"))
    await asyncio.sleep(0)
    routes.forget_all_but([])
    with pytest.raises(RouteNotFound, match="'T'"):
        await asking


@on_loop
async def test_all_who_wait_for_a_route_go_on_together() -> None:
    routes = Routes(Asked(T=route(a=6)))
    waiting = [asyncio.create_task(routes.require("T")) for _ in range(1000)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert all(task.done() for task in waiting)


@on_loop
async def test_one_that_gives_up_does_not_stop_the_others() -> None:
    routes = Routes(Asked(T=route(a=6)))
    first, second = (asyncio.create_task(routes.require("T")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == route(a=6)
    assert first.cancelled()


@on_loop
async def test_a_suspect_is_used_only_if_all_members_are() -> None:
    routes = Routes(Asked(T=route(a=6)))
    await routes.require("T")
    routes.suspects = {"a:1"}
    assert routes.find_broker("a", 0) == BrokerAddress("a:2", is_slave=True)
    routes.suspects = {"a:2"}
    assert routes.find_broker("a", 1) == BrokerAddress("a:1", is_slave=False)
    routes.suspects = {"a:1", "a:2"}
    assert routes.find_broker("a", 0) == BrokerAddress("a:1", is_slave=False)
    assert routes.find_broker("z", 0) is None


@on_loop
async def test_slaves_are_named_with_suspects_last() -> None:
    found = route(a=6)
    found.broker_datas[0].broker_addrs = {0: "a:1", 1: "a:2", 3: "a:4"}
    routes = Routes(Asked(T=found))
    await routes.require("T")
    (queue, _) = await routes.subscribe_queues("T")
    assert routes.slaves_of(queue) == ["a:2", "a:4"]
    routes.suspects = {"a:2"}
    assert routes.slaves_of(queue) == ["a:4", "a:2"]


@on_loop
async def test_a_topic_lacks_masters_if_only_slaves_of_its_writable_queues_are_there() -> None:
    asked = Asked(T=route(a=6), Read=route(a=4))
    routes = Routes(asked)
    assert not routes.lacks_masters("T")
    await routes.require("T")
    await routes.require("Read")
    assert not routes.lacks_masters("T")
    assert not routes.lacks_masters("Read")
    away = msgspec.structs.replace(
        route(a=6), broker_datas=[BrokerRoute(broker_name="a", broker_addrs={1: "a:2"})]
    )
    asked.known["T"] = away
    await routes.refresh("T")
    assert routes.lacks_masters("T")


@on_loop
async def test_the_replacement_of_a_master_is_reported_and_its_absence_is_not() -> None:
    replaced: list[str] = []
    asked = Asked(T=route(a=6))
    routes = Routes(asked, on_master_replaced=replaced.append)
    for members in ({0: "a:1", 1: "a:2"}, {1: "a:2"}, {0: "a:1"}, {0: "a:2"}, {0: "a:2", 1: "a:1"}):
        found = route(a=6)
        found.broker_datas[0].broker_addrs = members
        asked.known["T"] = found
        await routes.refresh("T")
    assert replaced == ["a:1"]


@on_loop
async def test_a_renewed_route_keeps_absent_groups_until_the_next_refresh() -> None:
    asked = Asked(T=route(a=6, b=6))
    routes = Routes(asked)
    await routes.require("T")
    moved = route(b=6)
    moved.broker_datas[0].broker_addrs = {0: "b:9"}
    asked.known["T"] = moved
    assert await routes.renew("T")
    assert (routes.master("a"), routes.master("b")) == ("a:1", "b:9")
    assert {queue.broker_name for queue in await routes.subscribe_queues("T")} == {"a", "b"}
    assert not await routes.renew("T")
    assert await routes.refresh("T")
    assert routes.master("a") is None


@on_loop
async def test_a_renewal_without_a_route_leaves_the_known_one() -> None:
    asked = Asked(T=route(a=6))
    routes = Routes(asked)
    await routes.require("T")
    del asked.known["T"]
    with pytest.raises(RouteNotFound):
        await routes.renew("T")
    assert routes.master("a") == "a:1"
