"""NameServer settings under RocketMQ's keys (`NamesrvConfig`)."""

import os
from dataclasses import dataclass
from pathlib import Path

from bolide.config import Ignored, option
from bolide.logs import LogLevel
from bolide.remoting.settings import IGNORED_SERVER, THREADS, ServerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig(ServerSettings):
    """All settings of a NameServer. Durations are seconds here, milliseconds in files."""

    listen_port: int = option(9876, "Port to listen on; 0 selects a free port.", bounds=(0, 65535))

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
    )

    # Files and operation
    rocketmq_home: str | None = option(
        lambda: os.environ.get("ROCKETMQ_HOME"),
        "RocketMQ installation directory; its conf/ is searched for configuration files.",
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
        "Keys that cannot be changed at run time, separated by semicolons.",
    )
    log_level: LogLevel = option(
        LogLevel.INFO, "Minimum level of log messages.", ours=True, live=True
    )


_TLS = "TLS 1.2 or newer, with the ciphers of the system's OpenSSL"
_CONTROLLER = "the controller is not implemented"
_CLIENT = "the NameServer calls brokers only to notify them"

IGNORED = {
    "productEnvName": Ignored("center", "there is no fall-back to a product environment"),
    "clusterTest": Ignored("false", "there is no fall-back to a product environment"),
    "clientRequestThreadPoolNums": Ignored("8", THREADS),
    "defaultThreadPoolNums": Ignored("16", THREADS),
    "clientRequestThreadPoolQueueCapacity": Ignored("50000", THREADS),
    "defaultThreadPoolQueueCapacity": Ignored("10000", THREADS),
    "unRegisterBrokerQueueCapacity": Ignored("3000", "brokers are unregistered at once"),
    "enableControllerInNamesrv": Ignored("false", _CONTROLLER),
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
        "socksProxyConfig",
        "disableCallbackExecutor",
        "disableNettyWorkerGroup",
        "maxReconnectIntervalTimeSeconds",
        "enableReconnectForGoAway",
        "scanAvailableNameSrv",
        "useTLS",
    ),
    Ignored("", _CLIENT),
)
"""Keys of RocketMQ's own client (`NettyClientConfig`), which namesrv.conf may also hold."""


IGNORED_TLS = {
    "tls.server.authClient": Ignored(
        "false", "tls.server.need.client.auth decides whether client certificates are verified"
    ),
    "tls.test.mode.enable": Ignored("true", "there is no self-signed test certificate"),
    "tls.enable": Ignored("false", _CLIENT),
    "tls.ciphers": Ignored("", _TLS),
    "tls.protocols": Ignored("", _TLS),
    "tls.client.keyPath": Ignored("", _CLIENT),
    "tls.client.keyPassword": Ignored("", _CLIENT),
    "tls.client.certPath": Ignored("", _CLIENT),
    "tls.client.authServer": Ignored("", _CLIENT),
    "tls.client.trustCertPath": Ignored("", _CLIENT),
}
"""Keys of RocketMQ's tls.properties (`TlsSystemConfig`)."""

IGNORED_CONTROLLER = dict.fromkeys(
    (
        "controllerThreadPoolNums",
        "controllerRequestThreadPoolQueueCapacity",
        "controllerDLegerGroup",
        "controllerDLegerPeers",
        "controllerDLegerSelfId",
        "controllerStorePath",
        "controllerType",
        "mappedFileSize",
        "enableElectUncleanMaster",
        "electMasterMaxRetryCount",
        "processReadEvent",
        "notifyBrokerRoleChanged",
        "scanInactiveMasterInterval",
        "jRaftElectionTimeoutMs",
        "jRaftSnapshotIntervalSecs",
        "jRaftGroupId",
        "jRaftServerId",
        "jRaftInitConf",
        "jRaftControllerRPCAddr",
        "jRaftScanWaitTimeoutMs",
        "metricsExporterType",
        "metricsGrpcExporterTarget",
        "metricsGrpcExporterHeader",
        "metricGrpcExporterTimeOutInMills",
        "metricGrpcExporterIntervalInMills",
        "metricLoggingExporterIntervalInMills",
        "metricsPromExporterPort",
        "metricsPromExporterHost",
        "metricsLabel",
        "metricsInDelta",
    ),
    Ignored("", _CONTROLLER),
)
"""Keys of a controller inside the NameServer (`ControllerConfig`, `JraftConfig`)."""
