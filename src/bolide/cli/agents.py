"""`bolide mcp`: serve the operations on a cluster to agents, over the Model Context Protocol."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.cli.command_line import ExitOnError, require_extra

if TYPE_CHECKING:
    from bolide.agent_tools.server import AgentServer

TOKEN_VARIABLE = "BOLIDE_MCP_TOKEN"  # noqa: S105  the name of a variable
_AUDIT_VARIABLE = "BOLIDE_MCP_AUDIT"
_PACKAGES = {"mcp", "mcp_types", "pydantic", "pydantic_core", "anyio", "starlette", "uvicorn"}


class RoleName(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Http:
    """Where and how to serve HTTP."""

    listener: socket.socket
    token: str
    is_new_token: bool
    allow_hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What the command line asks for."""

    name_server: str | None
    role: RoleName
    allow_writes: bool
    http: "_Http | None"
    audit_file: Path
    timeout: float


def mcp(
    name_server: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrvAddr",
            help="NameServers, host:port;host:port; by default from NAMESRV_ADDR.",
        ),
    ] = None,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Offer what changes something, too.")
    ] = False,
    role: Annotated[
        RoleName | None,
        typer.Option(help="Offer what this role may do. [default: viewer; operator with writes]"),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http", metavar="[HOST:]PORT",
            help="Serve streamable HTTP, not standard input and output. Clients need the token in"
            f" {TOKEN_VARIABLE}; without it one is made and printed.",
        ),
    ] = None,
    allow_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME",
            help="With --http: another name by which clients may address the server.",
        ),
    ] = None,
    audit_file: Annotated[
        Path | None,
        typer.Option(
            "--audit-log", metavar="FILE", envvar=_AUDIT_VARIABLE,
            help="Where changes are written. [default: ~/.bolide/mcp-audit.db]",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=600, help="Seconds to wait for one answer of a server.")
    ] = 5.0,
) -> None:  # fmt: skip
    """Serve the operations on a cluster to agents, over the Model Context Protocol.

    The operations that read are offered, and with --allow-writes the others. One that destroys or
    moves something shows its effect and wants a confirmation first.

    Requests are signed with BOLIDE_ACCESS_KEY and BOLIDE_SECRET_KEY of the environment, or with the
    keys in $ROCKETMQ_HOME/conf/tools.yml.
    """
    chosen = role or (RoleName.OPERATOR if allow_writes else RoleName.VIEWER)
    if allow_writes and chosen is RoleName.VIEWER:
        raise typer.BadParameter("--allow-writes needs --role operator or admin")
    if allow_hosts and http is None:
        raise typer.BadParameter("--allow-host needs --http")
    address = _http_address(http) if http is not None else None
    with require_extra("mcp", _PACKAGES), ExitOnError():
        wish = _Wish(
            name_server=name_server,
            role=chosen,
            allow_writes=allow_writes,
            http=_listen(address, allow_hosts or []) if address is not None else None,
            audit_file=audit_file or Path.home() / ".bolide" / "mcp-audit.db",
            timeout=timeout,
        )
        asyncio.run(_serve(wish))


def _http_address(text: str) -> tuple[str, int]:
    from bolide.remoting.address import split_address  # noqa: PLC0415

    try:
        return split_address(text if ":" in text else f"127.0.0.1:{text}")
    except ValueError as exc:
        raise typer.BadParameter(f"--http: {exc}, or a port") from exc


def _listen(address: tuple[str, int], allow_hosts: list[str]) -> _Http:
    from bolide.agent_tools import http  # noqa: PLC0415

    token, is_new = http.choose_token(os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE)
    return _Http(
        listener=http.listen(*address),
        token=token,
        is_new_token=is_new,
        allow_hosts=tuple(allow_hosts),
    )


async def _serve(wish: _Wish) -> None:
    from bolide import logs  # noqa: PLC0415
    from bolide.admin import AdminClient, NoNameServer  # noqa: PLC0415
    from bolide.agent_tools import stdio  # noqa: PLC0415
    from bolide.agent_tools.server import Access, AgentServer  # noqa: PLC0415
    from bolide.cli.admin.credentials import own_credentials  # noqa: PLC0415
    from bolide.cli.admin.session import reason_of  # noqa: PLC0415
    from bolide.cli.tls_options import chosen_tls  # noqa: PLC0415
    from bolide.operations.audit_store import AuditStore  # noqa: PLC0415
    from bolide.operations.catalog import OPERATIONS  # noqa: PLC0415
    from bolide.operations.cluster import Cluster, Identity  # noqa: PLC0415
    from bolide.operations.declaration import Role  # noqa: PLC0415

    logs.configure(logs.LogConfig(level=logs.LogLevel.WARNING), console=sys.stderr)
    access_key, secret_key = own_credentials()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(
            AdminClient(
                wish.name_server,
                timeout=wish.timeout,
                access_key=access_key,
                secret_key=secret_key,
                tls=chosen_tls(),
            )
        )
        if not admin.name_servers.addresses:
            raise NoNameServer
        audit = AuditStore(wish.audit_file)
        if wish.allow_writes:
            await stack.enter_async_context(audit)
        cluster = Cluster(
            admin=admin,
            name_servers=";".join(admin.name_servers.addresses),
            identity=Identity(access_key=access_key, secret_key=secret_key),
            tls=chosen_tls(),
            own_audit=audit if wish.allow_writes else None,
        )
        access = Access(
            user=access_key or _user_name(),
            role=Role[wish.role.name],
            allow_writes=wish.allow_writes,
        )
        server = await stack.enter_async_context(
            AgentServer(cluster, OPERATIONS.values(), access, audit, describe_error=reason_of)
        )
        if wish.http is None:
            await stdio.serve(server.protocol, stop)
        else:
            await _serve_http(server, wish.http, stop)
    logs.shutdown()


async def _serve_http(server: "AgentServer", chosen: _Http, stop: asyncio.Event) -> None:
    from bolide.agent_tools import http  # noqa: PLC0415
    from bolide.remoting.address import format_address, is_loopback_host  # noqa: PLC0415

    listening = chosen.listener.getsockname()
    told = [f"Serving the Model Context Protocol at http://{format_address(listening)}{http.PATH}"]
    if chosen.is_new_token:
        told.append(f"Token: {chosen.token}")
    if not is_loopback_host(listening[0]):
        told.append("Reachable from the network, and not encrypted: put a proxy with TLS in front.")
    print("\n".join(told), file=sys.stderr, flush=True)
    await http.serve(
        server.protocol, chosen.listener, chosen.token, stop, more_hosts=chosen.allow_hosts
    )


def _user_name() -> str:
    import getpass  # noqa: PLC0415  rarely needed

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have users without names
        return str(os.getuid())
