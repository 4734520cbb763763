"""Commands about replicas: haStatus."""

from bolide.admin import AdminClient
from bolide.cli.admin.output import time_text
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    NameServer,
    ask_each,
    require_one,
    run,
    targets,
)
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.protocol.bodies.replication import HaStatus


def ha_status(
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the replication of a broker, or of every broker of a cluster.

    A master shows its slaves and how far each is behind; a slave shows the master that it follows.
    """
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> dict[str, HaStatus | None]:
        addresses = await targets(admin, broker, cluster, slaves=True)
        return await ask_each(addresses, admin.brokers.ha_status)

    found = run(name_server, act)
    if as_document:
        print_document(found)
        return
    for address, status in found.items():
        if status is not None:
            (_print_master if status.master else _print_slave)(address, status)


def _print_master(address: str, status: HaStatus) -> None:
    print(f"#MasterAddr     {address}")
    print(f"#MasterCommitLogMaxOffset     {status.master_commit_log_max_offset}")
    print(f"#SlaveNum     {len(status.ha_connection_info)}")
    print(f"#InSyncSlaveNum     {status.in_sync_slave_nums}")
    table = Table("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status")
    for slave in status.ha_connection_info:
        speed = f"{slave.transferred_byte_in_second / 1024:.2f}"
        state = "OK" if slave.in_sync else "Fall Behind"
        table.add(slave.addr, slave.slave_ack_offset, slave.diff, speed, state)
    table.print()
    print()


def _print_slave(address: str, status: HaStatus) -> None:
    client = status.ha_client_runtime_info
    print(f"#SlaveAddr     {address}")
    print(f"#MasterAddr     {client.master_addr or 'unknown'}")
    print(f"#CommitLogMaxOffset     {client.max_offset}")
    print(f"#TransferSpeed(KB/s)     {client.transferred_byte_in_second / 1024:.2f}")
    print(f"#LastReadTime     {time_text(client.last_read_timestamp)}")
    print(f"#LastWriteTime     {time_text(client.last_write_timestamp)}")
    print(f"#MasterFlushOffset     {client.master_flush_offset}")
    print()
