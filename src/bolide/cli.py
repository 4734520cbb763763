"""The `bolide` command, and `mqnamesrv` and `mqbroker` for those who know RocketMQ's names."""

import logging
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bolide import logs
from bolide.config import from_environment, load, options_of, read_file, to_texts
from bolide.errors import BolideError, ConfigError
from bolide.logs import LogConfig, LogLevel
from bolide.namesrv.app import NameServer
from bolide.namesrv.config import (
    DEFAULT_TLS_FILE,
    IGNORED,
    IGNORED_CLIENT,
    NameServerConfig,
    find_file,
    tls_texts,
)
from bolide.remoting.event_loop import run, until_stopped
from bolide.remoting.tls import TlsMode
from bolide.version import __version__

log = logging.getLogger(__name__)

START_FAILED = 3

app = typer.Typer(
    help="A RocketMQ-compatible messaging platform.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", "--configFile", help="RocketMQ key=value file, or TOML."),
]
PrintConfig = Annotated[
    bool,
    typer.Option("-p", "--print", "--printConfigItem", help="Print every setting and leave."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse unknown keys.")]
LogFile = Annotated[
    Path | None, typer.Option("--log-config", help="TOML file that says what is logged and where.")
]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings by their keys.")
]


@app.callback(invoke_without_command=True)
def bolide(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)
    ] = False,
) -> None:
    """A RocketMQ-compatible messaging platform."""
    if version:
        print(f"bolide {__version__}")
        raise typer.Exit


@app.command()
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
    options = {"listenPort": listen_port, "bindAddress": bind_address}
    chosen = {key: str(value) for key, value in options.items() if value is not None}
    with _Refusing():
        log_file = _find_log_config(log_config)
        log_level = _start_logging(log_file)
        defaults = {"logLevel": str(log_level)}
        chosen = _words(settings or []) | chosen
        loaded = _name_server_config(config, defaults, chosen, strict=strict)
        if print_config:
            _print_settings(loaded)
        else:
            _serve(_run_name_server(loaded, log_file))


@app.command()
def standalone(
    data: Annotated[Path, typer.Option(help="Directory for all files.")] = Path("data"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104
    namesrv_port: Annotated[int, typer.Option(help="Port of the NameServer.")] = 9876,
    log_config: LogFile = None,
) -> None:
    """Run everything there is in one process: now a NameServer, with its files under --data."""
    with _Refusing():
        log_file = _find_log_config(log_config)
        log_level = _start_logging(log_file)
        store = data / "namesrv" / "namesrv.properties"
        texts: dict[str, str] = {"logLevel": log_level}
        texts |= read_file(store) if store.exists() else {}
        texts |= {
            "bindAddress": host,
            "listenPort": str(namesrv_port),
            "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
            "configStorePath": str(store),
        }
        loaded = load(NameServerConfig, texts, ignored=IGNORED | IGNORED_CLIENT)
        _serve(_run_name_server(loaded, log_file))


@app.command()
def broker() -> None:
    """Not part of this version yet; the NameServer serves RocketMQ's own brokers."""
    _fail(
        f"bolide {__version__} has no broker yet. Point RocketMQ's mqbroker at a Bolide NameServer."
    )


def main() -> None:
    """Entry point of `bolide`."""
    app(prog_name="bolide")


def mqnamesrv() -> None:
    """Entry point of `mqnamesrv`: `bolide namesrv` under RocketMQ's name."""
    app(["namesrv", *sys.argv[1:]], prog_name="mqnamesrv")


def mqbroker() -> None:
    """Entry point of `mqbroker`: `bolide broker` under RocketMQ's name."""
    app(["broker"], prog_name="mqbroker")


async def _run_name_server(config: NameServerConfig, log_file: Path | None) -> None:
    logs.set_level(config.log_level)
    _reload_logs_on_hangup(log_file)
    async with NameServer(config) as server:
        # RocketMQ's line: scripts wait for it.
        address = f"{config.bind_address}:{server.port}"
        print(f"The Name Server boot success. serializeType=JSON, address {address}")
        print(_encryption(config), flush=True)
        await until_stopped()
    print("The Name Server stopped.", flush=True)


def _encryption(config: NameServerConfig) -> str:
    if config.tls_mode is TlsMode.DISABLED:
        return "Serving plain text only: tls.server.mode=disabled."
    if config.tls_certificate is None:
        return "Serving plain text only: no tls.server.certPath is set."
    if config.tls_mode is TlsMode.ENFORCING:
        return "Serving TLS only."
    return "Serving TLS and plain text on one port."


def _name_server_config(
    file: Path | None, defaults: dict[str, str], chosen: dict[str, str], *, strict: bool
) -> NameServerConfig:
    """Settings of tls.properties, file, environment and command line; later ones win."""
    texts: dict[str, str] = {}
    if file is not None:
        file = find_file(file, os.environ.get("ROCKETMQ_HOME"))
        texts = read_file(file)
        print(f"load config properties file OK, {file}")
        texts.setdefault("configStorePath", str(file))
    tls_file = Path(texts.pop("tls.config.file", str(DEFAULT_TLS_FILE)).strip())
    if tls_file.exists():
        texts = tls_texts(tls_file) | texts
    texts = defaults | texts | from_environment(NameServerConfig, "BOLIDE_NAMESRV") | chosen
    return load(NameServerConfig, texts, ignored=IGNORED | IGNORED_CLIENT, strict=strict)


def _words(words: list[str]) -> dict[str, str]:
    """Settings given as key=value words."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found


def _print_settings(config: NameServerConfig) -> None:
    texts = to_texts(config)
    for key, found in options_of(NameServerConfig).items():
        print(f"# {found.doc}\n{key}={texts.get(key, '')}")
    print("\n# Known to RocketMQ, without effect here:")
    for key, item in IGNORED.items():
        print(f"# {key}={item.default}  ({item.reason})")


def _find_log_config(file: Path | None) -> Path | None:
    if file is None and (home := os.environ.get("ROCKETMQ_HOME")):
        in_home = Path(home) / "conf" / "logging.toml"
        return in_home if in_home.exists() else None
    return file


def _start_logging(file: Path | None) -> LogLevel:
    """Configure the logs; returns the root level, which settings may change."""
    config = LogConfig.read(file) if file else LogConfig()
    logs.configure(config)
    return config.level


def _reload_logs_on_hangup(file: Path | None) -> None:
    if file is not None and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: _reload_logs(file))


def _reload_logs(file: Path) -> None:
    try:
        logs.configure(LogConfig.read(file))
    except ConfigError as exc:
        log.warning("the logs stay as they are: %s", exc)


def _serve(server: Coroutine[Any, Any, None]) -> None:
    try:
        run(server)
    finally:
        logs.shutdown()


class _Refusing:
    """Ends the program with one clear line where a mistake of the user is found."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, BolideError):
            _fail(str(exc))


def _fail(reason: str) -> NoReturn:
    logs.shutdown()
    print(f"bolide: {reason}", file=sys.stderr)
    raise typer.Exit(START_FAILED)
