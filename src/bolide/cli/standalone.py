"""`bolide standalone`: the settings of its NameServer and broker, and how they are run.

The broker is imported only if it runs in this process: with --workers it runs in other processes.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bolide import logs
from bolide.broker.multi_process import refuse_unserved_stores
from bolide.broker.settings.config import BrokerConfig, keys_of, load_settings
from bolide.cli import broker_settings, name_server
from bolide.cli.broker_workers import prepare, server, servers_of, shared_file, supervise
from bolide.cli.server_process import reload_logs
from bolide.config import load, read_file
from bolide.errors import ConfigError
from bolide.logs import LogLevel
from bolide.namesrv.server import NameServer
from bolide.namesrv.config import NameServerConfig
from bolide.remoting.address import format_address
from bolide.remoting.event_loop import (
    keep_freed_memory,
    on_hangup,
    run,
    spare_collections,
    until_stopped,
)
from bolide.store.config import StoreConfig

if TYPE_CHECKING:
    from bolide.broker.server import Broker


_ANY_ADDRESS = {"0.0.0.0", "::", ""}  # noqa: S104  to be recognised, not to be bound


@dataclass(frozen=True, slots=True)
class Cluster:
    """A NameServer and a broker that knows it."""

    name_server: NameServerConfig
    broker: BrokerConfig
    store: StoreConfig
    texts: Mapping[str, str]
    chosen: Mapping[str, dict[str, str]]
    """What the command line says, for the NameServer and for the broker."""

    @classmethod
    def of(
        cls,
        given: dict[str, str],
        *,
        data: Path,
        host: str,
        ports: Mapping[str, int],
        level: LogLevel,
    ) -> Self:
        """Share the settings given out between the two; those that both know go to both.

        Raises:
            ConfigError: a value is wrong, or a key is one that has an option of its own.
        """
        _refuse_ports(given)
        of_broker = keys_of(BrokerConfig) | keys_of(StoreConfig)
        for_names = {k: v for k, v in given.items() if k in keys_of(NameServerConfig)}
        for_broker = {k: v for k, v in given.items() if k in of_broker or k not in for_names}
        chosen = {
            "namesrv": _for_name_server(data, host, ports["namesrv"]) | for_names,
            "broker": _for_broker(data, host, ports["broker"]) | for_broker,
        }
        texts = _broker_texts(chosen["broker"], level)
        broker, store = load_settings(texts)
        names = _name_server_texts(chosen["namesrv"], level)
        loaded = load(NameServerConfig, names, ignored=name_server.WITHOUT_EFFECT)
        return cls(loaded, broker, store, texts, chosen)


def serve(cluster: Cluster, log_file: Path | None, log_config: Path | None) -> None:
    """Run it until it is told to stop."""
    if cluster.broker.workers > 1:
        _serve_by_workers(cluster, log_file, log_config)
        return
    refuse_unserved_stores(cluster.store.root, workers=1)
    try:
        run(_run(cluster, log_file))
    finally:
        logs.shutdown()


async def _run(cluster: Cluster, log_file: Path | None) -> None:
    logs.set_level(cluster.broker.log_level)
    on_hangup(lambda: reload_logs(log_file))
    await until_stopped(_serve(cluster))
    print("All stopped.", flush=True)


async def _serve(cluster: Cluster) -> None:
    from bolide.cli import broker_server  # noqa: PLC0415

    async with NameServer(cluster.name_server) as server:
        name_server.announce(server)
        async with _broker(cluster, server.port) as broker:
            spare_collections()
            keep_freed_memory()
            broker_server.announce(broker)
            await asyncio.Event().wait()


def _broker(cluster: Cluster, name_server_port: int) -> "Broker":
    """The broker that registers with the NameServer beside it."""
    from bolide.cli import broker_server  # noqa: PLC0415

    config = replace(cluster.broker, name_servers=(_near(cluster, name_server_port),))
    return broker_server.make_broker((config, cluster.store), cluster.texts)


def _near(cluster: Cluster, port: int) -> str:
    """Where the NameServer is, for who is on the same host."""
    host = cluster.broker.bind_address
    return format_address(("127.0.0.1" if host in _ANY_ADDRESS else host, port))


def _serve_by_workers(cluster: Cluster, log_file: Path | None, log_config: Path | None) -> None:
    port = cluster.name_server.listen_port
    if port == 0:
        raise ConfigError("--namesrv-port 0: workers are told its port at their start; name one")
    workers = prepare(cluster.broker, cluster.store)
    flags = {"--log-config": log_config, "--config": shared_file(cluster.broker)}
    for_workers = {**cluster.chosen["broker"], "namesrvAddr": _near(cluster, port)}
    stages = [
        [server("namesrv", "namesrv", {"--log-config": log_config}, cluster.chosen["namesrv"])],
        servers_of(workers, flags, for_workers),
    ]
    supervise(stages, workers, log_file)


def _refuse_ports(given: Mapping[str, str]) -> None:
    for key in ("listenPort", "bindAddress", "namesrvAddr", "storePathRootDir"):
        if key in given:
            raise ConfigError(
                f"{key} is set by the options --namesrv-port, --broker-port, --host and --data"
            )


def _for_name_server(data: Path, host: str, port: int) -> dict[str, str]:
    return {
        "bindAddress": host,
        "listenPort": str(port),
        "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
        "configStorePath": str(data / "namesrv" / "namesrv.properties"),
    }


def _name_server_texts(chosen: dict[str, str], level: LogLevel) -> dict[str, str]:
    store = Path(chosen["configStorePath"])
    return name_server.all_texts(read_file(store) if store.exists() else {}, level, chosen)


def _for_broker(data: Path, host: str, port: int) -> dict[str, str]:
    return {
        "brokerName": "broker-a",
        "bindAddress": host,
        "listenPort": str(port),
        "storePathRootDir": str(data / "store"),
    }


def _broker_texts(chosen: dict[str, str], level: LogLevel) -> dict[str, str]:
    file = broker_settings.file_texts(None, chosen, quiet=True)
    return broker_settings.all_texts(file, level, chosen)
