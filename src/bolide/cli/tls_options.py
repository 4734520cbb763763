"""TLS options of the commands that connect to a cluster: `bolide admin …` and `bolide bench …`.

The options are added to every command of a group at once. The settings they make are valid while
the command runs, and are found by `chosen_tls`.
"""

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from bolide.cli.command_line import ExitOnError

if TYPE_CHECKING:
    from bolide.remoting.tls import ClientTls

KEY_PASSWORD = "BOLIDE_CLIENT_KEY_PASSWORD"  # noqa: S105  the name of a variable

_chosen: ContextVar["ClientTls | None"] = ContextVar("tls", default=None)


def chosen_tls() -> "ClientTls | None":
    """The TLS settings of the running command; None means plain text."""
    return _chosen.get()


def add_tls_options(commands: Mapping[str, Any]) -> dict[str, Any]:
    """Add the options to all commands of a group; returns them."""
    for command in commands.values():
        command.params = [*command.params, *tls_parameters()]
        command.callback = _with_tls(command.callback)
    return dict(commands)


class TlsCommand(TyperCommand):
    """A command with the options, for one that is in no group of such commands."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        add_tls_options({"": self})


@cache
def tls_parameters() -> tuple[Any, ...]:
    """The options, as typer declares them."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_declare)
    return tuple(typer.main.get_command(app).params)


def _declare(
    use_tls: Annotated[
        bool, typer.Option("--tls", envvar="BOLIDE_TLS", help="Connect with TLS.")
    ] = False,
    tls_trust: Annotated[
        str | None,
        typer.Option(
            "--trust", metavar="FILE", envvar="BOLIDE_TRUST",
            help="Certificates of the authorities that sign those of servers; implies --tls."
            " By default those that the system trusts.",
        ),
    ] = None,
    tls_certificate: Annotated[
        str | None,
        typer.Option(
            "--client-certificate", metavar="FILE", envvar="BOLIDE_CLIENT_CERTIFICATE",
            help="Certificate for servers that ask for one; implies --tls.",
        ),
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option(
            "--client-key", metavar="FILE", envvar="BOLIDE_CLIENT_KEY",
            help=f"Private key of --client-certificate; its password is taken from {KEY_PASSWORD}.",
        ),
    ] = None,
    tls_server_name: Annotated[
        str | None,
        typer.Option(
            "--server-name", metavar="NAME", envvar="BOLIDE_SERVER_NAME",
            help="Name that certificates must have, in place of the host connected to.",
        ),
    ] = None,
    tls_any_host: Annotated[
        bool,
        typer.Option(
            "--no-check-host", envvar="BOLIDE_NO_CHECK_HOST",
            help="Accept certificates of trusted authorities whatever their names.",
        ),
    ] = False,
    tls_any_server: Annotated[
        bool, typer.Option("--no-verify", help="Unsafe: accept any server.")
    ] = False,
) -> None:  # fmt: skip
    """Never runs: only its parameters are used."""


def _with_tls(command: Callable[..., object]) -> Callable[..., object]:
    def run(**values: Any) -> object:
        names = [parameter.name for parameter in tls_parameters()]
        given = {name: values.pop(name) for name in names}
        with ExitOnError():
            token = _chosen.set(_settings(**given))
        try:
            return command(**values)
        finally:
            _chosen.reset(token)

    return run


def _settings(
    *,
    use_tls: bool,
    tls_trust: str | None,
    tls_certificate: str | None,
    tls_key: str | None,
    tls_server_name: str | None,
    tls_any_host: bool,
    tls_any_server: bool,
) -> "ClientTls | None":
    from bolide.remoting.tls import ClientTls, TlsWords  # noqa: PLC0415

    others = (tls_trust, tls_certificate, tls_key, tls_server_name, tls_any_host, tls_any_server)
    if not (use_tls or any(others)):
        return None
    return ClientTls(
        trust=Path(tls_trust) if tls_trust else None,
        certificate=Path(tls_certificate) if tls_certificate else None,
        key=Path(tls_key) if tls_key else None,
        key_password=os.environ.get(KEY_PASSWORD),
        verify=not tls_any_server,
        check_host=not tls_any_host,
        server_name=tls_server_name,
        words=TlsWords(
            trust="--trust path/to/ca.pem",
            no_verify="--no-verify",
            no_host_check="--no-check-host",
            server_name="--server-name",
            certificate="--client-certificate and --client-key",
        ),
    )
