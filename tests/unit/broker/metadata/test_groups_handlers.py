"""Group requests, over a real connection."""

import json
from contextlib import AbstractAsyncContextManager

import pytest

from bolide.broker.metadata.groups import GroupHandlers
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import (
    ExponentialRetry,
    GroupConfig,
    GroupConfigList,
    GroupConfigTable,
    GroupForbidden,
    RetryPolicy,
    RetryPolicyType,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.groups import DeleteGroupHeader, GroupForbiddenHeader, GroupHeader
from bolide.protocol.refusals import GroupNotFound, InvalidParameter, ServerError
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables, Caller, served

FULL = GroupConfig(
    group_name="g",
    consume_broadcast_enable=False,
    consume_message_orderly=True,
    retry_queue_nums=2,
    retry_max_times=3,
    group_retry_policy=RetryPolicy(
        type=RetryPolicyType.EXPONENTIAL, exponential_retry_policy=ExponentialRetry(initial=1000)
    ),
    group_sys_flag=1,
    consume_timeout_minute=5,
)


def serving(tables: BrokerTables) -> AbstractAsyncContextManager[Caller]:
    return served(tables, GroupHandlers(groups=tables.groups, offsets=tables.offsets))


async def update(caller: Caller, config: GroupConfig) -> None:
    body = fastjson.encode(config)
    await caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


@on_loop
async def test_a_group_is_created_changed_and_shown(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        await update(caller, GroupConfig(group_name="g"))
        await update(caller, FULL)
        answer = await caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("g"))
    assert fastjson.decode(answer.body, GroupConfig) == FULL
    assert tables.restarted().groups.find("g") == FULL
    assert tables.groups.data_version.counter == 2


@on_loop
async def test_a_group_of_an_old_client_gets_the_newer_fields(tables: BrokerTables) -> None:
    old = {"groupName": "g", "consumeEnable": False, "retryMaxTimes": 1, "brokerId": 0}
    async with serving(tables) as caller:
        body = json.dumps(old).encode()
        await caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    expected = GroupConfig(group_name="g", consume_enable=False, retry_max_times=1)
    assert tables.groups.find("g") == expected


@on_loop
async def test_a_missing_group_is_shown_as_it_would_be_created(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        answer = await caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("g"))
    assert fastjson.decode(answer.body, GroupConfig) == GroupConfig(group_name="g")
    assert len(tables.groups) == 0


@on_loop
async def test_a_group_that_cannot_be_created_is_not_found(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        with pytest.raises(GroupNotFound, match="does not exist"):
            await caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("a b"))


@on_loop
async def test_a_list_is_applied_as_a_whole_or_not_at_all(tables: BrokerTables) -> None:
    async with serving(tables) as caller:

        async def update_all(*names: str) -> None:
            groups = GroupConfigList([GroupConfig(group_name=name) for name in names])
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            await caller.call(code, body=fastjson.encode(groups))

        with pytest.raises(InvalidParameter, match="'b@d'"):
            await update_all("a", "b@d")
        assert len(tables.groups) == 0
        await update_all("a", "b")
    assert {group.group_name for group in tables.restarted().groups} == {"a", "b"}


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b'{"groupName":null}', b"{{"])
@on_loop
async def test_an_invalid_group_is_refused(tables: BrokerTables, body: bytes) -> None:
    async with serving(tables) as caller:
        for code in (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        ):
            with pytest.raises(ServerError, match=r"\w"):
                await caller.call(code, body=body)
    assert len(tables.groups) == 0


@on_loop
async def test_attributes_of_a_group_change_by_sign_and_are_kept(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        await update(caller, GroupConfig(group_name="g", attributes={"+priority.factor": "30"}))
        await update(caller, GroupConfig(group_name="g", retry_max_times=3))
        assert tables.restarted().groups.require("g").attributes == {"priority.factor": "30"}
        answer = await caller.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader("g"))
        shown = fastjson.decode(answer.body, GroupConfig)
        assert (shown.attributes, shown.retry_max_times) == ({"priority.factor": "30"}, 3)
        await update(caller, GroupConfig(group_name="g", attributes={"-priority.factor": ""}))
    assert tables.restarted().groups.require("g").attributes == {}


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"+x": "1"}, r"'\+x' is not known"),
        ({"priority.factor": "1"}, "is not known: write a sign"),
        ({"+priority.factor": "101"}, "from 0 to 100"),
        ({"+priority.factor": "-1"}, "from 0 to 100"),
        ({"+priority.factor": "x"}, "from 0 to 100"),
        ({"-priority.factor": ""}, "is not set"),
        ({"+lite.sub.model": "Shared"}, "light topics are not implemented"),
    ],
)
@on_loop
async def test_an_attribute_that_a_group_cannot_have_is_refused_by_name(
    tables: BrokerTables, attributes: dict[str, str], reason: str
) -> None:
    async with serving(tables) as caller:
        with pytest.raises(InvalidParameter, match=reason):
            await update(caller, GroupConfig(group_name="g", attributes=attributes))
    assert len(tables.groups) == 0


@on_loop
async def test_all_groups_are_returned_with_their_version(tables: BrokerTables) -> None:
    await tables.groups.update(FULL)
    await tables.groups.set_forbidden("g", "T", readable=False)
    async with serving(tables) as caller:
        answer = await caller.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert answer.fields == {"totalGroupNum": "1"}
    assert fastjson.decode(answer.body, GroupConfigTable) == tables.groups.table


@pytest.mark.parametrize("flag", [None, "cleanOffset", "removeOffset"])
@on_loop
async def test_a_deleted_group_keeps_its_offsets_by_default(
    tables: BrokerTables, flag: str | None
) -> None:
    await tables.groups.update(FULL)
    tables.offsets.commit("g", "T", 0, 5)
    tables.offsets.save()
    header = DeleteGroupHeader(group_name="g").to_fields()
    if flag is not None:  # the older name is that of RocketMQ 4.9's tools
        header[flag] = "true"
    async with serving(tables) as caller:
        await caller.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        await caller.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    again = tables.restarted()
    assert again.groups.find("g") is None
    assert again.offsets.of("g", "T") == ({} if flag else {0: 5})


@on_loop
async def test_read_permission_of_a_topic_is_withdrawn_queried_and_granted(
    tables: BrokerTables,
) -> None:
    async with serving(tables) as caller:

        async def readable(change: bool | None = None) -> GroupForbidden:
            header = GroupForbiddenHeader(group="g", topic="T", readable=change)
            answer = await caller.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
            return fastjson.decode(answer.body, GroupForbidden)

        assert await readable() == GroupForbidden(group="g", topic="T", readable=True)
        assert (await readable(False)).readable is False
        assert (await readable()).readable is False
        assert (await readable(True)).readable is True
