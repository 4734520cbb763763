"""The `bolide` command, and `mqnamesrv` and `mqbroker` for those who know RocketMQ's names."""

import logging
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import IO, Annotated, Any, NoReturn

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
    IGNORED_TLS,
    NameServerConfig,
    find_file,
    tls_texts,
)
from bolide.remoting.address import format_address
from bolide.remoting.event_loop import on_hangup, run, until_stopped
from bolide.remoting.tls import TlsMode
from bolide.version import __version__

log = logging.getLogger(__name__)

START_FAILED = 3

_ENVIRONMENT = "BOLIDE_NAMESRV"
_WITHOUT_EFFECT = IGNORED | IGNORED_CLIENT | IGNORED_TLS

_LOOK: Any = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
_ANY_WORDS: Any = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}
app = typer.Typer(no_args_is_help=True, help="A RocketMQ-compatible messaging platform.", **_LOOK)

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", "--configFile", help="RocketMQ key=value file."),
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
        # What -p prints is a configuration file: nothing else may stand in it.
        level = _start_logging(log_file, console=sys.stderr if print_config else sys.stdout)
        chosen = _words(settings) | chosen
        texts = _texts(_file_texts(config, chosen, quiet=print_config), level, chosen)
        loaded = load(NameServerConfig, texts, ignored=_WITHOUT_EFFECT, strict=strict)
        if print_config:
            _print_settings(loaded)
        else:
            _serve(_run_name_server(loaded, texts, log_file))


@app.command()
def standalone(
    settings: Words = None,
    data: Annotated[Path, typer.Option(help="Directory for all files.")] = Path("data"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104
    namesrv_port: Annotated[int, typer.Option(help="Port of the NameServer.")] = 9876,
    log_config: LogFile = None,
) -> None:
    """Run all there is in one process, files under --data."""
    with _Refusing():
        log_file = _find_log_config(log_config)
        level = _start_logging(log_file, console=sys.stdout)
        chosen = {
            "bindAddress": host,
            "listenPort": str(namesrv_port),
            "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
            "configStorePath": str(data / "namesrv" / "namesrv.properties"),
        }
        chosen |= _words(settings)
        store = Path(chosen["configStorePath"])
        texts = _texts(read_file(store) if store.exists() else {}, level, chosen)
        loaded = load(NameServerConfig, texts, ignored=_WITHOUT_EFFECT)
        _serve(_run_name_server(loaded, texts, log_file))


@app.command(**_ANY_WORDS)
def broker() -> None:
    """Not there yet: RocketMQ's brokers do it."""
    with _Refusing():
        raise ConfigError(
            f"version {__version__} has no broker yet; point RocketMQ's mqbroker at our NameServer"
        )


# A command alone in its application needs no name: `mqnamesrv -c FILE`.
_mqnamesrv = typer.Typer(**_LOOK)
_mqnamesrv.command()(namesrv)
_mqbroker = typer.Typer(**_LOOK)
_mqbroker.command(**_ANY_WORDS)(broker)


def main() -> None:
    """Entry point of `bolide`."""
    app(prog_name="bolide")


def mqnamesrv() -> None:
    """Entry point of `mqnamesrv`: `bolide namesrv` under RocketMQ's name."""
    _mqnamesrv(prog_name="mqnamesrv")


def mqbroker() -> None:
    """Entry point of `mqbroker`: `bolide broker` under RocketMQ's name."""
    _mqbroker(prog_name="mqbroker")


async def _run_name_server(
    config: NameServerConfig, texts: dict[str, str], log_file: Path | None
) -> None:
    logs.set_level(config.log_level)
    on_hangup(lambda: _reload_logs(log_file))
    ignored = {key: text for key, text in texts.items() if key in IGNORED}
    async with NameServer(config, ignored) as server:
        # RocketMQ's line: scripts wait for it.
        address = format_address((config.bind_address, server.port))
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


def _file_texts(file: Path | None, chosen: dict[str, str], *, quiet: bool) -> dict[str, str]:
    """Settings of the file named, else of the one that changes at run time went to."""
    if file is None:
        file = _store_path(chosen)
        if not file.exists():
            return {}
    file = find_file(file, os.environ.get("ROCKETMQ_HOME"))
    texts = read_file(file)
    if not quiet:
        print(f"load config properties file OK, {file}")
    texts.setdefault("configStorePath", str(file))
    return texts


def _store_path(chosen: dict[str, str]) -> Path:
    """Where changes at run time went if no file was named."""
    key = "configStorePath"
    given = from_environment(NameServerConfig, _ENVIRONMENT) | chosen
    return load(NameServerConfig, {key: given[key]} if key in given else {}).config_store_path


def _texts(file: dict[str, str], level: LogLevel, chosen: dict[str, str]) -> dict[str, str]:
    """Settings of tls.properties, file, environment and command line; later ones win."""
    texts = file | from_environment(NameServerConfig, _ENVIRONMENT) | chosen
    named = texts.pop("tls.config.file", "").strip()
    if named or DEFAULT_TLS_FILE.exists():
        texts = tls_texts(Path(named) if named else DEFAULT_TLS_FILE) | texts
    return {"logLevel": level} | texts


def _words(words: list[str] | None) -> dict[str, str]:
    """Settings given as key=value words."""
    found = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found


def _print_settings(config: NameServerConfig) -> None:
    texts = to_texts(config)
    for key, found in options_of(NameServerConfig).items():
        # A secret stays one: its line is there to be filled in.
        print(f"# {found.doc}\n{'#' if found.secret else ''}{key}={texts.get(key, '')}")
    print("\n# Known to RocketMQ, without effect here:")
    for key, item in IGNORED.items():
        print(f"# {key}={item.default}  ({item.reason})")


def _find_log_config(file: Path | None) -> Path | None:
    if file is None and (home := os.environ.get("ROCKETMQ_HOME")):
        in_home = Path(home) / "conf" / "logging.toml"
        return in_home if in_home.exists() else None
    return file


def _start_logging(file: Path | None, console: IO[str]) -> LogLevel:
    """Configure the logs; returns the root level, which settings may change."""
    config = LogConfig.read(file) if file else LogConfig()
    logs.configure(config, console=console)
    return config.level


def _reload_logs(file: Path | None) -> None:
    """What SIGHUP asks for."""
    if file is None:
        log.info("there is no logging configuration to read again")
        return
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
    print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    raise typer.Exit(START_FAILED)
