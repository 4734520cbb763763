"""`bolide standalone`: the settings of its NameServer and broker, and how they are run.

The broker is imported only if it runs in this process: with --workers it runs in other processes.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bolide import logs
from bolide.auth.credentials import inner_credentials, with_inner_credentials
from bolide.auth.settings import AccessSettings, refuse_other_classes
from bolide.broker.multi_process import refuse_unserved_stores
from bolide.broker.settings.config import BrokerConfig, keys_of, load_settings
from bolide.cli import broker_settings, name_server
from bolide.cli.broker_workers import (
    Supervised,
    plan_workers,
    server,
    servers_of,
    shared_file,
    supervise,
)
from bolide.cli.console_child import ConsolePlan, console_beside
from bolide.cli.process_setup import reload_logs
from bolide.cli.server_process import ServerProcess
from bolide.config import load, read_file, secret_keys
from bolide.controller.config import ControllerConfig
from bolide.errors import ConfigError
from bolide.logs import LogLevel
from bolide.namesrv.config import ALL_IGNORED, CONTROLLER_KEYS, NameServerConfig
from bolide.namesrv.server import NameServer
from bolide.remoting.address import format_address
from bolide.remoting.event_loop import (
    freeze_gc,
    on_hangup,
    retain_freed_memory,
    run,
    until_stopped,
)
from bolide.store.config import StoreConfig

if TYPE_CHECKING:
    from bolide.broker.server import Broker


_ANY_ADDRESS = {"0.0.0.0", "::", ""}  # noqa: S104  to be recognised, not to be bound


@dataclass(frozen=True, slots=True)
class StandaloneSettings:
    """Settings of a NameServer and of the broker that registers with it."""

    name_server: NameServerConfig
    broker: BrokerConfig
    store: StoreConfig
    texts: Mapping[str, str]
    chosen: Mapping[str, dict[str, str]]
    """Settings from the command line, under the keys `namesrv` and `broker`."""
    controller: ControllerConfig | None
    """The controller inside the NameServer, if there is one."""
    data: Path
    console: ConsolePlan | None
    """The console beside the servers, unless it is left out."""

    @classmethod
    def of(
        cls,
        given: dict[str, str],
        *,
        data: Path,
        host: str | None,
        ports: Mapping[str, int],
        level: LogLevel,
        console: bool = False,
    ) -> Self:
        """Load the settings of both servers; keys known to both apply to both.

        Args:
            host: address to listen on; None leaves it to each server's settings.

        Raises:
            ConfigError: a value is invalid, or a key has a command line option of its own.
        """
        _refuse_reserved_keys(given)
        of_broker = keys_of(BrokerConfig) | keys_of(StoreConfig)
        of_names = keys_of(NameServerConfig) | CONTROLLER_KEYS
        of_names -= {"metricsPromExporterPort"}  # the broker's; each needs one of its own
        for_names = {k: v for k, v in given.items() if k in of_names}
        for_broker = {k: v for k, v in given.items() if k in of_broker or k not in for_names}
        chosen = {
            "namesrv": _for_name_server(data, host, ports["namesrv"]) | for_names,
            "broker": _for_broker(data, host, ports["broker"]) | for_broker,
        }
        texts = _broker_texts(chosen["broker"], level)
        broker, store = load_settings(texts)
        names = _name_server_texts(chosen["namesrv"], level)
        loaded = load(NameServerConfig, names, ignored=ALL_IGNORED, others=CONTROLLER_KEYS)
        refuse_other_classes(names)
        broker = with_inner_credentials(broker)
        if loaded.init_authentication_user is None:  # both servers have the same users
            loaded = replace(loaded, init_authentication_user=broker.init_authentication_user)
        controller = name_server.load_controller(loaded, names)
        plan = None
        if console:
            plan = ConsolePlan(
                port=ports["console"],
                data=data / "console",
                host=host,
                credentials=_credentials(broker),
                tls_options=_tls_options(broker),
            )
        return cls(loaded, broker, store, texts, chosen, controller, data, plan)


def serve(settings: StandaloneSettings, log_file: Path | None, log_config: Path | None) -> None:
    """Run both servers until a stop signal."""
    if settings.broker.workers > 1:
        _serve_by_workers(settings, log_file, log_config)
        return
    refuse_unserved_stores(settings.store.root, workers=1)
    try:
        run(_run(settings, log_file))
    finally:
        logs.shutdown()


async def _run(settings: StandaloneSettings, log_file: Path | None) -> None:
    logs.set_level(settings.broker.log_level)
    on_hangup(lambda: reload_logs(log_file))
    name = settings.broker.broker_name
    with ServerProcess("standalone", name, data=settings.data) as process:
        await until_stopped(_serve(settings, process), process.report_stopping)
    logs.flush()  # so that this is the last line
    print("All stopped.", flush=True)


async def _serve(settings: StandaloneSettings, process: ServerProcess) -> None:
    from bolide.cli import broker_server  # noqa: PLC0415

    controller = settings.controller
    async with NameServer(settings.name_server, controller=controller) as server:
        name_server.announce(server)
        async with _broker(settings, server.port) as broker:
            freeze_gc()
            retain_freed_memory()
            broker_server.announce(broker)
            addresses = name_server.addresses_of(server) + broker_server.addresses_of(broker)
            process.report_ready(addresses)
            async with console_beside(settings.console, _local_address(settings, server.port)):
                await asyncio.Event().wait()


def _broker(settings: StandaloneSettings, name_server_port: int) -> "Broker":
    """The broker that registers with the NameServer beside it."""
    from bolide.cli import broker_server  # noqa: PLC0415

    config = replace(settings.broker, name_servers=(_local_address(settings, name_server_port),))
    return broker_server.make_broker((config, settings.store), settings.texts)


def _local_address(settings: StandaloneSettings, port: int) -> str:
    """The address of the NameServer for processes on the same host."""
    host = settings.name_server.bind_address
    return format_address(("127.0.0.1" if host in _ANY_ADDRESS else host, port))


def _serve_by_workers(
    settings: StandaloneSettings, log_file: Path | None, log_config: Path | None
) -> None:
    port = settings.name_server.listen_port
    if port == 0:
        raise ConfigError("--namesrv-port 0: with --workers, the port must be given")
    workers = plan_workers(settings.broker, settings.store)
    flags = {"--log-config": log_config, "--config": shared_file(settings.broker)}
    for_names = settings.chosen["namesrv"] | _secrets_of(settings.name_server)
    for_workers = {
        **settings.chosen["broker"],
        **_secrets_of(settings.broker),
        "namesrvAddr": _local_address(settings, port),
    }
    log_flag = {"--log-config": log_config}
    stages = [
        [server("namesrv", "namesrv", log_flag, for_names, NameServerConfig)],
        servers_of(workers, flags, for_workers),
    ]
    described = Supervised("standalone", settings.broker.broker_name, settings.data)
    beside = partial(console_beside, settings.console, for_workers["namesrvAddr"])
    supervise(stages, workers, log_file, described, beside)


def _credentials(broker: BrokerConfig) -> tuple[str, str] | None:
    found = inner_credentials(broker)
    return None if found is None else (found.access_key, found.secret_key)


def _tls_options(broker: BrokerConfig) -> tuple[str, ...]:
    """How the console connects: as the broker does, if that uses TLS."""
    tls = broker.client_tls()
    if tls is None:
        return ()
    files = {"--trust": tls.trust, "--client-certificate": tls.certificate, "--client-key": tls.key}
    return ("--tls", *(f"{name}={file}" for name, file in files.items() if file))


def _secrets_of(settings: AccessSettings) -> dict[str, str]:
    """The credentials of a server, also those that were not on the command line."""
    given = {
        "initAuthenticationUser": settings.init_authentication_user,
        "innerClientAuthenticationCredentials": settings.inner_client_authentication_credentials,
    }
    return {key: text for key, text in given.items() if text is not None}


def _refuse_reserved_keys(given: Mapping[str, str]) -> None:
    for key in ("listenPort", "bindAddress", "namesrvAddr", "storePathRootDir"):
        if key in given:
            raise ConfigError(
                f"{key} is set by the options --namesrv-port, --broker-port, --host and --data"
            )


def _for_name_server(data: Path, host: str | None, port: int) -> dict[str, str]:
    return _bound_to(host) | {
        "listenPort": str(port),
        "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
        "configStorePath": str(data / "namesrv" / "namesrv.properties"),
        "controllerStorePath": str(data / "controller"),
        "authConfigPath": str(data / "auth"),  # the same users as the broker
    }


def _name_server_texts(chosen: dict[str, str], level: LogLevel) -> dict[str, str]:
    store = Path(chosen["configStorePath"])
    texts = read_file(store, secret_keys(NameServerConfig)) if store.exists() else {}
    return name_server.all_texts(texts, level, chosen)


def _for_broker(data: Path, host: str | None, port: int) -> dict[str, str]:
    return _bound_to(host) | {
        "brokerName": "broker-a",
        "listenPort": str(port),
        "storePathRootDir": str(data / "store"),
        "authConfigPath": str(data / "auth"),
    }


def _bound_to(host: str | None) -> dict[str, str]:
    return {} if host is None else {"bindAddress": host}


def _broker_texts(chosen: dict[str, str], level: LogLevel) -> dict[str, str]:
    file = broker_settings.file_texts(None, chosen, quiet=True)
    return broker_settings.all_texts(file, level, chosen)
