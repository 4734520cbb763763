"""The metrics of a controller under RocketMQ's names, which have no prefix."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from bolide.controller.config import ControllerConfig
from bolide.metrics.exporter import Collection, Readiness
from bolide.metrics.families import Family, Kind, Scope, Series
from bolide.metrics.requests import code_name, rpc_families
from bolide.metrics.settings import labels_of
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.remoting.latencies import RpcLatencies

_FOLLOWER, _LEADER = 2, 3
_METER = "controller"

NAMES: Final = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_GET_REPLICA_INFO,
    RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
    RequestCode.BROKER_HEARTBEAT, RequestCode.UPDATE_CONTROLLER_CONFIG,
    RequestCode.GET_CONTROLLER_CONFIG, RequestCode.CLEAN_BROKER_DATA,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RequestCode.CONTROLLER_APPLY_BROKER_ID,
}  # fmt: skip
"""Requests that `request_total` counts."""


class ControllerMetrics:
    """Collects the metrics of a controller.

    Args:
        leads: whether it is the leader now.
        knows_leader: whether there is one, as far as it knows.
        alive: numbers of live brokers by group.
    """

    def __init__(
        self,
        config: ControllerConfig,
        latencies: RpcLatencies,
        *,
        leads: Callable[[], bool],
        knows_leader: Callable[[], bool],
        alive: Callable[[], Mapping[tuple[str, str], int]],
    ) -> None:
        self._latencies = latencies
        self._leads = leads
        self._knows_leader = knows_leader
        self._alive = alive
        self._directory = config.controller_store_path
        labels = labels_of(config) | {
            "address": config.own.address,
            "group": config.controller_d_leger_group,
            "peer_id": config.own.id,
        }
        self._scope = Scope(tuple(sorted(labels.items())), _METER)

    def begin(self, *, is_alone: bool = True) -> Collection:
        """Begin a collection, on the event loop.

        Args:
            is_alone: False in the process of a NameServer, which has latencies of its own: a name
                may be there once only.
        """
        role = _LEADER if self._leads() else _FOLLOWER if self._knows_leader() else 0
        alive = dict(self._alive())

        def families(_: Callable[[], None]) -> Iterator[Family]:
            scope, latencies = self._scope, self._latencies.snapshot()
            yield Family(
                "role", Kind.GAUGE, "3: leader, 2: follower, 0: it knows no leader.",
                [((), role)], scope=scope,
            )  # fmt: skip
            yield Family(
                "dledger_disk_usage", Kind.GAUGE, "Bytes of the journal.",
                [((), _size(self._directory))], unit="bytes", scope=scope,
            )  # fmt: skip
            yield Family(
                "active_broker_num", Kind.GAUGE, "Brokers that are alive.",
                list(alive.items()), labels=("cluster", "broker_set"), scope=scope,
            )  # fmt: skip
            requests: dict[tuple[str, ...], int] = {}
            for outcome, each in latencies:
                if outcome.request_code in NAMES:
                    done = outcome.response_code == ResponseCode.SUCCESS
                    name = code_name(RequestCode, outcome.request_code)
                    key = name, "success" if done else "failed"
                    requests[key] = requests.get(key, 0) + sum(each.counts)
            series: list[Series] = list(requests.items())
            yield Family(
                "request_total", Kind.COUNTER, "Requests of brokers and administrators.",
                series, labels=("request_type", "request_handle_status"), scope=scope,
            )  # fmt: skip
            if is_alone:
                yield from rpc_families(latencies, scope)

        return families

    def readiness(self) -> Readiness:
        """Whether the quorum has a leader: without one, no master is elected."""
        missing = {}
        if not self._leads() and not self._knows_leader():
            missing["leader"] = "no controller leads, as far as this one knows"
        return Readiness(missing, {"leads": self._leads()})


def _size(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file())
