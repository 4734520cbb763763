"""Configuration of consumer groups on brokers."""

import pytest

from bolide.admin.groups import group_of
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigTable, GroupSubscription
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import GroupNotFound
from tests.support.aio import on_loop
from tests.unit.admin.scripted import CLUSTER, cast

BILLING = GroupConfig(group_name="billing", retry_max_times=3)


@on_loop
async def test_names_of_groups_come_from_all_masters() -> None:
    async with cast("broker-a", "broker-b") as stage:
        for name, broker in stage.brokers.items():
            table = dict.fromkeys(("billing", f"only-{name}"), BILLING)
            groups = GroupConfigTable(subscription_group_table=table)
            broker.answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups)

        names = await stage.admin.groups.names(CLUSTER)

        assert names == ["billing", "only-broker-a", "only-broker-b"]


@on_loop
async def test_a_broker_that_tells_all_groups_or_none_is_asked_for_all() -> None:
    async with cast() as stage:
        groups = GroupConfigTable(subscription_group_table={"billing": BILLING})
        stage.first.answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups)

        assert await stage.admin.groups.config(stage.first.address, "billing") == BILLING
        with pytest.raises(GroupNotFound, match="has no group 'audit'"):
            await stage.admin.groups.config(stage.first.address, "audit")


@on_loop
async def test_a_group_is_sent_whole() -> None:
    async with cast() as stage:
        stage.first.answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)

        await stage.admin.groups.update(stage.first.address, BILLING)

        assert fastjson.decode(stage.first.bodies[-1], GroupConfig) == BILLING


@on_loop
async def test_attributes_of_a_group_are_sent_as_signed_changes() -> None:
    async with cast() as stage:
        stage.first.answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        attributes = {"priority.factor": "5", "+a": "1", "-b": ""}

        config = GroupConfig(group_name="billing", attributes=attributes)
        await stage.admin.groups.update(stage.first.address, config)

        sent = fastjson.decode(stage.first.bodies[-1], GroupConfig).attributes
        assert sent == {"+priority.factor": "5", "+a": "1", "-b": ""}


@on_loop
async def test_a_subscription_may_be_known_to_one_broker_alone() -> None:
    async with cast("broker-a", "broker-b") as stage:
        one, other = stage.brokers.values()
        known = Subscription(topic="Orders", sub_string="paid")
        one.answers(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, GroupSubscription())
        other.answers(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, GroupSubscription(subscription_data=known)
        )

        assert await stage.admin.groups.find_subscription("billing", "Orders") == known


@pytest.mark.parametrize("topic", ["%RETRY%billing", "%RETRY%billing+Orders"])
def test_the_group_of_a_retry_topic(topic: str) -> None:
    assert group_of(topic) == "billing"
