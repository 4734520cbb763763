"""Who is in which cluster."""

from bolide.admin.servers import Servers
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo


class Clusters:
    """What the name servers know of clusters and their brokers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def info(self) -> ClusterInfo:
        return await self._servers.info()

    async def masters(self, cluster: str) -> list[str]:
        """Addresses of the masters; raises ClusterNotFound."""
        return await self._servers.masters_of(cluster)

    async def members(self, cluster: str) -> list[str]:
        """Addresses of masters and slaves."""
        return await self._servers.members_of(cluster)

    async def brokers(self, cluster: str) -> list[BrokerRoute]:
        return await self._servers.brokers_of(cluster)

    async def broker_at(self, address: str) -> BrokerRoute:
        """Raises BrokerUnknown."""
        return await self._servers.broker_at(address)

    async def address_of(self, broker_name: str) -> str:
        """The master's address, else a slave's; raises BrokerUnknown."""
        return await self._servers.address_of(broker_name)
