"""Settings of replication and of controller mode, and what a file for DLedger asks for."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from bolide.config import Unit, option
from bolide.errors import ConfigError
from bolide.remoting.address import format_address, split_address
from bolide.replication.acknowledgement import AckPolicy, Rule

log = logging.getLogger(__name__)

_DAY_MS = 86_400_000
_MIB = 1024 * 1024
_CONTROLLER_PORT_DELTA = 2
"""Distance from a NameServer's port to the one of the controller in its process, by default."""
_DLEDGER_KEYS = ("enableDLegerCommitLog", "dLegerGroup", "dLegerPeers", "dLegerSelfId")


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """Replicas of this broker's log, and the controller that elects their master."""

    ha_master_address: str = option(
        "",
        "HA address of the master that a slave follows; by default the one that the NameServers"
        " or the controller tell.",
        fixed=True,
    )
    ha_send_heartbeat_interval: float = option(
        5.0, "Milliseconds of silence after which a replication connection gets a heartbeat.",
        bounds=(10, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    ha_housekeeping_interval: float = option(
        20.0, "Milliseconds of silence after which a replication connection is closed.",
        bounds=(100, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    ha_transfer_batch_size: int = option(
        32 * 1024, "Most bytes of the log in one transfer to a slave.",
        bounds=(1, 4 * _MIB), live=True, unit=Unit.BYTES,
    )  # fmt: skip
    ha_max_gap_not_in_sync: int = option(
        256 * _MIB,
        "Bytes that the nearest slave may be behind before a SYNC_MASTER answers sends with"
        " SLAVE_NOT_AVAILABLE instead of waiting.",
        bounds=(1, None), aliases=("haSlaveFallbehindMax",), live=True, unit=Unit.BYTES,
    )  # fmt: skip
    slave_timeout: float = option(
        3.0, "Milliseconds that a send waits for replicas before it answers FLUSH_SLAVE_TIMEOUT.",
        bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    in_sync_replicas: int = option(
        0,
        "Members, this master included, that must have a message before a SYNC_MASTER acknowledges"
        " it; 0, the default, means one slave, as in RocketMQ 4.9. With enableSlaveActingMaster it"
        " refuses messages while fewer are in sync.",
        bounds=(0, 100),
    )
    min_in_sync_replicas: int = option(
        1,
        "Members, this master included, below which a master in controller mode refuses messages;"
        " without effect in other groups.",
        bounds=(1, 100), live=True,
    )  # fmt: skip
    all_ack_in_sync_state_set: bool = option(
        True,
        "In controller mode, acknowledge a message when every member of the sync-state set has it;"
        " if not, inSyncReplicas counts, and a failover can lose acknowledged messages.",
    )
    ha_max_time_slave_not_catchup: float = option(
        3.0,
        "Milliseconds after which a slave that has not caught up leaves the sync-state set.",
        bounds=(100, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    sync_from_last_file: bool = option(
        False, "An empty slave in controller mode copies only the newest log file of its master."
    )
    async_learner: bool = option(
        False, "This replica never joins the sync-state set and never becomes master."
    )
    enable_slave_acting_master: bool = option(
        False,
        "While a group with fixed roles has no master, its slave with the lowest id stands in: it"
        " serves pulls, keeps offsets, locks queues and, with enableRemoteEscape, delivers delayed"
        " and timed messages.",
    )
    enable_remote_escape: bool = option(
        False,
        "An acting master sends delayed and timed messages that are due to other broker groups that"
        " have the topic; otherwise they wait for the master.",
        fixed=True,
    )
    sync_broker_member_group_period: float = option(
        1.0,
        "Milliseconds after which a slave with enableSlaveActingMaster asks the NameServers again"
        " whether its group has a master.",
        bounds=(100, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    skip_pre_online: bool = option(
        False,
        "A master starts without asking the slaves of its group for what was committed and"
        " delivered while it was away.",
    )
    ha_allowed_replicas: tuple[str, ...] = option(
        (),
        "Addresses or networks of slaves that may copy the log, separated by semicolons; slaves on"
        " this machine always may.",
        ours=True,
        fixed=True,
    )
    ha_tls_enable: bool = option(
        False,
        "Replicate over TLS; master and slave verify each other's certificate.",
        ours=True,
        fixed=True,
    )
    metadata_sync_interval: float = option(
        1.0,
        "Milliseconds after which a slave asks its master again for topics, groups and offsets.",
        key="slaveMetadataSyncInterval",
        bounds=(100, _DAY_MS), scale=1000, ours=True, live=True,
    )  # fmt: skip

    enable_controller_mode: bool = option(
        False, "Let a controller decide which member of the group is its master.", fixed=True
    )
    controller_addr: tuple[str, ...] = option(
        (), "Addresses of the controllers, separated by semicolons.", live=True
    )
    broker_election_priority: int = option(
        2**31 - 1, "Of several candidates the one with the lowest priority becomes master.",
        bounds=(0, 2**31 - 1),
    )  # fmt: skip
    master_lease_required: bool = option(
        False,
        "In controller mode, refuse messages while no controller quorum is reachable, although no"
        " other member can be elected then.",
        ours=True,
        live=True,
    )
    store_path_epoch_file: str = option(
        "", "File of the epochs; by default epochFileCheckpoint below storePathRootDir.", fixed=True
    )
    store_path_broker_identity: str = option(
        "",
        "File of this replica's id; by default brokerIdentity below storePathRootDir.",
        fixed=True,
    )

    @property
    def ack_policy(self) -> AckPolicy:
        """What sends of a SYNC_MASTER or of a master in controller mode wait for."""
        if self.enable_controller_mode and self.all_ack_in_sync_state_set:
            return AckPolicy(Rule.SYNC_STATE_SET)
        if self.in_sync_replicas or self.enable_controller_mode:
            return AckPolicy(Rule.COUNT, max(self.in_sync_replicas, 1))
        return AckPolicy(Rule.ONE_SLAVE)


def understand_dledger(texts: Mapping[str, str]) -> dict[str, str]:
    """Translate the settings of a DLedger group (RocketMQ 4.5 to 5.x) into controller mode.

    DLedger replicates the log itself by Raft. Here the group gets replicas and a controller: the
    group name is the broker name, and a message is acknowledged when the sync-state set, at least
    a majority of the group, has it. Keys that are set explicitly are kept.

    Raises:
        ConfigError: the settings of the group are incomplete.
    """
    given = dict(texts)
    if given.get("enableDLegerCommitLog", "").strip().lower() != "true":
        return given
    peers = [each for each in given.get("dLegerPeers", "").split(";") if each.strip()]
    group, own = given.get("dLegerGroup", "").strip(), given.get("dLegerSelfId", "").strip()
    names = [each.strip().partition("-")[0] for each in peers]
    if len(set(names)) < len(names):
        raise ConfigError(f"dLegerPeers={given['dLegerPeers']}: an id stands there twice")
    if not group or own not in names:
        raise ConfigError(
            "enableDLegerCommitLog=true: set dLegerGroup, dLegerPeers (n0-host:port;n1-host:port)"
            " and dLegerSelfId, which must be one of the peers"
        )
    chosen = {
        "enableControllerMode": "true",
        "brokerName": group,
        "minInSyncReplicas": str(len(peers) // 2 + 1 if len(peers) > 2 else 1),
        "controllerAddr": _controllers_beside(given.get("namesrvAddr", "")),
    }
    added = {key: text for key, text in chosen.items() if not given.get(key, "").strip()}
    if added.get("controllerAddr") == "":
        raise ConfigError(
            "enableDLegerCommitLog=true: the group needs controllers. Set namesrvAddr (or give -n)"
            " to NameServers with enableControllerInNamesrv=true, or controllerAddr"
        )
    if ";" in added.get("controllerAddr", ""):
        log.warning(
            "enableDLegerCommitLog=true: controllerAddr=%s, a controller in each NameServer. They"
            " must be one quorum: with enableControllerInNamesrv=true alone each NameServer runs a"
            " controller of its own, and this broker joins none of them. Set the same"
            " controllerDLegerPeers, and each its own controllerDLegerSelfId, at all NameServers,"
            " or set controllerAddr here", added["controllerAddr"],
        )  # fmt: skip
    given |= added
    for key in _DLEDGER_KEYS:
        given.pop(key, None)
    log.info(
        "enableDLegerCommitLog=true: this broker joins group %s in controller mode, with %s; its"
        " log has RocketMQ's usual format, not DLedger's",
        group, ", ".join(f"{key}={text}" for key, text in added.items()) or "your settings",
    )  # fmt: skip
    return given


def _controllers_beside(name_servers: str) -> str:
    """Addresses of the controllers inside NameServers."""
    found = []
    for text in filter(None, (each.strip() for each in name_servers.split(";"))):
        host, port = split_address(text)
        found.append(format_address((host, port + _CONTROLLER_PORT_DELTA)))
    return ";".join(found)
