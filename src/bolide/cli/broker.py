"""`bolide broker`, alone `mqbroker`.

The broker is loaded when it runs: other commands start faster without it.
"""

import sys
from typing import Annotated

import typer

from bolide.cli.exits import Refusing
from bolide.cli.log_setup import find_log_config, start_logging
from bolide.cli.options import ConfigFile, LogFile, PrintConfig, Strict, Words, settings_of


def broker(
    settings: Words = None,
    config: ConfigFile = None,
    name_servers: Annotated[
        str | None,
        typer.Option(
            "-n", "--namesrvAddr", help="NameServers, host:port, separated by semicolons."
        ),
    ] = None,
    print_config: PrintConfig = False,
    print_important_config: Annotated[
        bool,
        typer.Option(
            "-m", "--printImportantConfig", help="Print the settings that matter most and leave."
        ),
    ] = False,
    strict: Strict = False,
    log_config: LogFile = None,
) -> None:
    """Run a broker until it is told to stop: bolide broker -c broker.conf -n 127.0.0.1:9876"""
    from bolide.cli.broker_server import (  # noqa: PLC0415
        all_texts,
        file_texts,
        print_important,
        print_settings,
        serve,
    )

    chosen = {} if name_servers is None else {"namesrvAddr": name_servers}
    prints = print_config or print_important_config
    # The store is opened and ports are bound here: what the system refuses is told in one line too.
    with Refusing(OSError):
        log_file = find_log_config(log_config)
        # What -p prints is a configuration file: nothing else may stand in it.
        level = start_logging(log_file, console=sys.stderr if prints else sys.stdout)
        chosen = settings_of(settings) | chosen
        texts = all_texts(file_texts(config, chosen, quiet=prints), level, chosen)
        if prints:
            (print_settings if print_config else print_important)(texts, strict=strict)
        else:
            serve(texts, log_file, strict=strict)
