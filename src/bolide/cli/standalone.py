"""`bolide standalone`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bolide.cli.exits import Refusing
from bolide.cli.log_setup import find_log_config, start_logging
from bolide.cli.options import LogFile, Words, Workers, settings_of
from bolide.remoting.event_loop import collect_seldom


def standalone(
    settings: Words = None,
    data: Annotated[Path, typer.Option(help="Directory for all files.")] = Path("data"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104
    namesrv_port: Annotated[int, typer.Option(help="Port of the NameServer.")] = 9876,
    broker_port: Annotated[int, typer.Option(help="Port of the broker.")] = 10911,
    workers: Workers = None,
    log_config: LogFile = None,
) -> None:
    """Run a NameServer and a broker in one process, or by --workers, files under --data.

    Settings are those of a broker.conf, such as flushDiskType=SYNC_FLUSH.
    """
    collect_seldom()
    from bolide.cli.cluster import Cluster, serve  # noqa: PLC0415

    with Refusing(OSError):
        log_file = find_log_config(log_config)
        level = start_logging(log_file, console=sys.stdout)
        ports = {"namesrv": namesrv_port, "broker": broker_port}
        given = settings_of(settings) | ({} if workers is None else {"workers": str(workers)})
        cluster = Cluster.of(given, data=data, host=host, ports=ports, level=level)
        serve(cluster, log_file, log_config)
