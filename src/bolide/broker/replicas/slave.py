"""Replication as a slave's other parts see it: which master it follows, and how far it is."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from bolide.broker.replicas.metadata_sync import MetadataSync
from bolide.broker.replicas.role import Role
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.events import Listeners
from bolide.protocol.bodies.replication import HaClient, HaStatus
from bolide.replication.epochs import Epochs
from bolide.replication.replica import Replica, ReplicaSettings
from bolide.store.message_store import MessageStore
from bolide.store.replica_log import ReplicatedQueue

log = logging.getLogger(__name__)

AskHaAddress = Callable[[str], Awaitable[str | None]]
"""Asks a master for its HA address."""

_ASK_INTERVAL = 0.5


class SlaveReplication:
    """Follows the master of the group; `run` is its task. Belongs to one event loop."""

    def __init__(
        self,
        cell: ConfigCell[BrokerConfig],
        store: MessageStore,
        role: Role,
        sync: MetadataSync,
        epochs: Epochs | None = None,
    ) -> None:
        self._cell = cell
        self._store = store
        self._role = role
        self.sync = sync
        self.master_address: str | None = role.master_address
        """Address of the master for requests."""
        self._ha_address: str | None = cell.value.ha_master_address or None
        self.replica = Replica(
            store,
            self._replica_settings,
            master=lambda: self._ha_address,
            epochs=epochs,
            fence=lambda: role.epoch,
            tls=self._tls_context,
        )
        self.lowest_id = 0
        """Lowest id of the group's members, as a NameServer told; 0 while there is a master."""
        self.on_readable: Listeners[dict[tuple[str, int], int]] = Listeners()
        """Emitted with the queues whose new messages may be read, and where they end in the log."""
        self.on_master_missing: Listeners[[]] = Listeners()
        """Emitted each second in which no master is connected: its address may be another now."""
        self._arrived: dict[tuple[str, int], tuple[int, int]] = {}
        """Queues that wait to be announced: where the oldest and the newest of their messages that
        were not announced end in the log."""
        self.replica.on_arrived.add(self._queues_arrived)
        self.replica.on_confirmed.add(lambda _: self._announce())
        self._rate = 0
        self._counted = 0

    @property
    def is_master_up(self) -> bool:
        """Whether the group has a master, as far as this slave knows."""
        return self.replica.master is not None and self.lowest_id == 0

    @property
    def lacks_master(self) -> bool:
        """Whether a NameServer must tell the master, and none has told one that answers."""
        return not self._role.is_elected and self.replica.master is None

    def follow(self, master_address: str | None, ha_address: str | None) -> None:
        """Follow the master that a NameServer or a master told; an empty address changes nothing.

        In controller mode the controller decides, so what NameServers tell is ignored.
        """
        if self._role.is_elected:
            return
        if master_address:
            self.master_address = master_address
        if ha_address and not self._cell.value.ha_master_address:
            self._ha_address = ha_address

    def known_masters(self) -> tuple[str | None, ...]:
        """Addresses of the present master, as far as they are known."""
        return self.master_address, self._ha_address

    async def run(self, ask_ha_address: AskHaAddress) -> None:
        """Replicate the log and copy metadata until cancelled."""
        self._store.replica.begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.replica.run(), name="replication-replica")
            copying = self.sync.run(lambda: self.master_address, lambda: self.replica.following)
            tasks.create_task(copying, name="replication-sync")
            tasks.create_task(self._watch(), name="replication-watch")
            if self._role.is_elected and self._ha_address is None:
                tasks.create_task(self._learn_ha_address(ask_ha_address), name="replication-ask")

    async def _learn_ha_address(self, ask: AskHaAddress) -> None:
        """Ask the elected master for its HA address until it answers."""
        while self._ha_address is None:
            if self.master_address is not None:
                try:
                    self._ha_address = await ask(self.master_address)
                except (BolideError, OSError) as exc:
                    log.debug(
                        "master %s does not tell its HA address: %s", self.master_address, exc
                    )
            if self._ha_address is None:
                await asyncio.sleep(_ASK_INTERVAL)

    def _queues_arrived(self, queues: list[ReplicatedQueue]) -> None:
        arrived = {(each.topic.decode(), each.queue_id): each.end for each in queues}
        for key, end in arrived.items():
            oldest, _ = self._arrived.get(key, (end, 0))
            self._arrived[key] = oldest, end
        self.sync.arrived(topic for topic, _ in arrived)
        self._announce()

    def _announce(self) -> None:
        readable = self._store.log.readable
        ready = {}
        for key, (oldest, newest) in list(self._arrived.items()):
            if newest <= readable:
                ready[key] = newest
                del self._arrived[key]
            elif oldest <= readable:
                ready[key] = oldest
                self._arrived[key] = newest, newest
        if ready:
            self.on_readable(ready)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self.replica.master is None:
                self.on_master_missing()
            self._rate = self.replica.received - self._counted
            self._counted = self.replica.received

    def status(self) -> HaStatus:
        """The answer to GET_BROKER_HA_STATUS."""
        return HaStatus(
            master=False,
            master_commit_log_max_offset=self._store.log.written,
            ha_client_runtime_info=HaClient(
                master_addr=self.replica.master or self._ha_address,
                transferred_byte_in_second=self._rate,
                max_offset=self._store.log.written,
                last_read_timestamp=int(self.replica.last_read_time() * 1000),
                last_write_timestamp=int(self.replica.last_write_time() * 1000),
                master_flush_offset=self._store.log.flushed,
            ),
        )

    def figures(self) -> dict[str, str]:
        """What the runtime information shows."""
        cuts = self.replica.truncations
        return {
            "brokerRole": str(self._role),
            "replicatesFrom": self.replica.master or "",
            "confirmOffset": str(self._store.log.readable),
            "logCuts": ";".join(
                f"{each.records} messages at {each.position}, kept in "
                + ", ".join(map(str, each.kept_aside))
                for each in cuts
            ),
        }

    def _replica_settings(self) -> ReplicaSettings:
        config = self._cell.value
        return ReplicaSettings(
            heartbeat_interval=config.ha_send_heartbeat_interval,
            silence_limit=config.ha_housekeeping_interval,
            broker_id=self._role.member_id if self._role.is_elected else self._role.broker_id,
            from_last_file=config.sync_from_last_file,
            is_learner=config.async_learner,
        )

    def _tls_context(self, host: str) -> ssl.SSLContext | None:
        if not self._cell.value.ha_tls_enable:
            return None
        tls = self._cell.value.client_tls()
        assert tls is not None  # checked with the settings
        return tls.context()
