"""Replication as a master's other parts see it: what slaves have, and what sends wait for."""

import logging
import ssl
from collections.abc import Collection

from bolide.broker.replicas.role import Role
from bolide.broker.settings.config import BrokerConfig, BrokerRole
from bolide.config import ConfigCell
from bolide.errors import ConfigError
from bolide.events import Listeners
from bolide.protocol.bodies.replication import HaConnection, HaStatus
from bolide.remoting.address import host_of
from bolide.remoting.tls import ClientAuth, ServerTls
from bolide.replication.acknowledgement import (
    AckPolicy,
    Rule,
    confirmed_position,
    replicated_position,
)
from bolide.replication.epochs import Epochs
from bolide.replication.peers import PeerPolicy
from bolide.replication.primary import Primary, PrimarySettings
from bolide.store.errors import ReplicasNotEnough
from bolide.store.message_store import MessageStore

log = logging.getLogger(__name__)

_NOWHERE = -(2**63)
"""Further behind than any slave."""


class MasterReplication:
    """The slaves of this master; `produce.durability.ReplicaWaits` for its sends.

    Belongs to one event loop; serves slaves while its `async with` block runs.

    Args:
        epochs: of the log, in controller mode.
    """

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        store: MessageStore,
        role: Role,
        epochs: Epochs | None = None,
    ) -> None:
        config = cell.value
        self._cell = cell
        self._store = store
        self._role = role
        self.policy = (
            AckPolicy(Rule.NONE)
            if config.broker_role is BrokerRole.ASYNC_MASTER and not role.is_elected
            else config.ack_policy
        )
        self.confirms = role.is_elected
        self.waits = self.policy.waits
        self._required = (
            self.policy.copies
            if config.enable_slave_acting_master and not role.is_elected
            and self.waits and self.policy.rule is Rule.COUNT
            else 0
        )  # fmt: skip
        """Members that must be in sync, as in RocketMQ 5.x, or messages are refused; 0: none."""
        self._in_sync = 0
        self._unused_minimum = 1
        """The minInSyncReplicas without effect that was last reported."""
        self.on_confirmed: Listeners[int] = Listeners()
        """Emitted with the position that the whole sync-state set has, in controller mode."""
        self.on_replicated: Listeners[int] = Listeners()
        """Emitted with the position that enough slaves have, -1 if there are too few."""
        self._nearest = _NOWHERE
        """The highest position that a slave reported."""
        self._members = role.members | {role.member_id}
        self._listed = PeerPolicy.of(config.ha_allowed_replicas)
        self.primary = Primary(
            store.log,
            self._primary_settings,
            address=(config.bind_address, config.ha_listen_port),
            policy=PeerPolicy.of(config.ha_allowed_replicas, has_mutual_tls=config.ha_tls_enable),
            epochs=epochs,
            confirmed=lambda: store.log.readable,
            tls=_server_context(config) if config.ha_tls_enable else None,
        )
        self.primary.is_urgent = self.waits or self.confirms
        self.primary.on_report.add(self._reported)
        cell.on_change(self._settings_changed)

    async def __aenter__(self) -> "MasterReplication":
        host, port = self._cell.value.bind_address, self._cell.value.ha_listen_port
        try:
            await self.primary.__aenter__()
        except OSError as exc:
            raise ConfigError(
                f"haListenPort={port}: cannot listen on {host}:{port}: {exc}"
            ) from exc
        self._settings_changed(self._cell.value)
        if self.confirms:
            self.on_confirmed(self._store.log.readable)
        self._reported()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.primary.__aexit__()

    @property
    def is_master_up(self) -> bool:
        return True

    @property
    def lacks_master(self) -> bool:
        return False

    @property
    def epoch(self) -> int:
        """The epoch in which this broker was elected."""
        return self._role.epoch

    # ---- what sends wait for

    @property
    def timeout(self) -> float:
        return self._cell.value.slave_timeout

    def is_available(self, end: int) -> bool:
        """Whether a slave is near enough to be waited for, as in RocketMQ 4.9."""
        if self.policy.rule is not Rule.ONE_SLAVE:
            return True
        gap = self._cell.value.ha_max_gap_not_in_sync
        return end - self._nearest < gap

    def wake(self) -> None:
        """Send what was appended."""
        if self.primary.slaves:
            self.primary.wake()
        if self.confirms:
            self._confirm()
        elif self._required:
            self._check_in_sync()

    # ---- the sync-state set

    @property
    def members(self) -> frozenset[int]:
        """Members that must have a message before it is confirmed."""
        return self._members

    def set_members(self, members: Collection[int]) -> None:
        """Count these members from now on: the sync-state set and pending additions to it."""
        self._members = frozenset(members) | {self._role.member_id}
        self._check_count()
        self._reported()

    def _check_count(self) -> None:
        needed = self._cell.value.min_in_sync_replicas
        count = len(self._members)
        if self.confirms and count < needed:
            self._store.refuse(ReplicasNotEnough(count, needed))
        elif self.confirms:
            self._store.stop_refusing(ReplicasNotEnough)

    def _check_in_sync(self) -> None:
        """Refuse messages of an acting-master group while too few slaves are near."""
        end, gap = self._store.log.written, self._cell.value.ha_max_gap_not_in_sync
        slaves = self.primary.slaves
        count = 1 + sum(end - each.acked < gap and not each.is_doubtful for each in slaves)
        if count == self._in_sync:
            return
        self._in_sync = count
        if count < self._required:
            self._store.refuse(ReplicasNotEnough(count, self._required, "inSyncReplicas"))
        else:
            self._store.stop_refusing(ReplicasNotEnough)

    def _settings_changed(self, config: BrokerConfig) -> None:
        needed = config.min_in_sync_replicas
        if self.confirms:
            self._check_count()
        elif needed != self._unused_minimum:
            self._unused_minimum = needed
            log.warning(
                "minInSyncReplicas=%s has no effect without enableControllerMode=true; for a"
                " SYNC_MASTER set inSyncReplicas", needed,
            )  # fmt: skip

    def _reported(self) -> None:
        if self.confirms:
            self._confirm()
        elif self._required:
            self._check_in_sync()
        if self.waits and self.policy.rule is not Rule.SYNC_STATE_SET:
            positions = self.primary.positions()
            self._nearest = max((each.acked for each in self.primary.slaves), default=_NOWHERE)
            self.on_replicated(replicated_position(positions, self.policy))

    def _confirm(self) -> None:
        commit_log = self._store.log
        position = confirmed_position(
            commit_log.written, self.primary.acks(), self._members, self._role.member_id
        )
        # It never goes back: a new member counts from what it must have had to become one.
        position = max(position, commit_log.confirmed)
        if position > commit_log.confirmed:
            commit_log.confirmed = position
            self.on_confirmed(position)
        if self.waits and self.policy.rule is Rule.SYNC_STATE_SET:
            self.on_replicated(position)

    # ---- facts for administrators, and for requests of slaves

    def knows_slave(self, host: str) -> bool:
        """Whether slaves run on a host: it is listed, or a slave there replicates over TLS now."""
        return self._listed.admits(host) or (
            self._cell.value.ha_tls_enable
            and any(host_of(slave.peer) == host for slave in self.primary.slaves)
        )

    def status(self) -> HaStatus:
        """The answer to GET_BROKER_HA_STATUS."""
        end, gap = self._store.log.written, self._cell.value.ha_max_gap_not_in_sync
        slaves = [
            HaConnection(
                addr=slave.peer,
                slave_ack_offset=slave.acked,
                diff=end - slave.acked,
                in_sync=end - slave.acked < gap,
                transferred_byte_in_second=slave.rate,
                transfer_from_where=slave.position,
            )
            for slave in self.primary.slaves
        ]
        return HaStatus(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(each.in_sync for each in slaves),
            ha_connection_info=slaves,
        )

    def figures(self) -> dict[str, str]:
        """What the runtime information shows."""
        figures = {"brokerRole": str(self._role), "slaves": str(len(self.primary.slaves))}
        if self.confirms:
            figures["syncStateSet"] = ";".join(map(str, sorted(self._members)))
            figures["confirmOffset"] = str(self._store.log.readable)
        return figures

    def _primary_settings(self) -> PrimarySettings:
        config = self._cell.value
        return PrimarySettings(
            transfer_size=config.ha_transfer_batch_size,
            heartbeat_interval=config.ha_send_heartbeat_interval,
            silence_limit=config.ha_housekeeping_interval,
        )


def _server_context(config: BrokerConfig) -> ssl.SSLContext:
    tls: ServerTls = config.server_config().tls
    return ServerTls(
        certificate=tls.certificate,
        key=tls.key,
        key_password=tls.key_password,
        trust=tls.trust,
        client_auth=ClientAuth.REQUIRE,
        protocols=tls.protocols,
        ciphers=tls.ciphers,
    ).context()
