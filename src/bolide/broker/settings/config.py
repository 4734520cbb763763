"""Settings of a broker, under RocketMQ's keys (`BrokerConfig`), and the reading of a broker.conf.

One file holds the settings of the broker and of its store; `load_settings` gives each its own.
"""

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from bolide.broker.settings.sections import (
    AssignmentSettings,
    FilterSettings,
    PopSettings,
    ReplySettings,
    TimerSettings,
    TransactionSettings,
)
from bolide.broker.settings.without_effect import IGNORED, REFUSED_WHEN_TRUE
from bolide.config import load, option, options_of
from bolide.errors import ConfigError
from bolide.logs import LogLevel
from bolide.remoting.client import ClientConfig
from bolide.remoting.settings import ServerSettings
from bolide.remoting.tls import ClientTls
from bolide.store import config as store_settings
from bolide.store.config import StoreConfig

log = logging.getLogger(__name__)

_INT_MAX = 2**31 - 1
_DAY_MS = 86_400_000
_ANY_ADDRESS = {"", "0.0.0.0", "::"}  # noqa: S104  to be recognised, not to be bound
_TRANSFER_LIMITS = "maxTransfer"

VIP_PORT_DELTA: Final = -2
"""Where RocketMQ's clients look for a second port for sends, seen from the first."""


class BrokerRole(StrEnum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(
    ReplySettings,
    FilterSettings,
    AssignmentSettings,
    PopSettings,
    TimerSettings,
    TransactionSettings,
    ServerSettings,
):
    """What a broker can be told. Durations are seconds here, milliseconds in files.

    What is empty and depends on the machine is filled in: names, addresses, the port for replicas.
    """

    # Who it is
    broker_cluster_name: str = option("DefaultCluster", "Name of the cluster.")
    broker_name: str = option(
        "", "Name of the broker group, the same for a master and its slaves; default is the host's."
    )
    broker_id: int = option(0, "0 is a master, more a slave.", bounds=(0, _INT_MAX))
    broker_role: BrokerRole = option(BrokerRole.ASYNC_MASTER, "ASYNC_MASTER, SYNC_MASTER or SLAVE.")
    listen_port: int = option(
        10911,
        "Port to listen on; the one two below is served too. 0 lets the system choose one.",
        bounds=(0, 65535),
    )
    ha_listen_port: int = option(
        0, "Port for replicas; 0 is the one after listenPort.", bounds=(0, 65535)
    )
    broker_ip1: str = option(
        "", "Address that clients are told; default is bindAddress or the host's.", key="brokerIP1"
    )
    broker_ip2: str = option(
        "", "Address that replicas are told; default is that of clients.", key="brokerIP2"
    )

    workers: int = option(
        1,
        "Processes that share the work, each a broker group of its own; see --workers.",
        bounds=(1, 256), ours=True,
    )  # fmt: skip

    # NameServers
    name_servers: tuple[str, ...] = option(
        (),
        "Addresses of NameServers, separated by semicolons; default is $NAMESRV_ADDR.",
        key="namesrvAddr",
        live=True,
    )
    register_name_server_period: float = option(
        30.0, "Milliseconds between two registrations, at least 10000 and at most 60000.",
        bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    register_broker_timeout: float = option(
        24.0, "Milliseconds that a NameServer gets to answer a registration.",
        key="registerBrokerTimeoutMills", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    force_register: bool = option(
        True, "Register even if the NameServer has seen this version of the topics.", live=True
    )
    compressed_register: bool = option(False, "Compress registrations.", live=True)
    connect_timeout: float = option(
        3.0, "Milliseconds that a connection to a NameServer may take.",
        key="connectTimeoutMillis", bounds=(1, _DAY_MS), scale=1000,
    )  # fmt: skip
    use_tls: bool = option(
        False, "Call NameServers over TLS.", key="useTLS", aliases=("tls.enable",)
    )
    tls_client_certificate: Path | None = option(
        None, "Certificate chain shown to NameServers, PEM.", key="tls.client.certPath", ours=True
    )
    tls_client_key: Path | None = option(
        None, "Private key of that certificate, PEM.", key="tls.client.keyPath", ours=True
    )
    tls_client_key_password: str | None = option(
        None, "Password of that key.", key="tls.client.keyPassword", ours=True, secret=True
    )
    tls_client_trust: Path | None = option(
        None, "Certificates that sign those of NameServers, PEM; without it all are trusted.",
        key="tls.client.trustCertPath", ours=True,
    )  # fmt: skip

    # Topics
    broker_permission: int = option(
        6, "What the broker allows: 4 reading, 2 writing, 6 both.", bounds=(0, 7), live=True
    )
    auto_create_topic_enable: bool = option(
        True, "Create a topic when a message is sent to it.", live=True
    )
    default_topic_queue_nums: int = option(
        8, "Queues that a topic so created has at most.", bounds=(1, 65535), live=True
    )
    cluster_topic_enable: bool = option(
        True, "Let clients send to the topic named like the cluster."
    )
    broker_topic_enable: bool = option(True, "Let clients send to the topic named like the broker.")
    trace_topic_enable: bool = option(False, "Create the topic of message traces.")
    msg_trace_topic_name: str = option("RMQ_SYS_TRACE_TOPIC", "Name of that topic.")

    # Sending
    trace_on: bool = option(True, "Tell producers that they may trace their messages.", live=True)
    region_id: str = option("DefaultRegion", "Region that producers are told.", live=True)
    max_batch_count: int = option(
        30_000, "Most messages of a batch: while it is taken, others wait.",
        bounds=(1, _INT_MAX), ours=True, live=True,
    )  # fmt: skip
    dedup_max_keys: int = option(
        1_000_000,
        "Most keys kept for topics with a dedup.window, at about 200 bytes of memory each; beyond"
        " that the oldest are forgotten.",
        bounds=(1, 100_000_000), ours=True, live=True,
    )  # fmt: skip
    start_accept_send_request_time_stamp: float = option(
        0.0, "Milliseconds since 1970 before which no messages are taken.",
        bounds=(0, 2**53), scale=1000, live=True,
    )  # fmt: skip

    # Pulling
    long_polling_enable: bool = option(
        True, "Keep a pull without messages waiting as long as the consumer says.", live=True
    )
    short_polling_time: float = option(
        1.0, "Milliseconds that it waits otherwise.",
        key="shortPollingTimeMills", bounds=(0, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    max_pull_count: int = option(
        1024, "Most messages of a pull, unless a maxTransfer… setting is given.",
        bounds=(1, _INT_MAX), ours=True, live=True,
    )  # fmt: skip
    max_pull_bytes: int = option(
        1024 * 1024, "Most bytes of a pull, unless a maxTransfer… setting is given.",
        bounds=(1, _INT_MAX), ours=True, live=True,
    )  # fmt: skip
    transfer_limits_given: bool = option(
        False,
        "Keep pulls to the maxTransfer… settings instead; true as soon as one of them is set.",
        ours=True,
        live=True,
    )
    slave_read_enable: bool = option(
        False, "Send consumers that are far behind to a slave.", live=True
    )
    lite_pull_message_enable: bool = option(True, "Serve lite pull consumers.", live=True)
    reject_pull_consumer_enable: bool = option(False, "Refuse pull consumers.", live=True)

    # Groups, clients and offsets
    auto_create_subscription_group: bool = option(
        True, "Create a consumer group when a consumer first names it.", live=True
    )
    notify_consumer_ids_changed_enable: bool = option(
        True, "Tell consumers at once when one joins or leaves their group.", live=True
    )
    channel_expired_timeout: float = option(
        120.0, "Milliseconds without a heartbeat after which a client is forgotten.",
        bounds=(100, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    consumer_offsets_interval: float = option(
        5.0, "Milliseconds between two savings of what groups have consumed.",
        key="flushConsumerOffsetInterval", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    use_server_side_reset_offset: bool = option(
        True, "Reset offsets in the broker; otherwise every consumer must be online.", live=True
    )

    # Files and operation
    rocketmq_home: str | None = option(
        lambda: os.environ.get("ROCKETMQ_HOME"),
        "Directory of an installation; conf/ in it is searched for configuration files.",
    )
    broker_config_path: Path | None = option(
        None,
        "File that changes at run time are written to; default is the one given at the start,"
        " else config/broker.properties in storePathRootDir.",
    )
    config_black_list: tuple[str, ...] = option(
        ("configBlackList", "brokerConfigPath"),
        "Keys that cannot be changed at run time, separated by semicolons.",
    )
    max_stats_idle_time: int = option(
        -1, "Minutes without a count after which a statistic is dropped; -1 is never.",
        key="maxStatsIdleTimeInMinutes", bounds=(-1, _INT_MAX),
    )  # fmt: skip
    log_level: LogLevel = option(LogLevel.INFO, "Least level that is logged.", ours=True, live=True)

    def __post_init__(self) -> None:
        address = self.bind_address
        announced = self.broker_ip1 or (_host_address() if address in _ANY_ADDRESS else address)
        filled = {
            "broker_name": self.broker_name or socket.gethostname(),
            "broker_ip1": announced,
            "broker_ip2": self.broker_ip2 or announced,
            "ha_listen_port": self.ha_listen_port or (self.listen_port and self.listen_port + 1),
        }
        for field, value in filled.items():
            object.__setattr__(self, field, value)

    def client_config(self) -> ClientConfig:
        """How the broker calls NameServers."""
        return ClientConfig(
            connect_timeout=self.connect_timeout,
            call_timeout=self.register_broker_timeout,
            tls=self._client_tls() if self.use_tls else None,
        )

    def _client_tls(self) -> ClientTls:
        return ClientTls(
            certificate=self.tls_client_certificate,
            key=self.tls_client_key,
            key_password=self.tls_client_key_password,
            trust=self.tls_client_trust,
        )


def load_settings(
    texts: Mapping[str, str],
    *,
    strict: bool = False,
    environment: Mapping[str, str] | None = None,
) -> tuple[BrokerConfig, StoreConfig]:
    """Both halves of a broker.conf, warned of what has no effect or is unknown.

    Raises:
        ConfigError: a value is wrong, asks for what is not there, or strict and a key is unknown.
    """
    environment = os.environ if environment is None else environment
    addresses = environment.get("NAMESRV_ADDR", "")
    given = ({"namesrvAddr": addresses} if addresses else {}) | dict(texts)
    if limits_are_given(given):
        given.setdefault("transferLimitsGiven", "true")
    refuse_missing(given)
    broker = load(
        BrokerConfig, given, ignored=ALL_IGNORED, others=keys_of(StoreConfig), strict=strict
    )
    others = keys_of(BrokerConfig) | given.keys() - keys_of(StoreConfig)
    store = load(StoreConfig, given, others=others)
    check(broker)
    store_settings.check(store)
    if broker.broker_role is BrokerRole.SYNC_MASTER:
        log.warning(
            "brokerRole=SYNC_MASTER: replication is yet to come, so an acknowledgement means"
            " this machine alone"
        )
    return broker, store


ALL_IGNORED = IGNORED | store_settings.IGNORED
"""Keys that a broker.conf may hold and that have no effect; the console and mqadmin see them."""


def check(config: BrokerConfig) -> None:
    """Look for values that do not go together.

    Raises:
        ConfigError: names the keys.
    """
    if config.broker_role is BrokerRole.SLAVE or config.broker_id:
        raise ConfigError(
            f"brokerRole={config.broker_role}, brokerId={config.broker_id}: slaves come with"
            " replication; start a master with brokerId=0, or RocketMQ's broker"
        )
    if 0 < config.listen_port <= -VIP_PORT_DELTA:
        raise ConfigError(f"listenPort={config.listen_port}: the port two below it is needed too")
    config.server_config()


def refuse_missing(texts: Mapping[str, str]) -> None:
    """Look for switches that a broker must not pass over because its data would be in danger.

    Raises:
        ConfigError: names the key and says what to do.
    """
    for key, reason in REFUSED_WHEN_TRUE.items():
        if texts.get(key, "").strip().lower() == "true":
            raise ConfigError(f"{key}=true: {reason}")


def limits_are_given(texts: Mapping[str, str]) -> bool:
    """Whether somebody set one of RocketMQ's limits of a pull."""
    return any(key.startswith(_TRANSFER_LIMITS) for key in texts)


def keys_of(kind: type) -> set[str]:
    """The keys that a config takes, old spellings included."""
    options = options_of(kind)
    return options.keys() | {alias for found in options.values() for alias in found.aliases}


def _host_address() -> str:
    """The address that others most likely reach this machine by; no packet is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
