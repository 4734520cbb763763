"""The worker processes of `bolide broker --workers` and `bolide standalone --workers`."""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import typer

from bolide import logs
from bolide.broker.multi_process import (
    Worker,
    refuse_taken_ports,
    refuse_unserved_stores,
    workers_of,
)
from bolide.broker.settings.config import BrokerConfig
from bolide.cli.command_line import FAILED
from bolide.cli.process_setup import reload_logs
from bolide.cli.server_process import ServerProcess
from bolide.cli.supervisor import Server, Supervisor
from bolide.config import options_of, variable
from bolide.remoting.event_loop import on_hangup, until_stopped
from bolide.store.config import StoreConfig


@dataclass(frozen=True, slots=True)
class Supervised:
    """What the processes are together, as the record of their supervisor describes it."""

    kind: str
    name: str
    data: Path


Beside = Callable[[], AbstractAsyncContextManager[None]]

Flags = Mapping[str, Path | bool | None]
"""Command line options; None and False are omitted."""


def plan_workers(config: BrokerConfig, store: StoreConfig) -> list[Worker]:
    """The workers for some settings, after a check of their stores and ports.

    Raises:
        ConfigError: the settings conflict, or a store or port is in use.
    """
    workers = workers_of(config, store)
    refuse_unserved_stores(store.root, config.workers)
    refuse_taken_ports(workers, config.bind_address)
    return workers


def shared_file(config: BrokerConfig) -> Path | None:
    """The configuration file of all workers if none is given: the one below the store root."""
    file = config.broker_config_path
    return file if file is not None and file.exists() else None


def servers_of(workers: Sequence[Worker], flags: Flags, chosen: Mapping[str, str]) -> list[Server]:
    """One server command per worker: the user's command with the settings of the worker."""
    shared = {**chosen, "workers": str(len(workers))}
    return [
        server(each.label, "broker", flags, {**shared, **each.texts()}, BrokerConfig)
        for each in workers
    ]


def server(
    label: str, command: str, flags: Flags, settings: Mapping[str, str], kind: type
) -> Server:
    """The command of a server; its secrets are in the environment.

    Args:
        kind: class of its settings.
    """
    given = {name: value for name, value in flags.items() if value}
    options = [name if value is True else f"{name}={value}" for name, value in given.items()]
    secrets = {key: found for key, found in options_of(kind).items() if found.secret}
    shown = [f"{key}={text}" for key, text in settings.items() if key not in secrets]
    prefix = f"BOLIDE_{command.upper()}"
    hidden = {
        variable(prefix, found): settings[key] for key, found in secrets.items() if key in settings
    }
    return Server(label, (command, *options, *shown), hidden)


def supervise(
    stages: Sequence[Sequence[Server]],
    workers: Sequence[Worker],
    log_file: Path | None,
    described: Supervised,
    beside: Beside = nullcontext,
) -> None:
    """Keep servers running until a stop signal.

    Args:
        beside: what runs while they do, and may fail.

    Raises:
        FailedToStart: a server failed to start.
    """
    try:
        # The standard event loop: it is already loaded, and speed does not matter here.
        ended_cleanly = asyncio.run(_supervise(stages, workers, log_file, described, beside))
    finally:
        logs.shutdown()
    if not ended_cleanly:
        raise typer.Exit(FAILED)


async def _supervise(
    stages: Sequence[Sequence[Server]],
    workers: Sequence[Worker],
    log_file: Path | None,
    described: Supervised,
    beside: Beside,
) -> bool:
    supervisor = Supervisor(stages)
    _forward_hangups(supervisor, log_file)
    with ServerProcess(described.kind, described.name, data=described.data) as process:

        def on_ready() -> None:
            _announce(workers)
            process.report_ready(())  # the records of the workers have the addresses

        async def run() -> None:
            async with beside():
                await supervisor.run(on_ready)

        await until_stopped(run(), process.report_stopping)
    logs.flush()  # so that this is the last line
    print("All workers stopped.", flush=True)
    return supervisor.ended_cleanly


def _forward_hangups(supervisor: Supervisor, log_file: Path | None) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        reload_logs(log_file)
        loop.call_soon_threadsafe(supervisor.forward_signal, signal.SIGHUP)

    on_hangup(on_signal)


def _announce(workers: Sequence[Worker]) -> None:
    names = ", ".join(f"{each.label} is {each.broker_name}" for each in workers)
    print(f"{len(workers)} workers serve: {names}.", flush=True)
