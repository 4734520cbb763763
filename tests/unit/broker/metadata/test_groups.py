"""The group table: groups created on first use and changed by administrators."""

import asyncio
from collections.abc import Collection

import pytest

from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigTable
from bolide.protocol.refusals import GroupNotFound, InvalidParameter, ServerError
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables

SYSTEM = {
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
}


def test_a_new_broker_has_its_own_groups(tables: BrokerTables) -> None:
    tables.groups.create_system_groups()
    assert {group.group_name for group in tables.groups} == SYSTEM
    again = tables.restarted()
    assert len(again.groups) == len(SYSTEM)
    again.groups.create_system_groups()
    assert again.groups.data_version == tables.groups.data_version


def test_a_group_is_created_at_once_and_saved_soon(tables: BrokerTables) -> None:
    made = tables.groups.require("g")
    assert made == GroupConfig(group_name="g")
    assert tables.groups.find("g") is tables.groups.require("g") is made
    assert tables.restarted().groups.find("g") is None
    assert tables.groups.save_due(0.0)
    assert not tables.groups.save_due(1.0)
    assert tables.restarted().groups.find("g") == made


def test_finding_creates_nothing(tables: BrokerTables) -> None:
    assert tables.groups.find("g") is None
    assert "g" not in tables.groups


def test_without_permission_only_the_brokers_own_groups_are_created(tables: BrokerTables) -> None:
    strict = tables.restarted(auto_create_subscription_group=False)
    with pytest.raises(GroupNotFound, match=r"subscription group \[g\] .*updateSubGroup"):
        strict.groups.require("g")
    assert strict.groups.require("TOOLS_CONSUMER")
    assert strict.groups.require("CID_RMQ_SYS_anything")


def test_a_group_with_a_bad_name_is_not_created(tables: BrokerTables) -> None:
    with pytest.raises(GroupNotFound, match=r"cannot be created: .* illegal characters"):
        tables.groups.require("a@b")
    assert len(tables.groups) == 0


@on_loop
async def test_an_update_is_on_disk_when_it_returns(tables: BrokerTables) -> None:
    before = tables.groups.data_version
    tables.clock.advance(2)
    config = GroupConfig(group_name="g", retry_max_times=3, consume_enable=False)
    await tables.groups.update(config)
    assert tables.restarted().groups.find("g") == config
    after = tables.restarted().groups.data_version
    assert after.counter == before.counter + 1
    assert after.timestamp == int(tables.clock.now * 1000)


@on_loop
async def test_a_list_with_one_bad_name_is_rejected_as_a_whole(tables: BrokerTables) -> None:
    configs = [GroupConfig(group_name="good"), GroupConfig(group_name="b d")]
    with pytest.raises(InvalidParameter, match="'b d'"):
        await tables.groups.update_all(configs)
    assert len(tables.groups) == 0


@on_loop
async def test_a_full_disk_is_reported_and_the_save_retried(tables: BrokerTables) -> None:
    tables.disk.is_full = True
    with pytest.raises(ServerError, match=r"in force, but .*subscriptionGroup.json"):
        await tables.groups.update(GroupConfig(group_name="g"))
    assert tables.groups.find("g")
    tables.disk.is_full = False
    assert tables.groups.save_due(0.0)
    assert tables.restarted().groups.find("g")


@on_loop
async def test_a_deleted_group_loses_its_read_permissions(tables: BrokerTables) -> None:
    await tables.groups.update(GroupConfig(group_name="g"))
    await tables.groups.set_forbidden("g", "T", readable=False)
    assert await tables.groups.delete("g")
    assert not await tables.groups.delete("g")
    again = tables.restarted()
    assert again.groups.find("g") is None
    assert again.groups.is_readable("g", "T")


@on_loop
async def test_reading_is_forbidden_and_allowed_topic_by_topic(tables: BrokerTables) -> None:
    assert tables.groups.is_readable("g", "T")
    await tables.groups.set_forbidden("g", "T", readable=False)
    await tables.groups.set_forbidden("g", "U", readable=False)
    await tables.groups.set_forbidden("g", "U", readable=True)
    again = tables.restarted()
    assert not again.groups.is_readable("g", "T")
    assert again.groups.is_readable("g", "U")
    assert again.groups.is_readable("other", "T")
    await tables.groups.set_forbidden("g", "T", readable=True)
    assert tables.groups.table.forbidden_table == {}


@on_loop
async def test_updates_and_the_keeper_do_not_write_the_file_at_once(tables: BrokerTables) -> None:
    def keep() -> None:
        for n in range(50):
            tables.groups.save_due(float(n))

    keeper = asyncio.create_task(asyncio.to_thread(keep))
    for n in range(20):
        tables.groups.require(f"made-{n}")
        await tables.groups.update(GroupConfig(group_name=f"g{n}"))
    await keeper
    tables.groups.save()
    assert len(tables.restarted().groups) == 40


# ---- of a slave


@on_loop
async def test_a_slave_announces_the_groups_that_differ_a_few_at_a_time(
    tables: BrokerTables,
) -> None:
    groups = tables.groups
    told: list[Collection[str]] = []
    groups.require("gone")
    groups.require("same")
    groups.require("forbidden")
    groups.on_change.add(told.append)
    names = ["same", "forbidden", *(f"g{at}" for at in range(2000))]
    given = GroupConfigTable(
        subscription_group_table={name: GroupConfig(group_name=name) for name in names},
        forbidden_table={"forbidden": {"T": 4}},
        data_version=DataVersion(counter=7),
    )
    await groups.adopt(given)
    assert max(map(len, told)) < 1000
    assert set().union(*told) == {*names, "gone"} - {"same"}
    assert groups.table == given
    assert not groups.is_readable("forbidden", "T")
