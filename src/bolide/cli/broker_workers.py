"""The workers of `bolide broker` and `bolide standalone`: processes that are watched over."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
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
from bolide.cli.server_process import reload_logs
from bolide.cli.supervisor import Server, Supervisor
from bolide.remoting.event_loop import on_hangup, until_stopped
from bolide.store.config import StoreConfig

Flags = Mapping[str, Path | bool | None]
"""Options of a command; those that are None or False are left out."""


def prepare(config: BrokerConfig, store: StoreConfig) -> list[Worker]:
    """The workers of some settings, when all they need is there.

    Raises:
        ConfigError: their settings, stores or ports do not go together or are not free.
    """
    workers = workers_of(config, store)
    refuse_unserved_stores(store.root, config.workers)
    refuse_taken_ports(workers, config.bind_address)
    return workers


def shared_file(config: BrokerConfig) -> Path | None:
    """Settings of all workers if no file was named: those below the root of their stores."""
    file = config.broker_config_path
    return file if file is not None and file.exists() else None


def servers_of(workers: Sequence[Worker], flags: Flags, chosen: Mapping[str, str]) -> list[Server]:
    """The commands of some workers: that of the user, with what is each worker's own."""
    shared = {**chosen, "workers": str(len(workers))}
    return [server(each.label, "broker", flags, {**shared, **each.texts()}) for each in workers]


def server(label: str, command: str, flags: Flags, settings: Mapping[str, str]) -> Server:
    given = {name: value for name, value in flags.items() if value}
    options = [name if value is True else f"{name}={value}" for name, value in given.items()]
    return Server(label, (command, *options, *(f"{k}={v}" for k, v in settings.items())))


def supervise(
    stages: Sequence[Sequence[Server]], workers: Sequence[Worker], log_file: Path | None
) -> None:
    """Keep servers running until this process is told to stop.

    Raises:
        FailedToStart: one of them did not.
    """
    try:
        # The loop of the standard library: there is nothing to be fast at, and it is there already.
        ended_well = asyncio.run(_supervise(stages, workers, log_file))
    finally:
        logs.shutdown()
    if not ended_well:
        raise typer.Exit(FAILED)


async def _supervise(
    stages: Sequence[Sequence[Server]], workers: Sequence[Worker], log_file: Path | None
) -> bool:
    supervisor = Supervisor(stages)
    _pass_hangups_on(supervisor, log_file)
    await until_stopped(supervisor.run(lambda: _announce(workers)))
    print("All workers stopped.", flush=True)
    return supervisor.ended_well


def _pass_hangups_on(supervisor: Supervisor, log_file: Path | None) -> None:
    loop = asyncio.get_running_loop()

    def act() -> None:
        reload_logs(log_file)
        loop.call_soon_threadsafe(supervisor.pass_on, signal.SIGHUP)

    on_hangup(act)


def _announce(workers: Sequence[Worker]) -> None:
    names = ", ".join(f"{each.label} is {each.broker_name}" for each in workers)
    print(f"{len(workers)} workers serve: {names}.", flush=True)
