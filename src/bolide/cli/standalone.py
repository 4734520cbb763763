"""`bolide standalone`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bolide.cli.exits import Refusing
from bolide.cli.log_setup import find_log_config, start_logging
from bolide.cli.name_server import WITHOUT_EFFECT, all_texts, serve
from bolide.cli.options import LogFile, Words, settings_of
from bolide.config import load, read_file
from bolide.namesrv.config import NameServerConfig


def standalone(
    settings: Words = None,
    data: Annotated[Path, typer.Option(help="Directory for all files.")] = Path("data"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104
    namesrv_port: Annotated[int, typer.Option(help="Port of the NameServer.")] = 9876,
    log_config: LogFile = None,
) -> None:
    """Run all there is in one process, files under --data."""
    with Refusing():
        log_file = find_log_config(log_config)
        level = start_logging(log_file, console=sys.stdout)
        chosen = {
            "bindAddress": host,
            "listenPort": str(namesrv_port),
            "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
            "configStorePath": str(data / "namesrv" / "namesrv.properties"),
        }
        chosen |= settings_of(settings)
        store = Path(chosen["configStorePath"])
        texts = all_texts(read_file(store) if store.exists() else {}, level, chosen)
        serve(load(NameServerConfig, texts, ignored=WITHOUT_EFFECT), texts, log_file)
