"""Settings of the NameServer, under RocketMQ's keys (`NamesrvConfig`, `NettyServerConfig`)."""

import os
from dataclasses import dataclass
from pathlib import Path

from bolide.config import Ignored, option, read_file
from bolide.logs import LogLevel
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.remoting.server import ServerConfig
from bolide.remoting.tls import ClientAuth, ServerTls, TlsMode

_DEFAULT_HIGH_WATER = 1024 * 1024
DEFAULT_TLS_FILE = Path("/etc/rocketmq/tls.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """What a NameServer can be told. Durations are seconds here, milliseconds in files."""

    # Where it listens
    bind_address: str = option(
        "0.0.0.0",  # noqa: S104  RocketMQ's default
        "Address to listen on: a host name, IPv4 or IPv6.",
    )
    listen_port: int = option(
        9876, "Port to listen on; 0 lets the system choose.", bounds=(0, 65535)
    )
    server_socket_backlog: int = option(
        1024, "Connections that may wait to be accepted.", bounds=(1, 65535)
    )
    server_socket_snd_buf_size: int = option(
        0, "Send buffer of a socket in bytes; 0 is the system's choice.", bounds=(0, 2**30)
    )
    server_socket_rcv_buf_size: int = option(
        0, "Receive buffer of a socket in bytes; 0 is the system's choice.", bounds=(0, 2**30)
    )
    write_buffer_high_water_mark: int = option(
        0,
        "Unsent bytes of a connection at which its requests are no longer read; 0 is 1 MiB.",
        bounds=(0, 2**30),
    )
    server_channel_max_idle_time_seconds: int = option(
        120, "Seconds without a whole frame after which a connection is closed.", bounds=(1, 86400)
    )
    server_oneway_semaphore_value: int = option(
        256, "One-way requests to clients that may be under way.", bounds=(1, 2**20)
    )
    server_async_semaphore_value: int = option(
        64, "Requests to clients that may wait for their answer.", bounds=(1, 2**20)
    )
    shutdown_wait_time_seconds: int = option(
        30, "Seconds that requests under way get to finish at shutdown.", bounds=(0, 3600)
    )
    max_connections: int = option(
        10_000,
        "Connections that may be open; more are closed at once.",
        bounds=(1, 2**20),
        ours=True,
    )
    max_held_bytes: int = option(
        512 * 1024 * 1024,
        "Bytes of frames and requests that may be held; past it who holds the most is closed.",
        bounds=(1024 * 1024, 2**40),
        ours=True,
    )
    max_frame_size: int = option(
        MAX_FRAME_SIZE,
        "Largest frame in bytes; a longer one closes its connection.",
        key="com.rocketmq.remoting.frameMaxLength",
        bounds=(1024, 2**28),
        ours=True,
    )

    # Brokers and routes
    scan_not_active_broker_interval: float = option(
        10.0, "Milliseconds between two looks for brokers that fell silent.",
        bounds=(10, 86_400_000), scale=1000, live=True,
    )  # fmt: skip
    broker_channel_expired_time: float = option(
        120.0,
        "Milliseconds of silence after which a broker is removed, unless it asks for another time.",
        bounds=(100, 86_400_000),
        scale=1000,
        ours=True,
        live=True,
    )
    order_message_enable: bool = option(
        False, "Tell clients the configured queues of ordered topics.", live=True
    )
    return_order_topic_config_to_broker: bool = option(
        True, "Answer a registration with the configuration of ordered topics.", live=True
    )
    support_acting_master: bool = option(
        False, "Show the lowest slave as master where no master is left.", live=True
    )
    notify_min_broker_id_changed: bool = option(
        False, "Tell the brokers of a group when its lowest id changes.", live=True
    )
    delete_topic_with_broker_registration: bool = option(
        False, "Forget topics that a broker's registration no longer lists.", live=True
    )
    enable_all_topic_list: bool = option(True, "Answer the list of all topics.", live=True)
    enable_topic_list: bool = option(True, "Answer lists of topics by cluster or unit.", live=True)
    need_wait_for_service: bool = option(
        False, "Refuse route look-ups for a while after the start.", live=True
    )
    wait_seconds_for_service: int = option(
        45, "Seconds of that while.", bounds=(0, 86400), live=True
    )

    # Files and operation
    rocketmq_home: str | None = option(
        lambda: os.environ.get("ROCKETMQ_HOME"),
        "Directory of an installation; conf/ in it is searched for configuration files.",
    )
    kv_config_path: Path = option(
        lambda: Path.home() / "namesrv" / "kvConfig.json", "File of the KV configuration."
    )
    config_store_path: Path = option(
        lambda: Path.home() / "namesrv" / "namesrv.properties",
        "File that changes of settings at run time are written to.",
    )
    config_black_list: tuple[str, ...] = option(
        ("configBlackList", "configStorePath", "kvConfigPath"),
        "Keys that cannot be changed at run time, separated by semicolons.",
    )
    log_level: LogLevel = option(LogLevel.INFO, "Least level that is logged.", ours=True, live=True)

    # TLS
    tls_mode: TlsMode = option(
        TlsMode.PERMISSIVE,
        "disabled: plain text only; permissive: TLS and plain text on one port; enforcing: TLS.",
        key="tls.server.mode",
        ours=True,
    )
    tls_certificate: Path | None = option(
        None, "Certificate chain, PEM; without it only plain text is served.",
        key="tls.server.certPath", ours=True,
    )  # fmt: skip
    tls_key: Path | None = option(
        None, "Private key, PEM; default is the certificate's file.",
        key="tls.server.keyPath", ours=True,
    )  # fmt: skip
    tls_key_password: str | None = option(
        None, "Password of the private key.", key="tls.server.keyPassword", ours=True, secret=True
    )
    tls_trust: Path | None = option(
        None, "Certificates that sign those of clients, PEM.",
        key="tls.server.trustCertPath", ours=True,
    )  # fmt: skip
    tls_client_auth: ClientAuth = option(
        ClientAuth.NONE, "Whether clients must show a certificate: none, optional or require.",
        key="tls.server.need.client.auth", ours=True,
    )  # fmt: skip

    def server_config(self) -> ServerConfig:
        """The part of it that the remoting server wants."""
        return ServerConfig(
            host=self.bind_address,
            port=self.listen_port,
            backlog=self.server_socket_backlog,
            send_buffer=self.server_socket_snd_buf_size,
            receive_buffer=self.server_socket_rcv_buf_size,
            write_high_water=self.write_buffer_high_water_mark or _DEFAULT_HIGH_WATER,
            max_frame_size=self.max_frame_size,
            max_connections=self.max_connections,
            max_held=self.max_held_bytes,
            max_one_way_calls=self.server_oneway_semaphore_value,
            max_calls=self.server_async_semaphore_value,
            idle_timeout=self.server_channel_max_idle_time_seconds,
            drain_timeout=self.shutdown_wait_time_seconds,
            tls=self._server_tls(),
        )

    def _server_tls(self) -> ServerTls:
        return ServerTls(
            mode=self.tls_mode,
            certificate=self.tls_certificate,
            key=self.tls_key,
            key_password=self.tls_key_password,
            trust=self.tls_trust,
            client_auth=self.tls_client_auth,
        )


_THREADS = "one event loop does the work of RocketMQ's thread pools"
_MEMORY = "memory is allocated by Python"
_CLIENT = "the NameServer calls brokers only to notify them"

IGNORED = {
    "productEnvName": Ignored("center", "there is no fall-back to a product environment"),
    "clusterTest": Ignored("false", "there is no fall-back to a product environment"),
    "clientRequestThreadPoolNums": Ignored("8", _THREADS),
    "defaultThreadPoolNums": Ignored("16", _THREADS),
    "clientRequestThreadPoolQueueCapacity": Ignored("50000", _THREADS),
    "defaultThreadPoolQueueCapacity": Ignored("10000", _THREADS),
    "unRegisterBrokerQueueCapacity": Ignored("3000", "brokers are unregistered at once"),
    "enableControllerInNamesrv": Ignored("false", "this version has no controller"),
    "serverWorkerThreads": Ignored("8", _THREADS),
    "serverCallbackExecutorThreads": Ignored("0", _THREADS),
    "serverSelectorThreads": Ignored("3", _THREADS),
    "serverNettyWorkerGroupEnable": Ignored("true", _THREADS),
    "serverPooledByteBufAllocatorEnable": Ignored("true", _MEMORY),
    "useEpollNativeSelector": Ignored("false", "the event loop chooses the system's best way"),
    "writeBufferLowWaterMark": Ignored("0", "a quarter of the high-water mark is used"),
    "enableShutdownGracefully": Ignored("false", "shutdown is always graceful"),
}
"""Keys of RocketMQ's NameServer without effect here; the console and mqadmin still see them."""

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
        "false", "client certificates are checked whenever tls.server.need.client.auth asks for one"
    ),
    "tls.test.mode.enable": Ignored("true", "there is no self-signed certificate for tests"),
    "tls.enable": Ignored("false", _CLIENT),
}
"""Keys of RocketMQ's tls.properties (`TlsSystemConfig`)."""


def find_file(name: Path, home: str | None) -> Path:
    """A configuration file by its path, else in the conf directory of ROCKETMQ_HOME."""
    if not name.exists() and home and not name.is_absolute():
        in_home = Path(home) / "conf" / name
        return in_home if in_home.exists() else name
    return name


def tls_texts(path: Path) -> dict[str, str]:
    """The server's keys of a tls.properties file (`tls.config.file`)."""
    return {key: text for key, text in read_file(path).items() if key.startswith("tls.server.")}
