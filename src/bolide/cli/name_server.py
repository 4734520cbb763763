"""Load the settings of a NameServer from all sources, and run it until a stop signal."""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from bolide import logs
from bolide.auth.settings import refuse_other_classes
from bolide.cli import controller_server
from bolide.cli.exposure import describe_encryption, describe_exposure, describe_metrics
from bolide.cli.process_setup import reload_logs
from bolide.cli.server_process import ServerProcess
from bolide.cli.settings_sources import merge_texts, print_config
from bolide.config import (
    from_environment,
    load,
    options_of,
    read_file,
    secret_keys,
    variable,
)
from bolide.controller.config import ControllerConfig
from bolide.lifeline import Lifeline
from bolide.logs import LogLevel
from bolide.metrics.settings import with_port_given
from bolide.namesrv.config import ALL_IGNORED, CONTROLLER_KEYS, IGNORED, NameServerConfig
from bolide.namesrv.server import NameServer
from bolide.remoting.address import format_address
from bolide.remoting.event_loop import on_hangup, run, until_stopped
from bolide.remoting.settings import LOOPBACK, find_file

log = logging.getLogger(__name__)

_ENVIRONMENT = "BOLIDE_NAMESRV"


def serve(server: NameServer, log_file: Path | None, lifeline: Lifeline) -> None:
    """Run a NameServer until a stop signal."""
    try:
        run(_run(server, log_file, lifeline))
    finally:
        logs.shutdown()


def file_texts(file: Path | None, chosen: dict[str, str], *, quiet: bool) -> dict[str, str]:
    """Settings of the given file, otherwise of the file that stores changes at run time."""
    if file is None:
        file = _store_path(chosen)
        if not file.exists():
            return {}
    file = find_file(file, os.environ.get("ROCKETMQ_HOME"))
    texts = read_file(file, secret_keys(NameServerConfig) | secret_keys(ControllerConfig))
    if not quiet:
        print(f"load config properties file OK, {file}")
    texts.setdefault("configStorePath", str(file))
    return texts


def all_texts(file: dict[str, str], level: LogLevel, chosen: dict[str, str]) -> dict[str, str]:
    """Settings of tls.properties, file, environment and command line, in increasing priority.

    Those that only a controller has are among them, under the variables of either server.
    """
    of_controller = {
        key: text
        for prefix in (_ENVIRONMENT, controller_server.ENVIRONMENT)
        for key, text in from_environment(ControllerConfig, prefix).items()
        if key in CONTROLLER_KEYS
    }
    return merge_texts(NameServerConfig, _ENVIRONMENT, file | of_controller, level, chosen)


def load_settings(texts: dict[str, str], *, strict: bool) -> NameServerConfig:
    refuse_other_classes(texts)
    texts = with_port_given(texts)
    return load(NameServerConfig, texts, ignored=ALL_IGNORED, others=CONTROLLER_KEYS, strict=strict)


def load_controller(config: NameServerConfig, texts: Mapping[str, str]) -> ControllerConfig | None:
    """Settings of the controller in the same process, if there is to be one."""
    if not config.enable_controller_in_namesrv:
        if texts.get("controllerDLegerPeers", "").strip():
            log.warning(
                "controllerDLegerPeers has no effect without enableControllerInNamesrv=true"
            )
        return None
    _warn_of_variables()
    known = {key: text for key, text in texts.items() if key in options_of(ControllerConfig)}
    if not known.get("controllerDLegerPeers", "").strip() and config.listen_port:
        # Brokers with the settings of DLedger look for it there, too.
        own = known.get("controllerDLegerSelfId", "").strip() or "n0"
        known["controllerDLegerPeers"] = chosen = f"{own}-{LOOPBACK}:{config.listen_port + 2}"
        log.info("controllerDLegerPeers is not set: a single controller, %s", chosen)
    return load(ControllerConfig, {"configStorePath": str(config.config_store_path)} | known)


def _warn_of_variables() -> None:
    """Warn of variables for what the controller has in common with its NameServer."""
    shared = from_environment(ControllerConfig, controller_server.ENVIRONMENT).keys()
    for key in sorted(shared - CONTROLLER_KEYS):
        log.warning(
            "%s has no effect on a controller inside a NameServer: set %s, which is for both",
            variable(controller_server.ENVIRONMENT, options_of(ControllerConfig)[key]),
            variable(_ENVIRONMENT, options_of(NameServerConfig)[key]),
        )


def print_settings(config: NameServerConfig) -> None:
    print_config(config, IGNORED)


def make_server(config: NameServerConfig, texts: Mapping[str, str]) -> NameServer:
    """Build the NameServer; settings without effect are kept for `getNamesrvConfig`."""
    ignored = {key: text for key, text in texts.items() if key in IGNORED}
    return NameServer(config, ignored, load_controller(config, texts))


async def _run(server: NameServer, log_file: Path | None, lifeline: Lifeline) -> None:
    logs.set_level(server.config.value.log_level)
    on_hangup(lambda: reload_logs(log_file, lifeline.label))
    config = server.config.value
    data = config.kv_config_path.expanduser().parent
    with ServerProcess("namesrv", data=data, lifeline=lifeline) as process:
        await until_stopped(_serve(server, process), process.report_stopping)
    logs.flush()  # so that this is the last line
    print("The Name Server stopped.", flush=True)


async def _serve(server: NameServer, process: ServerProcess) -> None:
    async with server:
        announce(server)
        process.report_ready(addresses_of(server))
        await asyncio.Event().wait()


def addresses_of(server: NameServer) -> list[str]:
    """What a NameServer listens on, and the controller inside it."""
    own = format_address((server.config.value.bind_address, server.port))
    inner = server.controller
    return [own] if inner is None else [own, *controller_server.addresses_of(inner)]


def announce(server: NameServer) -> None:
    """Print RocketMQ's start-up line, for which scripts wait, and what protects the server."""
    config = server.config.value
    address = format_address((config.bind_address, server.port))
    print(f"The Name Server boot success. serializeType=JSON, address {address}")
    print(describe_exposure(config, server.port, "look up routes and register brokers"))
    print(describe_encryption(config), flush=True)
    if server.metrics.address is not None:
        print(describe_metrics(server.metrics.address), flush=True)
    if server.controller is not None:
        controller_server.announce(server.controller)


def _store_path(chosen: dict[str, str]) -> Path:
    """The file that stores changes at run time if no file is given."""
    key = "configStorePath"
    given = from_environment(NameServerConfig, _ENVIRONMENT) | chosen
    return load(NameServerConfig, {key: given[key]} if key in given else {}).config_store_path
