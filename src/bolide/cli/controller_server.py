"""Load the settings of a controller from all sources, and run it until a stop signal."""

import os
from collections.abc import Mapping
from pathlib import Path

from bolide import logs
from bolide.auth.settings import IGNORED_ACCESS, refuse_other_classes
from bolide.cli.exposure import describe_encryption, describe_exposure, describe_metrics
from bolide.cli.process_setup import reload_logs
from bolide.cli.server_process import ServerProcess
from bolide.cli.settings_sources import merge_texts, print_config
from bolide.config import from_environment, load, options_of, read_file, secret_keys
from bolide.controller.config import ALL_IGNORED, ControllerConfig
from bolide.controller.server import Controller
from bolide.lifeline import Lifeline
from bolide.logs import LogLevel
from bolide.metrics.settings import with_port_given
from bolide.remoting.address import format_address
from bolide.remoting.event_loop import on_hangup, run, until_stopped
from bolide.remoting.settings import find_file

ENVIRONMENT = "BOLIDE_CONTROLLER"


def serve(server: Controller, log_file: Path | None, lifeline: Lifeline) -> None:
    """Run a controller until a stop signal."""
    try:
        run(_run(server, log_file, lifeline))
    finally:
        logs.shutdown()


def file_texts(file: Path | None, chosen: dict[str, str], *, quiet: bool) -> dict[str, str]:
    """Settings of the given file, otherwise of the file that stores changes at run time."""
    if file is None:
        key = "configStorePath"
        given = from_environment(ControllerConfig, ENVIRONMENT) | chosen
        default = options_of(ControllerConfig)[key].default
        file = Path(given.get(key, str(default))).expanduser()
        if not file.exists():
            return {}
    file = find_file(file, os.environ.get("ROCKETMQ_HOME"))
    texts = read_file(file, secret_keys(ControllerConfig))
    if not quiet:
        print(f"load config properties file OK, {file}")
    texts.setdefault("configStorePath", str(file))
    return texts


def all_texts(file: dict[str, str], level: LogLevel, chosen: dict[str, str]) -> dict[str, str]:
    """Settings of tls.properties, file, environment and command line, in increasing priority."""
    return merge_texts(ControllerConfig, ENVIRONMENT, file, level, chosen)


def load_settings(texts: dict[str, str], *, strict: bool) -> ControllerConfig:
    refuse_other_classes(texts)
    texts = with_port_given(texts)
    return load(ControllerConfig, texts, ignored=ALL_IGNORED | IGNORED_ACCESS, strict=strict)


def print_settings(config: ControllerConfig) -> None:
    print_config(config, ALL_IGNORED)


def make_controller(config: ControllerConfig, texts: Mapping[str, str]) -> Controller:
    """Build the controller; settings without effect are kept for `getControllerConfig`."""
    ignored = {key: text for key, text in texts.items() if key in ALL_IGNORED}
    return Controller(config, ignored=ignored)


def addresses_of(server: Controller) -> list[str]:
    """What a controller listens on: for requests, and for the Raft of its peers."""
    config = server.config.value
    return [format_address((config.bind_address, config.listen_port)), config.raft_bind]


def announce(server: Controller) -> None:
    """Print RocketMQ's start-up line, for which scripts wait, and what protects the server."""
    config = server.config.value
    own = config.own
    peers = ", ".join(f"{each.id} at {each.address}" for each in config.peers)
    address = format_address((config.bind_address, config.listen_port))
    print(f"The Controller boot success. serializeType=JSON, address {address}")
    secured = "encrypted" if config.controller_raft_password else "not encrypted"
    print(f"Controller {own.id} of {peers}; Raft at {config.raft_bind}, {secured}.")
    rights = "register brokers and ask for elections"
    print(describe_exposure(config, config.listen_port, rights))
    print(describe_encryption(config), flush=True)
    if server.metrics.address is not None:
        print(describe_metrics(server.metrics.address), flush=True)


async def _run(server: Controller, log_file: Path | None, lifeline: Lifeline) -> None:
    logs.set_level(server.config.value.log_level)
    on_hangup(lambda: reload_logs(log_file, lifeline.label))
    config = server.config.value
    data = config.controller_store_path.expanduser()
    with ServerProcess("controller", config.own.id, data=data, lifeline=lifeline) as process:
        await until_stopped(_serve(server, process), process.report_stopping)
    logs.flush()  # so that this is the last line
    print("The Controller stopped.", flush=True)


async def _serve(server: Controller, process: ServerProcess) -> None:
    async with server:
        announce(server)
        process.report_ready(addresses_of(server))
        await server.failure()
