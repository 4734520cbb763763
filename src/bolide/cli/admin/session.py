"""What every admin command shares: its options, and the `AdminClient` session it runs in.

Exit codes: 0 done, 1 refused or failed, 2 usage, 3 a server is unreachable, 4 not applicable.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Literal, NoReturn, TypeVar

import typer

from bolide.admin import AdminClient
from bolide.admin.errors import BadAddress, NoNameServer
from bolide.cli.admin.credentials import ACCESS_KEY, SECRET_KEY, own_credentials
from bolide.cli.command_line import (
    FAILED,
    NOT_APPLICABLE,
    UNREACHABLE,
    USAGE,
    fail,
    program_name,
)
from bolide.cli.tls_options import chosen_tls
from bolide.client.errors import NameServersUnreachable, SendFailed
from bolide.errors import BolideError, ConfigError
from bolide.logs import one_line
from bolide.protocol.refusals import NoPermission, RequestCodeNotSupported
from bolide.remoting.errors import RemotingError

T = TypeVar("T")

_WITHOUT_SIGNATURE = ("username cannot be null", "No accessKey is configured")
"""What servers with ACL 2.0 and ACL 1.0 answer to a request without a signature."""

Switch = Literal["true", "false"]
NameServer = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrvAddr",
        help="NameServers, host:port;host:port; by default from NAMESRV_ADDR.",
    ),
]
AsDocument = Annotated[bool, typer.Option("--json", help="Print JSON, one document per line.")]
Topic = Annotated[str, typer.Option("-t", "--topic", help="Name of the topic.")]
Group = Annotated[str, typer.Option("-g", "--groupName", help="Name of the consumer group.")]
BrokerAddress = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", help="Address of one broker, host:port.")
]
ClusterName = Annotated[
    str | None, typer.Option("-c", "--clusterName", help="All brokers of this cluster.")
]
OfCluster = Annotated[
    str | None, typer.Option("-c", "--cluster", help="Only the brokers of this cluster.")
]


def is_true(switch: Switch | None) -> bool:
    return switch == "true"


def require_one(broker: str | None, cluster: str | None) -> None:
    """Raises a usage error unless exactly one of -b and -c is given."""
    if (broker is None) == (cluster is None):
        raise typer.BadParameter("give either -b, one broker, or -c, a cluster")


def run(name_server: str | None, act: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Run `act` with an open client; a BolideError ends the program with a one-line message."""
    try:
        return asyncio.run(_run(name_server, act))
    except BolideError as exc:
        fail(reason_of(exc), exit_code_of(exc))


def exit_code_of(exc: BolideError) -> int:
    match exc:
        case ConfigError() | BadAddress() | NoNameServer():
            return USAGE
        case RemotingError() | NameServersUnreachable():
            return UNREACHABLE
        case SendFailed() if isinstance(exc.__cause__, RemotingError):
            return UNREACHABLE
        case RequestCodeNotSupported():
            return NOT_APPLICABLE
        case _:
            return FAILED


def not_applicable(reason: str) -> NoReturn:
    """End the program: RocketMQ has the command, and here it has no meaning."""
    fail(f"not applicable, because {reason}", NOT_APPLICABLE)


_passed_over: ContextVar[list[BolideError]] = ContextVar("passed over")


def warn(exc: BolideError) -> None:
    """Print a failure that the command gets over to standard error."""
    print(f"{program_name()}: {reason_of(exc)}", file=sys.stderr)


def pass_over(exc: BolideError) -> None:
    """Print a failure that does not stop the command, but is its exit code at the end."""
    failures = _passed_over.get()
    if reason_of(exc) not in map(reason_of, failures):  # once, however many topics it has
        warn(exc)
        failures.append(exc)


@contextmanager
def complete_or_exit() -> Iterator[None]:
    """Run a command; end with an exit code if it passed over a failure."""
    failures: list[BolideError] = []
    token = _passed_over.set(failures)
    try:
        yield
    finally:
        _passed_over.reset(token)
    if failures:
        raise typer.Exit(max(map(exit_code_of, failures)))


def reason_of(exc: BolideError) -> str:
    """The message of an error on one line, with its notes."""
    text = " ".join(str(exc).split()) or type(exc).__name__
    notes = [*getattr(exc, "__notes__", ()), *_advice(exc)]
    return one_line(text + "".join(f" ({note})" for note in notes))


def _advice(exc: BolideError) -> list[str]:
    if isinstance(exc, NoPermission) and str(exc).startswith(_WITHOUT_SIGNATURE):
        access_key, _ = own_credentials()
        if access_key is None:
            return [f"this command does not sign: set {ACCESS_KEY} and {SECRET_KEY}"]
    return []


async def _run(name_server: str | None, act: Callable[[AdminClient], Awaitable[T]]) -> T:
    access_key, secret_key = own_credentials()
    async with AdminClient(
        name_server, access_key=access_key, secret_key=secret_key, tls=chosen_tls()
    ) as admin:
        return await act(admin)


async def targets(
    admin: AdminClient, broker: str | None, cluster: str | None, *, slaves: bool = False
) -> list[str]:
    """The addresses of the brokers selected by -b or -c."""
    if broker is not None:
        return [broker]
    assert cluster is not None
    choose = admin.clusters.members if slaves else admin.clusters.masters
    return await choose(cluster)


def items(text: str) -> list[str]:
    """The items of an option, separated by commas."""
    return [item.strip() for item in text.split(",") if item.strip()]


def find_first(
    name_server: str | None,
    brokers: tuple[str | None, str | None],
    find: Callable[[AdminClient, str], Awaitable[T | None]],
) -> T | None:
    """What the first broker of -b or -c returns that has something; None if none has.

    Args:
        brokers: the values of -b and -c, of which exactly one must be given.
    """
    broker, cluster = brokers
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> T | None:
        for address in await targets(admin, broker, cluster):
            if found := await find(admin, address):
                return found
        return None

    return run(name_server, act)
