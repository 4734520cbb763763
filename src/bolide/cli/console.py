"""`bolide console`: the web console, in a process of its own."""

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bolide import logs
from bolide.cli.command_line import ExitOnError, LogFile, fail
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from bolide.console.settings import ConsoleSettings
    from bolide.lifeline import Lifeline

FIRST_PASSWORD = "BOLIDE_CONSOLE_PASSWORD"  # noqa: S105  the name of a variable
HOW_TO_INSTALL = 'pip install "bolide[console]", in a checkout pip install ".[console]"'
PORT = 9877
_NICE = 10
"""Beside servers on one machine, messages go before pages."""
_PACKAGES = {"nicegui", "fastapi", "fastapi_offline", "uvicorn", "starlette", "socketio"}


def console(  # the options are the settings of a server
    name_server: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrvAddr",
            help="NameServers, host:port;host:port; by default from NAMESRV_ADDR, or"
            " 127.0.0.1:9876.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on, 0.0.0.0 for the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = PORT,
    data: Annotated[
        Path, typer.Option(help="Directory for accounts, history and audit log.")
    ] = Path("data") / "console",
    https_certificate: Annotated[
        Path | None, typer.Option(help="Serve HTTPS with this certificate.")
    ] = None,
    https_key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    session_hours: Annotated[
        float, typer.Option(min=0.01, help="Hours after which one has to log in again.")
    ] = 12.0,
    idle_minutes: Annotated[
        float, typer.Option(min=0.1, help="The same, in minutes without any use.")
    ] = 120.0,
    no_login: Annotated[
        bool, typer.Option("--no-login", help="Let everybody on this machine in as admin.")
    ] = False,
    reset_password: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Give an account a new one-time password, print it, and exit."
        ),
    ] = None,
    log_config: LogFile = None,
) -> None:
    """Run the web console until SIGTERM or SIGINT.

    The first start makes the account admin and prints its one-time password, unless
    BOLIDE_CONSOLE_PASSWORD has one. With access control, the console signs its requests with
    BOLIDE_ACCESS_KEY and BOLIDE_SECRET_KEY, and users of the cluster can log in with their own.
    """
    from bolide.cli.process_setup import (  # noqa: PLC0415
        find_log_config,
        raise_file_limit,
        start_logging,
    )
    from bolide.lifeline import Lifeline  # noqa: PLC0415

    with ExitOnError(OSError), require_console():
        from bolide.cli.admin.credentials import own_credentials  # noqa: PLC0415
        from bolide.cli.tls_options import chosen_tls  # noqa: PLC0415
        from bolide.console.settings import ConsoleSettings  # noqa: PLC0415
        from bolide.operations.cluster import Identity  # noqa: PLC0415
        from bolide.remoting.event_loop import share_freed_memory  # noqa: PLC0415

        lifeline = Lifeline.inherited()
        if lifeline:
            os.nice(_NICE)
        start_logging(find_log_config(log_config), sys.stdout, lifeline.label)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        if reset_password is not None:
            _reset_password(data, reset_password)
            return
        if (https_certificate is None) != (https_key is None):
            raise ConfigError("--https-certificate and --https-key must be given together")
        raise_file_limit()
        access_key, secret_key = own_credentials()
        share_freed_memory()
        settings = ConsoleSettings(
            name_servers=_name_servers(name_server),
            data=data,
            host=host,
            port=port,
            identity=Identity(access_key=access_key, secret_key=secret_key),
            tls=chosen_tls(),
            certificate=https_certificate,
            certificate_key=https_key,
            login=not no_login,
            first_password=_environment(FIRST_PASSWORD),
            session_hours=session_hours,
            idle_minutes=idle_minutes,
        )
        try:
            _serve(settings, lifeline)
        finally:
            logs.shutdown()


@contextmanager
def require_console() -> Iterator[None]:
    """Exit with a one-line message if a package of `bolide[console]` is not installed."""
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _PACKAGES:
            raise
        fail(f"the console needs the package {exc.name}: {HOW_TO_INSTALL}")


def _serve(settings: "ConsoleSettings", lifeline: "Lifeline") -> None:
    from bolide.cli.server_process import ServerProcess  # noqa: PLC0415
    from bolide.console.server import ConsoleServer, is_loopback  # noqa: PLC0415
    from bolide.remoting.event_loop import run, until_stopped  # noqa: PLC0415

    async def serve() -> None:
        server = ConsoleServer(settings)
        with ServerProcess("console", data=settings.data, lifeline=lifeline) as process:

            def announce(password: str | None) -> None:
                print(f"The console is at {server.url}", flush=True)
                if password is not None:
                    print(
                        f"First log-in at the console: user admin, one-time password {password}",
                        flush=True,
                    )
                if not is_loopback(settings.host) and settings.certificate is None:
                    print(
                        "The console is open to the network without encryption: passwords can be"
                        " read on their way; give --https-certificate and --https-key",
                        flush=True,
                    )
                process.report_ready([server.url])

            await until_stopped(server.serve(announce), process.report_stopping)

    run(serve())
    if not lifeline:
        print("The console has stopped.", flush=True)


def _reset_password(data: Path, name: str) -> None:
    from bolide.console.access.accounts import Accounts  # noqa: PLC0415

    file = data / "accounts.json"
    if not file.exists():
        raise ConfigError(f"there is no {file}; name the directory of the console with --data")
    password = asyncio.run(Accounts(file).reset_password(name))
    print(f"One-time password of {name}: {password}")
    print("A console that runs has to be started again to know it.")


def _name_servers(given: str | None) -> str:
    from bolide.remoting.address import split_address  # noqa: PLC0415

    addresses = given or _environment("NAMESRV_ADDR") or "127.0.0.1:9876"
    for address in addresses.split(";"):
        if address.strip():
            try:
                split_address(address.strip())
            except ValueError as error:
                raise ConfigError(f"-n: {error}") from error
    return addresses


def _environment(name: str) -> str | None:
    return os.environ.get(name) or None
