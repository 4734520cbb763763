"""`bolide namesrv`, `controller`, `broker` and `standalone`; also `mqnamesrv` and its like.

The servers are imported when a command runs: other commands start faster, and the process that
supervises workers stays small.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.cli.command_line import (
    ConfigFile,
    ExitOnError,
    LogFile,
    PrintConfig,
    SettingWords,
    Strict,
    Workers,
    parse_settings,
)
from bolide.cli.console import PORT as CONSOLE_PORT
from bolide.cli.process_setup import find_log_config, raise_file_limit, start_logging
from bolide.lifeline import Lifeline
from bolide.remoting.event_loop import raise_gc_thresholds

if TYPE_CHECKING:
    from bolide.broker.settings.config import BrokerConfig
    from bolide.store.config import StoreConfig


def namesrv(
    settings: SettingWords = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    listen_port: Annotated[
        int | None, typer.Option("--listen-port", help="Port to listen on; 9876 by default.")
    ] = None,
    bind_address: Annotated[
        str | None,
        typer.Option("--bind-address", help="Address to listen on; 127.0.0.1 by default."),
    ] = None,
    strict: Strict = False,
    log_config: LogFile = None,
) -> None:
    """Run a NameServer until SIGTERM or SIGINT."""
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
    with ExitOnError():
        raise_file_limit()
        lifeline = Lifeline.inherited()
        log_file = find_log_config(log_config)
        # The output of -p is a configuration file, so logs go to standard error.
        level = start_logging(log_file, sys.stderr if print_config else sys.stdout, lifeline.label)
        chosen = parse_settings(settings) | chosen
        texts = all_texts(file_texts(config, chosen, quiet=print_config), level, chosen)
        loaded = load_settings(texts, strict=strict)
        if print_config:
            print_settings(loaded)
        else:
            serve(make_server(loaded, texts), log_file, lifeline)


def controller(
    settings: SettingWords = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    self_id: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--selfId",
            help="Which of controllerDLegerPeers this controller is; n0 by default.",
        ),
    ] = None,
    strict: Strict = False,
    log_config: LogFile = None,
) -> None:
    """Run a controller until SIGTERM or SIGINT: bolide controller -c controller.conf"""
    from bolide.cli.controller_server import (  # noqa: PLC0415
        all_texts,
        file_texts,
        load_settings,
        make_controller,
        print_settings,
        serve,
    )

    chosen = {} if self_id is None else {"controllerDLegerSelfId": self_id}
    # OSError: opening the journal may fail here.
    with ExitOnError(OSError):
        raise_file_limit()
        lifeline = Lifeline.inherited()
        log_file = find_log_config(log_config)
        level = start_logging(log_file, sys.stderr if print_config else sys.stdout, lifeline.label)
        chosen = parse_settings(settings) | chosen
        texts = all_texts(file_texts(config, chosen, quiet=print_config), level, chosen)
        loaded = load_settings(texts, strict=strict)
        if print_config:
            print_settings(loaded)
        else:
            serve(make_controller(loaded, texts), log_file, lifeline)


def broker(
    settings: SettingWords = None,
    config: ConfigFile = None,
    name_servers: Annotated[
        str | None,
        typer.Option(
            "-n", "--namesrvAddr", help="NameServers, host:port, separated by semicolons."
        ),
    ] = None,
    workers: Workers = None,
    print_config: PrintConfig = False,
    print_important_config: Annotated[
        bool,
        typer.Option(
            "-m", "--printImportantConfig", help="Print the most important settings and exit."
        ),
    ] = False,
    strict: Strict = False,
    log_config: LogFile = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT: bolide broker -c broker.conf -n 127.0.0.1:9876"""
    raise_gc_thresholds()
    from bolide.broker.settings.config import load_settings  # noqa: PLC0415
    from bolide.cli import broker_settings  # noqa: PLC0415

    options = {"namesrvAddr": name_servers, "workers": workers}
    given = {key: str(value) for key, value in options.items() if value is not None}
    prints = print_config or print_important_config
    # OSError: opening the store and binding the ports may fail here.
    with ExitOnError(OSError):
        raise_file_limit()
        lifeline = Lifeline.inherited()
        log_file = find_log_config(log_config)
        # The output of -p is a configuration file, so logs go to standard error.
        level = start_logging(log_file, sys.stderr if prints else sys.stdout, lifeline.label)
        chosen = parse_settings(settings) | given
        if lifeline:
            file = broker_settings.worker_texts(config, chosen)
        else:
            file = broker_settings.file_texts(config, chosen, quiet=prints)
        texts = broker_settings.all_texts(file, level, chosen)
        loaded = load_settings(texts, strict=strict)
        if print_config:
            broker_settings.print_settings(loaded)
        elif print_important_config:
            broker_settings.print_important(loaded)
        elif loaded[0].workers > 1 and not lifeline:
            flags = {"--config": config, "--log-config": log_config, "--strict": strict}
            _serve_by_workers(loaded, flags, chosen, log_file)
        else:
            _serve(loaded, texts, log_file, lifeline)


def _serve(
    loaded: "tuple[BrokerConfig, StoreConfig]",
    texts: Mapping[str, str],
    log_file: Path | None,
    lifeline: Lifeline,
) -> None:
    from bolide.broker.multi_process import refuse_unserved_stores  # noqa: PLC0415
    from bolide.cli.broker_server import make_broker, serve  # noqa: PLC0415

    if not lifeline:
        refuse_unserved_stores(loaded[1].root, workers=1)
    serve(make_broker(loaded, texts), log_file, lifeline)


def _serve_by_workers(
    loaded: "tuple[BrokerConfig, StoreConfig]",
    flags: dict[str, Path | bool | None],
    chosen: Mapping[str, str],
    log_file: Path | None,
) -> None:
    from bolide.cli.broker_workers import (  # noqa: PLC0415
        Supervised,
        plan_workers,
        servers_of,
        shared_file,
        supervise,
    )

    workers = plan_workers(*loaded)
    flags["--config"] = flags["--config"] or shared_file(loaded[0])
    described = Supervised("broker", loaded[0].broker_name, loaded[1].root)
    supervise([servers_of(workers, flags, chosen)], workers, log_file, described)


def standalone(
    settings: SettingWords = None,
    data: Annotated[Path, typer.Option(help="Directory for all files.")] = Path("data"),
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on, 0.0.0.0 for the network; 127.0.0.1 by default."),
    ] = None,
    namesrv_port: Annotated[int, typer.Option(help="Port of the NameServer.")] = 9876,
    broker_port: Annotated[int, typer.Option(help="Port of the broker.")] = 10911,
    workers: Workers = None,
    console: Annotated[
        bool, typer.Option(envvar="BOLIDE_CONSOLE", help="Run the web console beside them.")
    ] = True,
    console_port: Annotated[int, typer.Option(help="Port of the web console.")] = CONSOLE_PORT,
    log_config: LogFile = None,
) -> None:
    """Run a NameServer and a broker in one process, or with --workers in several.

    Settings are those of a broker.conf, such as flushDiskType=SYNC_FLUSH.
    """
    raise_gc_thresholds()
    from bolide.cli.standalone import StandaloneSettings, serve  # noqa: PLC0415

    with ExitOnError(OSError):
        log_file = find_log_config(log_config)
        raise_file_limit()
        level = start_logging(log_file, console=sys.stdout)
        ports = {"namesrv": namesrv_port, "broker": broker_port, "console": console_port}
        given = parse_settings(settings) | ({} if workers is None else {"workers": str(workers)})
        cluster = StandaloneSettings.of(
            given, data=data, host=host, ports=ports, level=level, console=console
        )
        serve(cluster, log_file, log_config)
