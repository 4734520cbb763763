"""Brokers that were there lately and are not registered now: what they have, nobody can tell.

Lists are made of what the registered brokers tell. A broker that unregistered fails no request, so
that a list without this would say "none" of what is only away.
"""

from bolide.admin.servers import MASTER
from bolide.operations.cluster import Cluster
from bolide.operations.history.brokers import NOT_REGISTERED
from bolide.operations.servers.members import seen_brokers
from bolide.operations.views import Failure
from bolide.protocol.bodies.routes import ClusterInfo

NO_MASTER = "no master of it is registered at the NameServers"
NO_BROKER = "no broker is registered"
_SECONDS = 1.0


async def missing_brokers(cluster: Cluster, *, masters: bool = False) -> list[Failure]:
    """One failure for each broker group that is away; see `missing_from`."""
    info = await cluster.shared("missing brokers", cluster.admin.clusters.info, seconds=_SECONDS)
    return missing_from(cluster, info, masters=masters)


def missing_from(cluster: Cluster, info: ClusterInfo, *, masters: bool = False) -> list[Failure]:
    """One failure for each broker group that is away, or one if no broker is registered at all.

    A group is there as long as one of its members is registered, for a slave tells the same. With
    `masters`, it has to be the master. Brokers are known for a day, or until they are forgotten
    (`servers.members.forget_stopped`); without a console that looks, none is known to be missing.
    """
    present = {name for name, route in info.broker_addr_table.items() if route.broker_addrs}
    known = {name for name, _ in seen_brokers(cluster)} | present
    if cluster.history is not None:
        known |= {each.name for each in cluster.history.broker_figures()}
    if not known:
        return [Failure(server=cluster.name_servers, reason=NO_BROKER)]
    failures = [Failure(server=name, reason=NOT_REGISTERED) for name in sorted(known - present)]
    if masters:
        failures += [
            Failure(server=name, reason=NO_MASTER)
            for name in sorted(present)
            if MASTER not in info.broker_addr_table[name].broker_addrs
        ]
    return failures


def names_of(missing: list[Failure]) -> str:
    """Which servers they are, in a text."""
    return ", ".join(each.server for each in missing)
