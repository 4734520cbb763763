"""Commands about replicas: haStatus, getBrokerEpoch."""

from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.cli.admin.each_server import Interval, answers_of, applicable, repeated
from bolide.cli.admin.output import print_field, time_text
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    require_one,
    run,
    targets,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.logs import one_line
from bolide.protocol.bodies.replication import EpochCache, HaStatus

_TOO_OLD = "the broker does not report on its replicas: RocketMQ does since 5.0"


def ha_status(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    interval: Interval = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the replication of a broker, or of every broker of a cluster.

    A master shows its slaves and how far each is behind; a slave shows the master that it follows.
    """
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        async def show() -> None:
            addresses = await targets(admin, broker, cluster, slaves=True)
            found = await applicable(answers_of(addresses, admin.brokers.ha_status), _TOO_OLD)
            if as_document:
                print_document(found)
            else:
                _print_each(found)

        await repeated(interval, show)

    run(name_server, act)


def _print_each(found: dict[str, HaStatus]) -> None:
    for address, status in found.items():
        if status.master:
            _print_master(address, status)
        else:
            _print_slave(address, status)


def _print_master(address: str, status: HaStatus) -> None:
    print()
    print_field("MasterAddr", address)
    print_field("MasterCommitLogMaxOffset", status.master_commit_log_max_offset)
    print_field("SlaveNum", len(status.ha_connection_info))
    print_field("InSyncSlaveNum", status.in_sync_slave_nums)
    titles = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status")
    table = Table(*titles, "#TransferFromWhere")
    for slave in status.ha_connection_info:
        speed = f"{slave.transferred_byte_in_second / 1024:.2f}"
        state = "OK" if slave.in_sync else "Fall Behind"
        table.add(
            slave.addr, slave.slave_ack_offset, slave.diff, speed, state, slave.transfer_from_where
        )
    table.print()


def _print_slave(address: str, status: HaStatus) -> None:
    client = status.ha_client_runtime_info
    print()
    print_field("SlaveAddr", address)
    print_field("MasterAddr", client.master_addr or "unknown")
    print_field("CommitLogMaxOffset", client.max_offset)
    print_field("TransferSpeed(KB/s)", f"{client.transferred_byte_in_second / 1024:.2f}")
    print_field("LastReadTime", time_text(client.last_read_timestamp))
    print_field("LastWriteTime", time_text(client.last_write_timestamp))
    print_field("MasterFlushOffset", client.master_flush_offset)


def get_broker_epoch(
    broker_name: Annotated[
        str | None, typer.Option("-b", "--brokerName", help="Name of one broker group.")
    ] = None,
    cluster: ClusterName = None,
    interval: Interval = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show which master wrote which range of the log, at every member of broker groups.

    For groups whose master is elected by controllers.
    """
    if (broker_name is None) == (cluster is None):
        raise typer.BadParameter("give either -b, one broker group, or -c, a cluster")

    async def act(admin: AdminClient) -> None:
        if broker_name is not None:
            addresses = await admin.clusters.members_of_group(broker_name)
        else:
            assert cluster is not None
            addresses = await admin.clusters.members(cluster)

        async def show() -> None:
            found = await applicable(answers_of(addresses, admin.brokers.epochs), _TOO_OLD)
            if as_document:
                print_document([_document(at, epochs) for at, epochs in found.items()])
            else:
                for address, epochs in found.items():
                    _print_epochs(address, epochs)

        await repeated(interval, show)

    run(name_server, act)


def _document(address: str, epochs: EpochCache) -> dict[str, object]:
    return {
        "clusterName": epochs.cluster_name,
        "brokerName": epochs.broker_name,
        "brokerAddr": address,
        "brokerId": epochs.broker_id,
        "maxOffset": epochs.max_offset,
        "epochs": [
            {"epoch": each.epoch, "startOffset": each.start_offset, "endOffset": end}
            for each, end in zip(epochs.epoch_list, _ends(epochs), strict=True)
        ],
    }


def _ends(epochs: EpochCache) -> list[int]:
    """Where the epochs end; the last one goes to the end of the log."""
    ends = [each.end_offset for each in epochs.epoch_list]
    return [*ends[:-1], epochs.max_offset] if ends else []


def _print_epochs(address: str, epochs: EpochCache) -> None:
    print()
    print_field("clusterName", epochs.cluster_name)
    print_field("brokerName", epochs.broker_name)
    print_field("brokerAddr", address)
    print_field("brokerId", epochs.broker_id)
    for each, end in zip(epochs.epoch_list, _ends(epochs), strict=True):
        print(
            one_line(
                f"#Epoch: EpochEntry{{epoch={each.epoch}, startOffset={each.start_offset}, "
                f"endOffset={end}}}"
            )
        )
