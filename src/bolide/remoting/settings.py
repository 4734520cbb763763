"""Settings of every server, under RocketMQ's keys (`NettyServerConfig`)."""

from dataclasses import dataclass
from pathlib import Path

from bolide.config import Ignored, Unit, option
from bolide.protocol.framing import MAX_FRAME_SIZE
from bolide.remoting.server import ServerConfig
from bolide.remoting.tls_settings import TlsSettings

_DEFAULT_HIGH_WATER = 1024 * 1024
LOOPBACK = "127.0.0.1"
EVERY_INTERFACE = "0.0.0.0"  # noqa: S104  bound only if it is asked for or protected


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(TlsSettings):
    """Address, limits and TLS of a server."""

    bind_address: str = option(
        "",
        "Address to listen on: a host name, IPv4 or IPv6; 0.0.0.0 is every interface. The default"
        " is 127.0.0.1, this machine only, unless access control is on.",
        fixed=True,
    )
    listen_port: int = option(
        0, "Port to listen on; 0 lets the system choose.", bounds=(0, 65535), fixed=True
    )
    server_socket_backlog: int = option(
        1024, "Most connections waiting to be accepted.", bounds=(1, 65535)
    )
    server_socket_snd_buf_size: int = option(
        0,
        "Send buffer of a socket in bytes; 0 is the system's choice.",
        bounds=(0, 2**30),
        unit=Unit.BYTES,
    )
    server_socket_rcv_buf_size: int = option(
        0,
        "Receive buffer of a socket in bytes; 0 is the system's choice.",
        bounds=(0, 2**30),
        unit=Unit.BYTES,
    )
    write_buffer_high_water_mark: int = option(
        0,
        "Unsent bytes of a connection above which its requests are not read; 0 means 1 MiB.",
        bounds=(0, 2**30),
        unit=Unit.BYTES,
    )
    server_channel_max_idle_time_seconds: int = option(
        120,
        "Seconds without a whole frame after which a connection is closed.",
        bounds=(1, 86400),
        unit=Unit.SECONDS,
    )
    server_oneway_semaphore_value: int = option(
        256, "Most one-way requests to clients in flight.", bounds=(1, 2**20)
    )
    server_async_semaphore_value: int = option(
        64, "Most requests to clients in flight.", bounds=(1, 2**20)
    )
    shutdown_wait_time_seconds: int = option(
        30,
        "Seconds for requests in flight to finish at shutdown.",
        bounds=(0, 3600),
        unit=Unit.SECONDS,
    )
    max_connections: int = option(
        10_000,
        "Most open connections; further ones are closed at once.",
        bounds=(1, 2**20),
        ours=True,
    )
    max_held_bytes: int = option(
        512 * 1024 * 1024,
        "Most bytes in frames, requests and unread replies; above it the largest holder is closed.",
        bounds=(1024 * 1024, 2**40),
        ours=True,
        unit=Unit.BYTES,
    )
    max_frame_size: int = option(
        MAX_FRAME_SIZE,
        "Largest frame in bytes; a larger one closes its connection.",
        key="com.rocketmq.remoting.frameMaxLength",
        bounds=(1024, 2**28),
        ours=True,
        unit=Unit.BYTES,
    )

    def server_config(self, port_delta: int = 0) -> ServerConfig:
        """Return the config of a server at `port_delta` from the port; port 0 stays 0.

        Raises:
            ConfigError: the TLS settings contradict each other.
        """
        return ServerConfig(
            host=self.bind_address or LOOPBACK,
            port=self.listen_port and self.listen_port + port_delta,
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
            tls=self.server_tls(),
        )


THREADS = "one event loop does the work of RocketMQ's thread pools"
_MEMORY = "memory is allocated by Python"

IGNORED_SERVER = {
    "serverWorkerThreads": Ignored("8", THREADS),
    "serverCallbackExecutorThreads": Ignored("0", THREADS),
    "serverSelectorThreads": Ignored("3", THREADS),
    "serverNettyWorkerGroupEnable": Ignored("true", THREADS),
    "serverPooledByteBufAllocatorEnable": Ignored("true", _MEMORY),
    "useEpollNativeSelector": Ignored("false", "the event loop chooses the system's best way"),
    "writeBufferLowWaterMark": Ignored("0", "a quarter of the high-water mark is used"),
    "enableShutdownGracefully": Ignored("false", "shutdown is always graceful"),
}
"""Keys of `NettyServerConfig` without effect here."""


def find_file(name: Path, home: str | None) -> Path:
    """Find a configuration file by its path, or else in the conf directory of ROCKETMQ_HOME."""
    if not name.exists() and home and not name.is_absolute():
        in_home = Path(home) / "conf" / name
        return in_home if in_home.exists() else name
    return name
