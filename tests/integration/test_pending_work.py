"""Transactions, delays, timers, pops and dedup windows go on at the next master of a group."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from bolide import AdminClient
from bolide.broker.settings.config import BrokerRole
from bolide.chaos.target import LocalTarget
from bolide.cluster.plan import ClusterOptions
from bolide.errors import BolideError
from tests.support.aio import on_loop, until
from tests.support.broker import broker_in
from tests.support.name_servers import name_server
from tests.support.pending_work import DUE, SETTINGS, PendingWork, polled
from tests.support.ports import free_port

PATIENCE = 30.0
NEIGHBOURS = (200, 300, *range(1033, 1037), *range(1133, 1137))
FIELDS: dict[str, Any] = {
    "message_delay_level": SETTINGS["messageDelayLevel"],
    "transaction_timeout": DUE,
    "transaction_check_interval": 0.2,
    "metadata_sync_interval": 0.1,
    "mapped_file_size_timer_log": 1024 * 1024,
}


async def master_in_sync(target: LocalTarget) -> str:
    """Wait until a master has both members in its sync-state set; returns its name."""
    async with AdminClient(target.name_servers) as admin, asyncio.timeout(PATIENCE):
        while True:
            for master in (await target.masters()).values():
                with suppress(BolideError):
                    figures = await admin.brokers.runtime(target.address_of(master))
                    if figures.get("syncStateSet", "").count(";") == 1:
                        return master
            await asyncio.sleep(0.05)


async def other_master(target: LocalTarget, before: str) -> str:
    """Wait until another member is the master; returns its address."""
    async with asyncio.timeout(PATIENCE):
        found = await polled(target.masters, lambda found: found.get("broker-a", before) != before)
    return target.address_of(found["broker-a"])


@on_loop
async def test_an_elected_master_finishes_what_a_killed_one_began(tmp_path: Path) -> None:
    options = ClusterOptions(
        replicas=2, controllers=1, network="plain", data=tmp_path, base_port=free_port(NEIGHBOURS),
        settings={**SETTINGS, "mappedFileSizeCommitLog": str(1024 * 1024)},
    )  # fmt: skip
    target = LocalTarget(options)
    async with target.cluster, PendingWork(target.name_servers) as work:
        first = await master_in_sync(target)
        (other,) = {*target.members("broker")} - {first}
        await work.create_topics(target.address_of(first), target.address_of(other))
        await work.leave(target.address_of(first))
        await target.kill(first)
        killed_at = time.time()

        second = await other_master(target, first)

        await work.finished(second, since=killed_at)
        await work.repeat_is_known(second)


@on_loop
async def test_a_slave_made_master_by_hand_finishes_what_its_master_began(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path / "names"))
        common: dict[str, Any] = {"name_servers": (names.address,), **FIELDS}
        work = await stack.enter_async_context(PendingWork(names.address))
        async with (
            broker_in(tmp_path / "master", **common) as master,
            broker_in(
                tmp_path / "slave", broker_role=BrokerRole.SLAVE, broker_id=1, **common
            ) as slave,
        ):
            await work.create_topics(master.address, slave.address)
            await work.leave(master.address)
            end = master.store.log.written
            await until(lambda: slave.store.log.written >= end)
        stopped_at = time.time()

        promoted = await stack.enter_async_context(broker_in(tmp_path / "slave", **common))

        await work.finished(promoted.address, since=stopped_at)
        await work.repeat_is_known(promoted.address)
