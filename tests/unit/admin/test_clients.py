"""Clients that are connected to several brokers."""

import pytest

from bolide.admin import GroupOffline
from bolide.protocol.bodies.consumers import (
    Connection,
    ConsumerConnections,
    ProducerConnections,
)
from bolide.protocol.bodies.heartbeat import ConsumeType
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import ConsumerNotOnline, ServerError
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import cast

CONSUMERS = RequestCode.GET_CONSUMER_CONNECTION_LIST
PRODUCERS = RequestCode.GET_PRODUCER_CONNECTION_LIST


def clients(*ids: str) -> list[Connection]:
    return [Connection(client_id=each, client_addr=f"{each}:1", version=479) for each in ids]


def offline(_fields: dict[str, str]) -> Reply:
    raise ConsumerNotOnline("the consumer group[billing] not online")


def unknown(_fields: dict[str, str]) -> Reply:
    raise ServerError("the producer group[shop] not exist")


def broken(_fields: dict[str, str]) -> Reply:
    raise ServerError("out of memory")


@on_loop
async def test_a_consumer_of_two_brokers_is_told_once() -> None:
    async with cast("broker-a", "broker-b", "broker-c") as stage:
        one, other, last = stage.brokers.values()
        kind = ConsumeType.CONSUME_PASSIVELY
        for broker, ids in ((one, ["x", "y"]), (other, ["y", "z"])):
            found = ConsumerConnections(connection_set=clients(*ids), consume_type=kind)
            broker.answers(CONSUMERS, found)
        last.answers(CONSUMERS, offline)

        found = await stage.admin.clients.consumers("billing")

        assert [each.client_id for each in found.connection_set] == ["x", "y", "z"]
        assert found.consume_type is kind


@on_loop
async def test_a_group_nobody_consumes_for_is_offline() -> None:
    async with cast("broker-a", "broker-b") as stage:
        one, other = stage.brokers.values()
        one.answers(CONSUMERS, offline)
        other.answers(CONSUMERS, ConsumerConnections())

        with pytest.raises(GroupOffline, match=f"'billing' .* {one.address}, {other.address}"):
            await stage.admin.clients.consumers("billing")


@on_loop
async def test_only_the_broker_that_is_named_is_asked() -> None:
    async with cast("broker-a", "broker-b") as stage:
        one, other = stage.brokers.values()
        one.answers(CONSUMERS, ConsumerConnections(connection_set=clients("x")))

        found = await stage.admin.clients.consumers("billing", one.address)

        assert [each.client_id for each in found.connection_set] == ["x"]
        assert not other.asked


@on_loop
async def test_producers_that_one_broker_does_not_know_are_told_by_another() -> None:
    async with cast("broker-a", "broker-b") as stage:
        one, other = stage.brokers.values()
        one.answers(PRODUCERS, unknown)
        other.answers(PRODUCERS, ProducerConnections(connection_set=clients("p")))

        found = await stage.admin.clients.producers("shop", "Orders")

        assert [each.client_id for each in found.connection_set] == ["p"]


@on_loop
async def test_a_failing_broker_is_not_one_without_producers() -> None:
    async with cast() as stage:
        stage.first.answers(PRODUCERS, broken)

        with pytest.raises(ServerError, match="out of memory"):
            await stage.admin.clients.producers("shop", "Orders")
        stage.first.answers(PRODUCERS, unknown)
        with pytest.raises(GroupOffline, match="'shop'"):
            await stage.admin.clients.producers("shop", "Orders")
