"""The metrics of a NameServer; RocketMQ's has none."""

from collections.abc import Callable, Iterator

from bolide.metrics.exporter import Collection, Readiness
from bolide.metrics.families import Family, Kind, Scope
from bolide.metrics.requests import rpc_families
from bolide.metrics.settings import labels_of
from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.routes import RouteTable
from bolide.remoting.latencies import RpcLatencies


class NameServerMetrics:
    """Collects the metrics of a NameServer.

    Args:
        is_serving: whether it has begun to.
        others: collects the metrics of what else runs in this process.
    """

    def __init__(
        self,
        config: NameServerConfig,
        routes: RouteTable,
        latencies: RpcLatencies,
        connections: Callable[[], int],
        *,
        is_serving: Callable[[], bool],
        others: Callable[[], Collection],
    ) -> None:
        self._routes = routes
        self._latencies = latencies
        self._connections = connections
        self._is_serving = is_serving
        self._others = others
        labels = labels_of(config) | {"node_type": "namesrv"}
        self._scope = Scope(tuple(sorted(labels.items())))

    def begin(self) -> Collection:
        """Begin a collection, on the event loop."""
        counts, connections, others = self._routes.counts, self._connections(), self._others()

        def families(rest: Callable[[], None]) -> Iterator[Family]:
            for name, text, number in (
                ("bolide_namesrv_brokers", "Brokers that are registered.", counts.brokers),
                ("bolide_namesrv_broker_groups", "Groups that they form.", counts.groups),
                ("bolide_namesrv_topics", "Topics with a route.", counts.topics),
                ("bolide_namesrv_connections", "Open connections.", connections),
            ):
                yield Family(name, Kind.GAUGE, text, [((), number)], scope=self._scope)
            yield from rpc_families(self._latencies.snapshot(), self._scope)
            yield from others(rest)

        return families

    def readiness(self) -> Readiness:
        """Whether it answers route look-ups."""
        missing = {} if self._is_serving() else {"starting": "it does not serve yet"}
        return Readiness(missing, {"brokers": self._routes.counts.brokers})
