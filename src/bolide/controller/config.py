"""Controller settings under RocketMQ's keys (`ControllerConfig`, `JraftConfig`)."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bolide.auth.settings import AccessSettings
from bolide.config import Ignored, option
from bolide.controller.liveness import LeaseTimes
from bolide.errors import ConfigError
from bolide.logs import LogLevel
from bolide.metrics.settings import CONTROLLER_PORT, MetricsSettings, check_metrics
from bolide.remoting.address import format_address, is_loopback_host, split_address
from bolide.remoting.settings import IGNORED_SERVER, THREADS, ServerSettings

_PEER = re.compile(r"([^-;\s]+)-(\S+)")


@dataclass(frozen=True, slots=True)
class Peer:
    """One controller: its id, where it serves requests, and where its Raft node listens."""

    id: str
    address: str
    raft_address: str

    @property
    def host(self) -> str:
        return split_address(self.address)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(MetricsSettings, AccessSettings, ServerSettings):
    """All settings of a controller. Durations are seconds here, milliseconds in files."""

    __ours__: ClassVar = frozenset({"metrics_cardinality_limit", "metrics_export_batch"})

    listen_port: int = option(
        0,
        "Taken from the address of this controller in controllerDLegerPeers.",
        bounds=(0, 65535),
        fixed=True,
    )

    metrics_prom_exporter_port: int = option(
        CONTROLLER_PORT,
        "Port of /metrics. If it is not set and the default is taken, the next free one is used;"
        " 0 lets the system choose.",
        bounds=(0, 65535),
        fixed=True,
    )

    # The quorum
    controller_d_leger_group: str = option(
        "DefaultControllerGroup", "Name of the quorum.", fixed=True
    )
    controller_d_leger_peers: str = option(
        "n0-127.0.0.1:9878",
        "All controllers, as id-host:port separated by semicolons; the port serves requests.",
        fixed=True,
    )
    controller_d_leger_self_id: str = option(
        "n0", "Which of the peers this controller is.", fixed=True
    )
    controller_raft_port_offset: int = option(
        100,
        "The Raft port of a controller is its port in controllerDLegerPeers plus this number.",
        bounds=(-65535, 65535),
        ours=True,
        fixed=True,
    )
    controller_raft_password: str | None = option(
        None,
        "Encrypts the Raft connections, the same at all controllers; required unless all of them"
        " are on this machine.",
        ours=True,
        secret=True,
    )
    controller_store_path: Path = option(
        lambda: Path.home() / "DLedgerController",
        "Directory of the Raft journal; each controller has its own directory in it.",
    )

    # Brokers and elections
    controller_broker_expired_time: float = option(
        2.0,
        "Milliseconds without a heartbeat after which a broker is dead. A master's lease is 90 % of"
        " it, the period of heartbeats 15 %. The same at all controllers.",
        bounds=(500, 600_000),
        scale=1000,
        ours=True,
        fixed=True,
    )
    enable_elect_unclean_master: bool = option(
        False,
        "Elect a broker outside of the sync-state set if no other is alive, which loses messages.",
        live=True,
    )
    notify_broker_role_changed: bool = option(
        True, "Tell brokers at once when their master or sync-state set changes.", live=True
    )

    # Operation
    use_tls: bool = option(
        False,
        "Call RocketMQ's brokers over TLS.",
        key="useTLS",
        aliases=("tls.enable",),
        ours=True,
        fixed=True,
    )
    rocketmq_home: str | None = option(
        lambda: os.environ.get("ROCKETMQ_HOME"),
        "RocketMQ installation directory; its conf/ is searched for configuration files.",
        fixed=True,
    )
    config_store_path: Path = option(
        lambda: Path.home() / "controller" / "controller.properties",
        "File that receives changes made at run time.",
    )
    config_black_list: tuple[str, ...] = option(
        ("configBlackList", "configStorePath"),
        "Keys that cannot be changed at run time, separated by semicolons, besides the fixed ones.",
        fixed=True,
    )
    log_level: LogLevel = option(
        LogLevel.INFO, "Minimum level of log messages.", ours=True, live=True
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "listen_port", split_address(self.own.address)[1])
        if not self.bind_address:
            object.__setattr__(self, "bind_address", self.own.host)

    @property
    def acl_home(self) -> str | None:
        return self.rocketmq_home

    @property
    def times(self) -> LeaseTimes:
        return LeaseTimes(self.controller_broker_expired_time)

    @property
    def peers(self) -> tuple[Peer, ...]:
        """All controllers.

        Raises:
            ConfigError: controllerDLegerPeers cannot be read.
        """
        return tuple(_peers(self.controller_d_leger_peers, self.controller_raft_port_offset))

    @property
    def own(self) -> Peer:
        """This controller.

        Raises:
            ConfigError: it is not among the peers.
        """
        for peer in self.peers:
            if peer.id == self.controller_d_leger_self_id:
                return peer
        raise ConfigError(
            f"controllerDLegerSelfId={self.controller_d_leger_self_id}: controllerDLegerPeers="
            f"{self.controller_d_leger_peers} has no such id"
        )

    @property
    def raft_bind(self) -> str:
        """Where the Raft node listens."""
        port = split_address(self.own.raft_address)[1]
        is_local = is_loopback_host(self.own.host) and not is_loopback_host(self.bind_address)
        host = self.own.host if is_local else self.bind_address
        return format_address((host, port))

    @property
    def journal_path(self) -> Path:
        name = f"{self.controller_d_leger_group}-{self.controller_d_leger_self_id}"
        return self.controller_store_path / name / "journal"

    def check(self) -> None:
        """Raises ConfigError if settings contradict each other or leave a door open."""
        check_metrics(self)
        self.server_config()
        self.client_tls()
        remote = [each.address for each in self.peers if not is_loopback_host(each.host)]
        if remote and not self.controller_raft_password:
            raise ConfigError(
                f"controllerDLegerPeers names {remote[0]}, which is not on this machine, and"
                " controllerRaftPassword is not set: whoever reaches an open Raft port can run code"
                " in the controller. Set controllerRaftPassword to the same secret at all"
                " controllers"
            )


def _peers(text: str, offset: int) -> list[Peer]:
    found: dict[str, Peer] = {}
    for word in filter(None, (each.strip() for each in text.split(";"))):
        try:
            peer = _peer(word, offset)
        except ValueError as exc:
            raise ConfigError(f"controllerDLegerPeers={text}: {exc}") from exc
        if peer.id in found:
            raise ConfigError(f"controllerDLegerPeers={text}: {peer.id} is there twice")
        if any(peer.address == other.address for other in found.values()):
            raise ConfigError(f"controllerDLegerPeers={text}: {peer.address} is there twice")
        found[peer.id] = peer
    if not found:
        raise ConfigError("controllerDLegerPeers names no controller")
    return list(found.values())


def _peer(word: str, offset: int) -> Peer:
    match = _PEER.fullmatch(word)
    if match is None:
        raise ValueError(f"{word!r} is not of the form id-host:port")
    host, port = split_address(match[2])
    if not 0 < port + offset <= 65535:
        raise ValueError(f"the Raft port {port} + {offset} is out of range")
    return Peer(match[1], match[2], format_address((host, port + offset)))


_RAFT = "the quorum runs on another Raft library, whose journal is small"
_DEADLINES = "the leader looks at its deadlines all the time"
_PATHS_AND_ADDRESSES = {
    "jRaftServerId", "jRaftInitConf", "jRaftControllerRPCAddr",
}  # fmt: skip
_WITHOUT_EFFECT = {
    "controllerThreadPoolNums": ("16", THREADS),
    "controllerRequestThreadPoolQueueCapacity": ("50000", THREADS),
    "controllerType": ("DLedger", "there is one kind of controller"),
    "mappedFileSize": ("1073741824", _RAFT),
    "electMasterMaxRetryCount": ("3", "an election is tried until it succeeds"),
    "processReadEvent": ("false", "every read is confirmed by the log"),
    "scanInactiveMasterInterval": ("5000", _DEADLINES),
    "jRaftElectionTimeoutMs": ("1000", _RAFT),
    "jRaftSnapshotIntervalSecs": ("3600", _RAFT),
    "jRaftGroupId": ("jRaft-Controller", _RAFT),
    "jRaftServerId": ("localhost:9880", _RAFT),
    "jRaftInitConf": ("localhost:9880,localhost:9881,localhost:9882", _RAFT),
    "jRaftControllerRPCAddr": ("localhost:9770,localhost:9771,localhost:9772", _RAFT),
    "jRaftScanWaitTimeoutMs": ("1000", _RAFT),
}

IGNORED_CONTROLLER = {
    key: Ignored(default, reason, fixed=key in _PATHS_AND_ADDRESSES)
    for key, (default, reason) in _WITHOUT_EFFECT.items()
}
"""Keys of `ControllerConfig` and `JraftConfig` without effect here."""

IGNORED_ALONE = {"scanNotActiveBrokerInterval": Ignored("5000", _DEADLINES)}
"""Keys that have no effect in the file of a controller, but in that of a NameServer."""

ALL_IGNORED = IGNORED_CONTROLLER | IGNORED_ALONE | IGNORED_SERVER
"""All keys of a controller.conf that have no effect, besides those of access control and TLS."""
