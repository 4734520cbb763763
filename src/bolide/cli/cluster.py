"""All that `bolide standalone` runs in one process: its settings, its start and its end."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from bolide import logs
from bolide.broker.app import Broker
from bolide.broker.config import BrokerConfig, keys_of, load_settings
from bolide.cli import broker_server, name_server
from bolide.cli.log_setup import reload_logs
from bolide.config import load, read_file
from bolide.errors import ConfigError
from bolide.logs import LogLevel
from bolide.namesrv.app import NameServer
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

_ANY_ADDRESS = {"0.0.0.0", "::", ""}  # noqa: S104  to be recognised, not to be bound


@dataclass(frozen=True, slots=True)
class Cluster:
    """A NameServer and a broker that knows it."""

    name_server: NameServerConfig
    broker: BrokerConfig
    store: StoreConfig
    texts: Mapping[str, str]

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
        names = _name_server_texts(for_names, data, host, ports["namesrv"], level)
        texts = _broker_texts(for_broker, data, host, ports["broker"], level)
        broker, store = load_settings(texts)
        loaded = load(NameServerConfig, names, ignored=name_server.WITHOUT_EFFECT)
        return cls(loaded, broker, store, texts)


def serve(cluster: Cluster, log_file: Path | None) -> None:
    """Run it until it is told to stop."""
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
    async with NameServer(cluster.name_server) as server:
        name_server.announce(server)
        async with _broker(cluster, server.port) as broker:
            spare_collections()
            keep_freed_memory()
            broker_server.announce(broker)
            await asyncio.Event().wait()


def _broker(cluster: Cluster, name_server_port: int) -> Broker:
    """The broker that registers with the NameServer beside it."""
    host = cluster.broker.bind_address
    near = "127.0.0.1" if host in _ANY_ADDRESS else host
    config = replace(cluster.broker, name_servers=(format_address((near, name_server_port)),))
    return broker_server.make_broker((config, cluster.store), cluster.texts)


def _refuse_ports(given: Mapping[str, str]) -> None:
    for key in ("listenPort", "bindAddress", "namesrvAddr", "storePathRootDir"):
        if key in given:
            raise ConfigError(
                f"{key} is set by the options --namesrv-port, --broker-port, --host and --data"
            )


def _name_server_texts(
    given: dict[str, str], data: Path, host: str, port: int, level: LogLevel
) -> dict[str, str]:
    chosen = {
        "bindAddress": host,
        "listenPort": str(port),
        "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
        "configStorePath": str(data / "namesrv" / "namesrv.properties"),
    } | given
    store = Path(chosen["configStorePath"])
    return name_server.all_texts(read_file(store) if store.exists() else {}, level, chosen)


def _broker_texts(
    given: dict[str, str], data: Path, host: str, port: int, level: LogLevel
) -> dict[str, str]:
    chosen = {
        "brokerName": "broker-a",
        "bindAddress": host,
        "listenPort": str(port),
        "storePathRootDir": str(data / "store"),
    } | given
    file = broker_server.file_texts(None, chosen, quiet=True)
    return broker_server.all_texts(file, level, chosen)
