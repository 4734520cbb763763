"""NameServer settings under RocketMQ's keys (`NamesrvConfig`)."""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from bolide.auth.settings import IGNORED_ACCESS, AccessSettings
from bolide.config import Ignored, Unit, option, options_of
from bolide.controller.config import IGNORED_CONTROLLER, ControllerConfig
from bolide.logs import LogLevel
from bolide.metrics.settings import NAME_SERVER_PORT, MetricsSettings
from bolide.remoting.settings import (
    EVERY_INTERFACE,
    IGNORED_SERVER,
    LOOPBACK,
    THREADS,
    ServerSettings,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig(MetricsSettings, AccessSettings, ServerSettings):
    """All settings of a NameServer. Durations are seconds here, milliseconds in files."""

    __ours__: ClassVar = frozenset(field.name for field in fields(MetricsSettings))

    listen_port: int = option(
        9876, "Port to listen on; 0 selects a free port.", bounds=(0, 65535), fixed=True
    )
    use_tls: bool = option(
        False,
        "Call brokers over TLS.",
        key="useTLS",
        aliases=("tls.enable",),
        ours=True,
        fixed=True,
    )

    metrics_prom_exporter_port: int = option(
        NAME_SERVER_PORT,
        "Port of /metrics, also for a controller in this process. If it is not set and the default"
        " is taken, the next free one is used; 0 lets the system choose.",
        bounds=(0, 65535),
        fixed=True,
    )

    # Brokers and routes
    scan_not_active_broker_interval: float = option(
        10.0, "Milliseconds between scans for brokers whose heartbeats have stopped.",
        bounds=(10, 86_400_000), scale=1000, live=True,
    )  # fmt: skip
    broker_channel_expired_time: float = option(
        120.0,
        "Milliseconds without a heartbeat after which a broker is removed, unless it requests"
        " another timeout.",
        bounds=(100, 86_400_000),
        scale=1000,
        ours=True,
        live=True,
    )
    order_message_enable: bool = option(
        False, "Include the configured queues of ordered topics in routes.", live=True
    )
    return_order_topic_config_to_broker: bool = option(
        True, "Send brokers the configuration of ordered topics when they register.", live=True
    )
    support_acting_master: bool = option(
        False,
        "Present the slave with the lowest id as master of a group without a master.",
        live=True,
    )
    notify_min_broker_id_changed: bool = option(
        False, "Notify the brokers of a group when its lowest broker id changes.", live=True
    )
    delete_topic_with_broker_registration: bool = option(
        False, "Remove topics that a broker's registration no longer lists.", live=True
    )
    enable_all_topic_list: bool = option(True, "Serve the list of all topics.", live=True)
    enable_topic_list: bool = option(True, "Serve lists of topics by cluster or unit.", live=True)
    need_wait_for_service: bool = option(
        False, "Refuse route look-ups for waitSecondsForService after the start.", live=True
    )
    wait_seconds_for_service: int = option(
        45,
        "Seconds after the start in which needWaitForService refuses route look-ups.",
        bounds=(0, 86400),
        live=True,
        unit=Unit.SECONDS,
    )

    # Files and operation
    enable_controller_in_namesrv: bool = option(
        False,
        "Run a controller in this process; its settings are in the same file.",
        fixed=True,
    )
    rocketmq_home: str | None = option(
        lambda: os.environ.get("ROCKETMQ_HOME"),
        "RocketMQ installation directory; its conf/ is searched for configuration files.",
        fixed=True,
    )
    kv_config_path: Path = option(
        lambda: Path.home() / "namesrv" / "kvConfig.json", "File of the KV configuration."
    )
    config_store_path: Path = option(
        lambda: Path.home() / "namesrv" / "namesrv.properties",
        "File that receives changes made at run time.",
    )
    config_black_list: tuple[str, ...] = option(
        ("configBlackList", "configStorePath", "kvConfigPath"),
        "Keys that cannot be changed at run time, separated by semicolons, besides the fixed ones.",
        fixed=True,
    )
    log_level: LogLevel = option(
        LogLevel.INFO, "Minimum level of log messages.", ours=True, live=True
    )

    def __post_init__(self) -> None:
        if not self.bind_address:
            address = EVERY_INTERFACE if self.authentication_enabled else LOOPBACK
            object.__setattr__(self, "bind_address", address)

    @property
    def acl_home(self) -> str | None:
        return self.rocketmq_home


_CLIENT = "the NameServer calls brokers only to notify them"

IGNORED = {
    "productEnvName": Ignored("center", "there is no fall-back to a product environment"),
    "clusterTest": Ignored("false", "there is no fall-back to a product environment"),
    "clientRequestThreadPoolNums": Ignored("8", THREADS),
    "defaultThreadPoolNums": Ignored("16", THREADS),
    "clientRequestThreadPoolQueueCapacity": Ignored("50000", THREADS),
    "defaultThreadPoolQueueCapacity": Ignored("10000", THREADS),
    "unRegisterBrokerQueueCapacity": Ignored("3000", "brokers are unregistered at once"),
} | IGNORED_SERVER
"""Keys of RocketMQ's NameServer without effect here; the console and mqadmin still show them."""

IGNORED_CLIENT = dict.fromkeys(
    (
        "clientWorkerThreads",
        "clientCallbackExecutorThreads",
        "clientOnewaySemaphoreValue",
        "clientAsyncSemaphoreValue",
        "connectTimeoutMillis",
        "channelNotActiveInterval",
        "clientChannelMaxIdleTimeSeconds",
        "clientSocketSndBufSize",
        "clientSocketRcvBufSize",
        "clientPooledByteBufAllocatorEnable",
        "clientCloseSocketIfTimeout",
        "disableCallbackExecutor",
        "disableNettyWorkerGroup",
        "maxReconnectIntervalTimeSeconds",
        "enableReconnectForGoAway",
        "scanAvailableNameSrv",
    ),
    Ignored("", _CLIENT),
) | {"socksProxyConfig": Ignored("", _CLIENT, secret=True)}
"""Keys of RocketMQ's own client (`NettyClientConfig`), which namesrv.conf may also hold."""


IGNORED_TLS = {
    "tls.test.mode.enable": Ignored("true", "there is no self-signed test certificate", fixed=True),
}
"""Keys of RocketMQ's tls.properties (`TlsSystemConfig`) without effect here."""

ALL_IGNORED = IGNORED | IGNORED_CLIENT | IGNORED_TLS | IGNORED_CONTROLLER | IGNORED_ACCESS
"""All keys of a namesrv.conf that have no effect."""

CONTROLLER_KEYS = frozenset(options_of(ControllerConfig)) - options_of(NameServerConfig).keys()
"""Keys of a namesrv.conf that belong to the controller in the same process."""
