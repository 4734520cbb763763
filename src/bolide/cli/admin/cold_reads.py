"""Limits of cold reads: getColdDataFlowCtrInfo, updateColdDataFlowCtrGroupConfig,
removeColdDataFlowCtrGroupConfig.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import typer

from bolide.admin import AdminClient
from bolide.cli.admin.each_server import answers_of, applicable
from bolide.cli.admin.output import time_text
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    require_one,
    run,
    targets,
)
from bolide.cli.admin.upkeep import titles_of
from bolide.cli.documents import print_document
from bolide.protocol.bodies.consumers import ColdReadInfo

_MAX_LONG = 2**63 - 1
_TOO_OLD = "the broker does not limit cold reads: RocketMQ does since 5.2"

Group = Annotated[str, typer.Option("-g", "--consumerGroup", help="Name of the consumer group.")]


def get_cold_data_flow_ctr_info(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show what groups have read from the disk of brokers, and their limits; slaves included."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> tuple[dict[str, str], dict[str, ColdReadInfo]]:
        titles = await titles_of(admin, broker, cluster)
        return titles, await applicable(answers_of(titles, admin.cold_reads.info), _TOO_OLD)

    titles, answers = run(name_server, act)
    if as_document:
        print_document(answers)
    else:
        for address, info in answers.items():
            print(f" ============{titles[address]}============")
            print(msgspec.json.format(msgspec.json.encode(_with_dates(info)), indent=8).decode())


def _with_dates(info: ColdReadInfo) -> dict[str, Any]:
    """The times of the groups as RocketMQ's tool shows them."""
    shown: dict[str, Any] = msgspec.to_builtins(info)
    for group, tally in info.runtime_table.items():
        shown["runtimeTable"][group] = {
            "coldAcc": tally.cold_acc,
            "createTimeFormat": time_text(tally.create_time_mills, millis=False),
            "lastColdReadTimeFormat": time_text(tally.last_cold_read_time_mills, millis=False),
        }
    return shown


def update_cold_data_flow_ctr_group_config(
    group: Group,
    threshold: Annotated[
        int,
        typer.Option(
            "-v", "--threshold", min=0, max=_MAX_LONG, help="Bytes from the disk in each window."
        ),
    ],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Limit how much a group may read from the disk, at a broker or at all masters.

    Counts if coldDataFlowControlEnable is set.
    """

    async def update(admin: AdminClient, address: str) -> None:
        await admin.cold_reads.set_threshold(address, group, threshold)

    answers = _change_each(name_server, (broker, cluster), update)
    if as_document:
        brokers = [*answers]
        print_document({"brokers": brokers, "consumerGroup": group, "threshold": threshold})
    else:
        for address in answers:
            print(f"updateColdDataFlowCtrGroupConfig success, {address}")


def remove_cold_data_flow_ctr_group_config(
    group: Group,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have the limit of the broker, cgColdReadThreshold, count for a group again."""

    async def remove(admin: AdminClient, address: str) -> None:
        await admin.cold_reads.remove_threshold(address, group)

    answers = _change_each(name_server, (broker, cluster), remove)
    if as_document:
        print_document({"brokers": [*answers], "consumerGroup": group})
    else:
        for address in answers:
            print(f"remove broker cold read threshold success, {address}")


def _change_each(
    name_server: str | None,
    brokers: tuple[str | None, str | None],
    change: Callable[[AdminClient, str], Awaitable[None]],
) -> dict[str, None]:
    broker, cluster = brokers
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> dict[str, None]:
        addresses = await targets(admin, broker, cluster)
        asked = answers_of(addresses, lambda at: change(admin, at), changes=True)
        return await applicable(asked, _TOO_OLD)

    return run(name_server, act)
