"""Broker settings under RocketMQ's keys (`BrokerConfig`), and the loading of a broker.conf.

One file holds the settings of the broker and of its store; `load_settings` separates them.
"""

import logging
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from bolide.auth.settings import PlainAclSettings, refuse_other_classes
from bolide.broker.settings.replication import ReplicationSettings, understand_dledger
from bolide.broker.settings.sections import (
    AssignmentSettings,
    BrokerMetricsSettings,
    ColdReadSettings,
    FilterSettings,
    PopSettings,
    ReplySettings,
    TimerSettings,
    TransactionSettings,
)
from bolide.broker.settings.without_effect import (
    IGNORED,
    IGNORED_IN_FILES,
)
from bolide.config import load, option, options_of
from bolide.errors import ConfigError
from bolide.logs import LogLevel
from bolide.metrics.settings import MetricsSettings, check_metrics, with_port_given
from bolide.remoting.address import is_loopback_host, split_address
from bolide.remoting.client import ClientConfig
from bolide.remoting.settings import EVERY_INTERFACE, LOOPBACK, ServerSettings
from bolide.replication.peers import PeerPolicy
from bolide.store import config as store_settings
from bolide.store.config import StoreConfig

log = logging.getLogger(__name__)

_INT_MAX = 2**31 - 1
_DAY_MS = 86_400_000
_ANY_ADDRESS = {"", "0.0.0.0", "::"}  # noqa: S104  compared, not bound
_TOPIC_OF_SETTING = re.compile(r"[\w%|.:-]+")
_TRANSFER_LIMIT_PREFIX = "maxTransfer"

VIP_PORT_DELTA: Final = -2
"""Distance from the listen port to the VIP port, which RocketMQ's clients may use for sends."""

HA_PORT_DELTA: Final = 1
"""Distance from the listen port to the port for replication, unless haListenPort is set."""

ALL_IGNORED = IGNORED | store_settings.IGNORED
"""Keys of a broker.conf that have no effect; the console and mqadmin still show them."""


class BrokerRole(StrEnum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(
    ReplySettings,
    FilterSettings,
    ColdReadSettings,
    AssignmentSettings,
    PopSettings,
    TimerSettings,
    TransactionSettings,
    BrokerMetricsSettings,
    MetricsSettings,
    ReplicationSettings,
    PlainAclSettings,
    ServerSettings,
):
    """All settings of a broker. Durations are seconds here, milliseconds in files.

    Empty settings that depend on the machine are filled in: names, addresses and the HA port.
    """

    # Identity and addresses
    broker_cluster_name: str = option("DefaultCluster", "Name of the cluster.")
    broker_name: str = option(
        "",
        "Name of the broker group, shared by a master and its slaves; defaults to the host name.",
    )
    broker_id: int = option(
        0, "Id within the broker group: 0 is the master, others are slaves.", bounds=(0, _INT_MAX)
    )
    broker_role: BrokerRole = option(BrokerRole.ASYNC_MASTER, "ASYNC_MASTER, SYNC_MASTER or SLAVE.")
    listen_port: int = option(
        10911,
        "Port to listen on; listenPort - 2 (the VIP port) is served too. 0 selects a free port.",
        bounds=(0, 65535),
        fixed=True,
    )
    ha_listen_port: int = option(
        0, "Port for replication; 0 means listenPort + 1.", bounds=(0, 65535), fixed=True
    )
    broker_ip1: str = option(
        "",
        "Address announced to clients; defaults to bindAddress or the address of the host. Another"
        " address than loopback has the broker listen on every interface, as RocketMQ does.",
        key="brokerIP1",
        fixed=True,
    )
    broker_ip2: str = option(
        "", "Address announced to replicas; defaults to brokerIP1.", key="brokerIP2", fixed=True
    )

    workers: int = option(
        1,
        "Number of worker processes, each a broker group of its own; see --workers.",
        bounds=(1, 256), ours=True, fixed=True,
    )  # fmt: skip

    broker_hooks: tuple[str, ...] = option(
        (),
        "Hooks to load at the start, module:Class each, separated by semicolons; only from a file,"
        " the command line or the environment.",
        ours=True,
        fixed=True,
    )

    audit_enable: bool = option(
        True,
        "Record requests that administer, denied ones too, in the topic rmq_sys_bolide_audit.",
        ours=True,
        fixed=True,
    )

    # NameServers
    name_servers: tuple[str, ...] = option(
        (),
        "Addresses of NameServers, separated by semicolons; defaults to $NAMESRV_ADDR.",
        key="namesrvAddr",
        live=True,
    )
    register_name_server_period: float = option(
        30.0, "Milliseconds between registrations with NameServers, limited to 10000 to 60000.",
        bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    register_broker_timeout: float = option(
        24.0, "Milliseconds to wait for a NameServer's answer to a registration.",
        key="registerBrokerTimeoutMills", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    forward_timeout: float = option(
        3.0, "Milliseconds to wait for another broker that has a part of a logical queue.",
        bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    force_register: bool = option(
        True,
        "Always register in full, even if the NameServer has this version of the topics.",
        live=True,
    )
    compressed_register: bool = option(False, "Compress the bodies of registrations.", live=True)
    connect_timeout: float = option(
        3.0, "Milliseconds to wait for a connection to a NameServer.",
        key="connectTimeoutMillis", bounds=(1, _DAY_MS), scale=1000,
    )  # fmt: skip

    # Topics
    broker_permission: int = option(
        6, "Permission of the broker: 4 to read, 2 to write, 6 for both.", bounds=(0, 7), live=True
    )
    enable_mixed_message_type: bool = option(
        False, "Allow topics with message.type=MIXED.", live=True
    )
    auto_create_topic_enable: bool = option(
        True, "Create a topic when a message is sent to it.", live=True
    )
    default_topic_queue_nums: int = option(
        8,
        "Maximum number of queues of an automatically created topic.",
        bounds=(1, 65535),
        live=True,
    )
    cluster_topic_enable: bool = option(
        True, "Let clients send to the topic named after the cluster."
    )
    broker_topic_enable: bool = option(
        True, "Let clients send to the topic named after the broker."
    )
    trace_topic_enable: bool = option(False, "Create the topic for message traces.")
    msg_trace_topic_name: str = option(
        "RMQ_SYS_TRACE_TOPIC", "Name of the topic for message traces."
    )

    # Sending
    trace_on: bool = option(True, "Allow producers to trace their messages.", live=True)
    region_id: str = option("DefaultRegion", "Region announced to producers.", live=True)
    max_batch_count: int = option(
        30_000, "Maximum number of messages in a batch; a batch delays all other requests.",
        bounds=(1, _INT_MAX), ours=True, live=True,
    )  # fmt: skip
    dedup_max_keys: int = option(
        1_000_000,
        "Maximum number of keys remembered for topics with a dedup.window, at about 200 bytes of"
        " memory each; beyond it, the oldest keys are evicted.",
        bounds=(1, 100_000_000), ours=True, live=True,
    )  # fmt: skip
    start_accept_send_request_time_stamp: float = option(
        0.0, "Timestamp in milliseconds before which the broker refuses sends.",
        bounds=(0, 2**53), scale=1000, live=True,
    )  # fmt: skip

    # Pulling
    long_polling_enable: bool = option(
        True,
        "Suspend a pull that finds no messages for as long as the consumer requests, at most 5"
        " minutes.",
        live=True,
    )
    short_polling_time: float = option(
        1.0, "Milliseconds of suspension if longPollingEnable is false.",
        key="shortPollingTimeMills", bounds=(0, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    max_pull_count: int = option(
        1024, "Maximum number of messages of a pull, unless a maxTransfer… setting is given.",
        bounds=(1, _INT_MAX), ours=True, live=True,
    )  # fmt: skip
    max_pull_bytes: int = option(
        1024 * 1024, "Maximum size in bytes of a pull, unless a maxTransfer… setting is given.",
        bounds=(1, _INT_MAX), ours=True, live=True,
    )  # fmt: skip
    transfer_limits_given: bool = option(
        False,
        "Limit pulls by the maxTransfer… settings instead; true as soon as one of them is set.",
        ours=True,
        live=True,
    )
    slave_read_enable: bool = option(
        False,
        "Suggest a slave to consumers that are far behind; on a slave, serve their pulls.",
        live=True,
    )
    lite_pull_message_enable: bool = option(True, "Serve lite pull consumers.", live=True)
    reject_pull_consumer_enable: bool = option(False, "Refuse pull consumers.", live=True)

    # Groups, clients and offsets
    auto_create_subscription_group: bool = option(
        True, "Create a consumer group when a consumer first names it.", live=True
    )
    notify_consumer_ids_changed_enable: bool = option(
        True, "Notify consumers at once when a member joins or leaves their group.", live=True
    )
    channel_expired_timeout: float = option(
        120.0, "Milliseconds without a heartbeat after which a client is removed.",
        bounds=(100, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    consumer_offsets_interval: float = option(
        5.0, "Milliseconds between writes of consumer offsets to disk.",
        key="flushConsumerOffsetInterval", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    use_server_side_reset_offset: bool = option(
        True,
        "Reset offsets in the broker; otherwise, through the consumers, which must be online.",
        live=True,
    )

    # Files and operation
    rocketmq_home: str | None = option(
        lambda: os.environ.get("ROCKETMQ_HOME"),
        "RocketMQ installation directory; its conf/ is searched for configuration files.",
        fixed=True,
    )
    broker_config_path: Path | None = option(
        None,
        "File that receives changes made at run time; defaults to the file given at start, or"
        " else to config/broker.properties in storePathRootDir.",
    )
    config_black_list: tuple[str, ...] = option(
        ("configBlackList", "brokerConfigPath"),
        "Keys that cannot be changed at run time, separated by semicolons, besides the fixed ones.",
        fixed=True,
    )
    max_stats_idle_time: int = option(
        -1,
        "Minutes of inactivity after which a statistic is dropped; -1 keeps all, and up to 10 means"
        " 30.",
        key="maxStatsIdleTimeInMinutes", bounds=(-1, _INT_MAX),
    )  # fmt: skip
    log_level: LogLevel = option(
        LogLevel.INFO, "Minimum level of log messages.", ours=True, live=True
    )

    def __post_init__(self) -> None:
        address = self.bind_address or self._default_bind_address()
        announced = self.broker_ip1 or (_host_address() if address in _ANY_ADDRESS else address)
        defaults = {
            "bind_address": address,
            "broker_name": self.broker_name or socket.gethostname(),
            "broker_ip1": announced,
            "broker_ip2": self.broker_ip2 or announced,
            "ha_listen_port": self.ha_listen_port
            or (self.listen_port and self.listen_port + HA_PORT_DELTA),
        }
        for field, value in defaults.items():
            object.__setattr__(self, field, value)

    @property
    def acl_home(self) -> str | None:
        return self.rocketmq_home

    @property
    def acl_config_path(self) -> Path | None:
        return self.broker_config_path

    def _default_bind_address(self) -> str:
        """Loopback, unless requests are checked or an address for others is announced."""
        is_announced = self.broker_ip1 and not is_loopback_host(self.broker_ip1)
        return EVERY_INTERFACE if self.has_access_control or is_announced else LOOPBACK

    def client_config(self) -> ClientConfig:
        """Settings of the connections to NameServers and other brokers.

        Raises:
            ConfigError: the TLS settings contradict each other.
        """
        return ClientConfig(
            connect_timeout=self.connect_timeout,
            call_timeout=self.register_broker_timeout,
            tls=self.client_tls(),
        )


def load_settings(
    texts: Mapping[str, str],
    *,
    strict: bool = False,
    environment: Mapping[str, str] | None = None,
) -> tuple[BrokerConfig, StoreConfig]:
    """Build the broker's and the store's settings from the texts of a broker.conf.

    Logs a warning for each key that has no effect or is unknown.

    Raises:
        ConfigError: a value is invalid or unsupported, or, with `strict`, a key is unknown.
    """
    environment = os.environ if environment is None else environment
    addresses = environment.get("NAMESRV_ADDR", "")
    given = ({"namesrvAddr": addresses} if addresses else {}) | with_port_given(dict(texts))
    if limits_are_given(given):
        given.setdefault("transferLimitsGiven", "true")
    refuse_other_classes(given)
    given = understand_dledger(given)
    broker = load(
        BrokerConfig,
        given,
        ignored=ALL_IGNORED | IGNORED_IN_FILES,
        others=keys_of(StoreConfig),
        strict=strict,
    )
    others = keys_of(BrokerConfig) | given.keys() - keys_of(StoreConfig)
    store = load(StoreConfig, given, others=others)
    check(broker)
    store_settings.check(store)
    if broker.enable_controller_mode and (idle := given.keys() & {"brokerRole", "brokerId"}):
        log.warning(
            "%s: without effect, because enableControllerMode=true; the controllers give the id and"
            " elect the master", ", ".join(sorted(idle)),
        )  # fmt: skip
    return broker, store


def check(config: BrokerConfig) -> None:
    """Check settings that depend on each other.

    Raises:
        ConfigError: settings contradict each other; the message names their keys.
    """
    _check_role(config)
    names = {
        "brokerName": config.broker_name,
        "brokerClusterName": config.broker_cluster_name,
        "msgTraceTopicName": config.msg_trace_topic_name,
    }
    for key, name in names.items():
        if not _TOPIC_OF_SETTING.fullmatch(name) or name.startswith("."):
            raise ConfigError(
                f"{key}={name!r}: it is a topic too, with a directory of that name; use letters,"
                " digits and % | _ - . :"
            )
    if 0 < config.listen_port <= -VIP_PORT_DELTA:
        raise ConfigError(f"listenPort={config.listen_port}: listenPort - 2 is needed too")
    check_metrics(config)
    config.server_config()
    config.client_tls()


def _check_role(config: BrokerConfig) -> None:
    if config.enable_controller_mode:
        if not config.controller_addr:
            raise ConfigError(
                "enableControllerMode=true: set controllerAddr to the addresses of the controllers"
            )
        _check_addresses("controllerAddr", config.controller_addr)
    elif (config.broker_role is BrokerRole.SLAVE) is not (config.broker_id > 0):
        raise ConfigError(
            f"brokerRole={config.broker_role}, brokerId={config.broker_id}: a master has"
            " brokerId=0, a slave brokerRole=SLAVE and a brokerId above 0"
        )
    _check_addresses("haMasterAddress", filter(None, [config.ha_master_address]))
    PeerPolicy.of(config.ha_allowed_replicas)
    if config.ha_tls_enable and not _has_mutual_tls(config):
        raise ConfigError(
            "haTlsEnable=true: replicas verify each other, so set tls.server.certPath,"
            " tls.server.keyPath and tls.server.trustCertPath, and the same of tls.client with"
            " useTLS=true"
        )


def _check_addresses(key: str, addresses: Iterable[str]) -> None:
    for address in addresses:
        try:
            split_address(address)
        except ValueError as exc:
            raise ConfigError(f"{key}: {exc}") from exc


def _has_mutual_tls(config: BrokerConfig) -> bool:
    server, client = config.server_config().tls, config.client_tls()
    return bool(
        server.is_active and server.trust and client and client.trust and client.certificate
    )


def limits_are_given(texts: Mapping[str, str]) -> bool:
    """Whether one of RocketMQ's limits of a pull is set."""
    return any(key.startswith(_TRANSFER_LIMIT_PREFIX) for key in texts)


def keys_of(kind: type) -> set[str]:
    """Keys of a settings class, including old spellings."""
    options = options_of(kind)
    return options.keys() | {alias for found in options.values() for alias in found.aliases}


def _host_address() -> str:
    """The address of the default route; connecting a UDP socket sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
