"""`bolide namesrv`, alone `mqnamesrv`.

The NameServer is loaded when it runs: other commands start faster without it.
"""

import sys
from typing import Annotated

import typer

from bolide.cli.exits import Refusing
from bolide.cli.lifeline import Lifeline
from bolide.cli.log_setup import find_log_config, start_logging
from bolide.cli.options import ConfigFile, LogFile, PrintConfig, Strict, Words, settings_of


def namesrv(
    settings: Words = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    listen_port: Annotated[
        int | None, typer.Option("--listen-port", help="Port to listen on, 9876 by default.")
    ] = None,
    bind_address: Annotated[
        str | None, typer.Option("--bind-address", help="Address to listen on, all by default.")
    ] = None,
    strict: Strict = False,
    log_config: LogFile = None,
) -> None:
    """Run a NameServer until it is told to stop."""
    from bolide.cli.name_server import (  # noqa: PLC0415
        all_texts,
        file_texts,
        load_settings,
        make_server,
        print_settings,
        serve,
    )

    options = {"listenPort": listen_port, "bindAddress": bind_address}
    chosen = {key: str(value) for key, value in options.items() if value is not None}
    with Refusing():
        lifeline = Lifeline.inherited()
        log_file = find_log_config(log_config)
        # What -p prints is a configuration file: nothing else may stand in it.
        level = start_logging(log_file, sys.stderr if print_config else sys.stdout, lifeline.label)
        chosen = settings_of(settings) | chosen
        texts = all_texts(file_texts(config, chosen, quiet=print_config), level, chosen)
        loaded = load_settings(texts, strict=strict)
        if print_config:
            print_settings(loaded)
        else:
            serve(make_server(loaded, texts), log_file, lifeline)
