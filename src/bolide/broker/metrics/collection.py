"""`BrokerMetrics`: what a broker gives to the exporter of metrics, and whether it is ready."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from bolide.broker.components import Parts
from bolide.broker.metrics import families as own
from bolide.broker.metrics.client_figures import ClientFigures
from bolide.broker.metrics.exporter_names import exporter_broker_families, exporter_group_families
from bolide.broker.metrics.lag import LagReader, merged
from bolide.broker.metrics.slave_names import SlaveNames
from bolide.broker.metrics.state import State, state_families
from bolide.broker.registration import Registration
from bolide.broker.settings.config import BrokerConfig
from bolide.metrics.exporter import Collection, Readiness
from bolide.metrics.families import Family, Scope
from bolide.metrics.settings import labels_of
from bolide.model.names import WRITE
from bolide.protocol.bodies.heartbeat import MessageModel
from bolide.store.errors import StoreClosed


class BrokerMetrics:
    """Collects the metrics of a broker; made before its parts.

    Args:
        parts: those of the present term, None while there are none.
        registration: with the NameServers, None while there is none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        parts: Callable[[], Parts | None],
        registration: Callable[[], Registration | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._parts = parts
        self._registration = registration
        self._now = now
        self._boot_time = now()
        self._lags = LagReader()
        self._client_figures = ClientFigures()
        self._slave_names = SlaveNames()
        labels = labels_of(config) | {
            "cluster": config.broker_cluster_name,
            "node_type": "broker",
            "node_id": config.broker_name,
        }
        if config.metrics_in_delta:
            labels["aggregation"] = "delta"
        self._scope = Scope(tuple(sorted(labels.items())), own.METER)

    # ---- metrics

    def prepare(self) -> Iterator[None]:
        """Do before `begin` what takes long on the event loop; yields every few milliseconds."""
        parts = self._parts()
        if parts is not None:
            yield from parts.statistics.collect_in_slices()

    def begin(self) -> Collection:
        """Begin a collection: on the event loop; the rest of it runs on a thread."""
        parts = self._parts()
        if parts is None:
            return lambda _: iter(())
        parts.statistics.before_read()  # the fast path adds what it has counted
        sampled = own.Sampled.of(parts, self._boot_time, self._now())
        if parts.cell.value.enable_client_metrics and sampled.leads:
            self._client_figures.ask_soon(parts)
        if parts.cell.value.enable_exporter_metrics:
            self._slave_names.ask_soon(parts)
        state = State.of(parts, self.readiness().missing)
        return lambda rest: self._families(parts, sampled, state, rest)

    def _families(
        self, parts: Parts, sampled: own.Sampled, state: State, rest: Callable[[], None]
    ) -> Iterator[Family]:
        try:
            yield from self._all(parts, sampled, state, rest)
        except StoreClosed:  # the broker stops
            return

    def _all(
        self, parts: Parts, sampled: own.Sampled, state: State, rest: Callable[[], None]
    ) -> Iterator[Family]:
        config, scope, now = parts.cell.value, self._scope, self._now()
        names = own.Names(parts)
        rooms: tuple[tuple[bool, Callable[[], Iterator[Family]]], ...] = (
            (config.enable_stats_metrics, lambda: own.stats_families(parts, scope, sampled)),
            (
                config.enable_stats_metrics,
                lambda: state_families(parts, scope, state, sampled.halves, now),
            ),
            (config.enable_request_metrics, lambda: own.request_families(parts, scope, names)),
            (
                config.enable_connection_metrics,
                lambda: own.connection_families(parts, scope, names),
            ),
            (
                config.enable_transaction_metrics,
                lambda: own.transaction_families(parts, scope, sampled),
            ),
            (config.enable_remoting_metrics, lambda: own.remoting_families(parts, scope)),
            (
                config.enable_message_store_metrics,
                lambda: own.store_families(parts, scope, sampled, now),
            ),
            (config.enable_pop_metrics, lambda: own.pop_families(parts, scope, sampled)),
        )
        for is_enabled, families in rooms:
            if is_enabled:
                yield from families()
        yield from self._lag_families(parts, names, sampled, rest)

    def _lag_families(
        self, parts: Parts, names: own.Names, sampled: own.Sampled, rest: Callable[[], None]
    ) -> Iterator[Family]:
        config, now, lags = parts.cell.value, self._now(), []
        has_lags = config.enable_lag_and_dlq_metrics or config.enable_exporter_metrics
        if has_lags and sampled.leads:
            lags = list(self._lags.lags(parts, rest))
        if config.enable_lag_and_dlq_metrics:
            # Consumers that broadcast keep their offsets to themselves.
            known = merged(each for each in lags if each.model is not MessageModel.BROADCASTING)
            yield from own.lag_families(parts, self._scope, names, known, now)
            if config.enable_queue_lag_metrics:
                yield from own.queue_families(known, self._scope, now)
        if config.enable_exporter_metrics:
            if sampled.leads:
                yield from exporter_group_families(parts, lags, now, rest)
            yield from exporter_broker_families(parts, sampled.figures, self._slave_names.members)
        if config.enable_client_metrics and sampled.leads:
            yield from self._client_figures.families()

    # ---- readiness

    def readiness(self) -> Readiness:
        """What this broker lacks to accept messages from producers."""
        parts = self._parts()
        if parts is None:
            return Readiness({"starting": "the store is opened and recovered"})
        config, registration = parts.cell.value, self._registration()
        missing, facts = self._missing(parts, config), _facts(parts, config)
        if config.name_servers:
            servers = registration.accepted_by if registration is not None else []
            facts["registeredAt"] = servers
            if not servers:
                missing["registration"] = (
                    f"no NameServer of {';'.join(config.name_servers)} has accepted it"
                )
        return Readiness(missing, facts)

    def _missing(self, parts: Parts, config: BrokerConfig) -> dict[str, str]:
        missing, store = {}, parts.store
        if parts.role.is_master:
            if store.refusal is not None:
                missing["store"] = str(store.refusal)
        else:
            missing["role"] = "it is a slave: producers send to its master"
        if causes := store.health.causes:
            missing["disk"] = "; ".join(causes.values())
        if not config.broker_permission & WRITE:
            missing["permission"] = f"brokerPermission={config.broker_permission} allows no sends"
        if config.start_accept_send_request_time_stamp > self._now():
            missing["time"] = "startAcceptSendRequestTimeStamp lies ahead"
        return missing


def _facts(parts: Parts, config: BrokerConfig) -> dict[str, Any]:
    return {"broker": config.broker_name, "role": str(parts.role)}
