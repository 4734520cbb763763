"""`bolide cluster up|status|kill|stop|start|pause|resume|cut|slow|heal|down`: a local cluster.

`up` runs the cluster; the other commands find it by its data directory.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bolide.cli.command_line import FAILED, ExitOnError, SettingWords, parse_settings
from bolide.errors import ConfigError
from bolide.remoting.address import split_address

if TYPE_CHECKING:
    from bolide.cli.server_process import ServerProcess
    from bolide.cluster.data_directory import ClusterState, MemberState
    from bolide.cluster.plan import ClusterOptions

_LOG_FILE_SIZE = 64 * 1024 * 1024
"""A broker allocates two files; with its default of 1 GiB a few brokers would fill a disk."""
_DETACH_WITHIN = 120.0
_END_WITHIN = 30.0
_LOG = "up.log"
_SHOWN_LINES = 20

Data = Annotated[Path, typer.Option(help="Directory of the cluster.")]
MemberName = Annotated[str, typer.Argument(metavar="MEMBER", help="A name that `status` shows.")]

_DATA = Path("cluster")


def up(
    settings: SettingWords = None,
    brokers: Annotated[int, typer.Option(help="Broker groups.")] = 1,
    replicas: Annotated[int, typer.Option(help="Members of each group, with the master.")] = 1,
    namesrvs: Annotated[int, typer.Option(help="NameServers.")] = 1,
    controllers: Annotated[
        int,
        typer.Option(help="Controllers; as many as NameServers run in these, else by themselves."),
    ] = 0,
    workers: Annotated[int, typer.Option(help="Worker processes of each broker.")] = 1,
    asynchronous: Annotated[
        bool, typer.Option("--async", help="Masters do not wait for slaves: ASYNC_MASTER.")
    ] = False,
    data: Data = _DATA,
    base_port: Annotated[int, typer.Option(help="Port of the first NameServer.")] = 9876,
    network: Annotated[
        str, typer.Option(help="auto, plain, proxy or namespaces; plain cannot cut links.")
    ] = "auto",
    detach: Annotated[bool, typer.Option(help="Return when the cluster runs.")] = False,
) -> None:
    """Run a cluster of child processes on this machine until SIGTERM or SIGINT.

    Settings are those of a broker.conf, such as flushDiskType=SYNC_FLUSH. Commit log files have 64
    MiB unless mappedFileSizeCommitLog is given; those of a store that exists keep their size.
    """
    from bolide.cluster.plan import ClusterOptions  # noqa: PLC0415

    with ExitOnError(OSError):
        options = ClusterOptions(
            brokers=brokers, replicas=replicas, namesrvs=namesrvs, controllers=controllers,
            workers=workers, asynchronous=asynchronous, data=data, base_port=base_port,
            network=network, settings=parse_settings(settings), log_file_size=_LOG_FILE_SIZE,
        )  # fmt: skip
        if detach:
            _detach(data)
        else:
            _run_up(options)


def status(
    data: Data = _DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document.")] = False,
) -> None:
    """Show the members and the masters of a running cluster."""
    import msgspec  # noqa: PLC0415

    from bolide.cluster.control import masters, require_state  # noqa: PLC0415

    with ExitOnError(OSError):
        state = require_state(data)
        groups = asyncio.run(masters(state.name_servers))
    if as_json:
        document = {**msgspec.to_builtins(state), "groups": _group_documents(state, groups)}
        print(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())
    else:
        if state.is_starting:
            print("The cluster is starting.")
        _print_status(state, groups)


def kill(member: MemberName, data: Data = _DATA) -> None:
    """End a member as a crash does: SIGKILL."""
    _control(data, "kill", name=member)


def stop(member: MemberName, data: Data = _DATA) -> None:
    """End a member in order: SIGTERM."""
    _control(data, "stop", name=member)


def start(member: MemberName, data: Data = _DATA) -> None:
    """Start a member that has ended, and wait until it serves."""
    _control(data, "start", name=member)


def pause(member: MemberName, data: Data = _DATA) -> None:
    """Stop a member where it is: SIGSTOP."""
    _control(data, "pause", name=member)


def resume(member: MemberName, data: Data = _DATA) -> None:
    """Let a paused member continue: SIGCONT."""
    _control(data, "resume", name=member)


def cut(
    member: MemberName,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--from", help="A member, or `clients`; may be repeated. By default everything."
        ),
    ] = None,
    direction: Annotated[
        str, typer.Option(help="both; in: nothing reaches the member; out: nothing leaves it.")
    ] = "both",
    data: Data = _DATA,
) -> None:
    """Cut the links of a member; with the proxy, bytes wait for `heal`."""
    _control(data, "cut", name=member, others=others or [], direction=direction)


def slow(
    member: MemberName,
    delay: Annotated[float, typer.Option(min=0, help="Milliseconds, each way.")] = 100.0,
    rate: Annotated[float, typer.Option(min=0, help="Bytes per second; 0 is unlimited.")] = 0.0,
    data: Data = _DATA,
) -> None:
    """Make all links of a member slow."""
    _control(data, "slow", name=member, delay=delay / 1000, rate=rate)


def heal(
    member: Annotated[
        str | None, typer.Argument(metavar="[MEMBER]", help="One member; by default all.")
    ] = None,
    data: Data = _DATA,
) -> None:
    """Undo cuts and slow links."""
    _control(data, "heal", name=member)


def down(data: Data = _DATA) -> None:
    """Stop a cluster; its files stay. Also ends what a killed cluster left behind."""
    from bolide.cluster.control import take_down  # noqa: PLC0415

    with ExitOnError(OSError):
        left = asyncio.run(take_down(data))
    print(f"ended what was left of it: {', '.join(left)}" if left else "the cluster is down")


def _control(data: Path, verb: str, **arguments: Any) -> None:
    from bolide.cluster.control import control  # noqa: PLC0415

    with ExitOnError(OSError):
        asyncio.run(control(data, verb, **arguments))


def _run_up(options: "ClusterOptions") -> None:
    from bolide import logs  # noqa: PLC0415

    logs.configure(logs.LogConfig(level=logs.LogLevel.WARNING), console=sys.stderr)
    serving: Coroutine[Any, Any, None] = _run_members(options)
    try:
        # The standard event loop: it is already loaded, and speed does not matter here.
        asyncio.run(serving)
    finally:
        logs.shutdown()
    print("All members stopped.", flush=True)


async def _run_members(options: "ClusterOptions") -> None:
    from bolide.cli.server_process import ServerProcess  # noqa: PLC0415
    from bolide.remoting.event_loop import until_stopped  # noqa: PLC0415

    with ServerProcess("cluster", data=options.data) as process:
        await until_stopped(_serve(options, process), process.report_stopping)


async def _serve(options: "ClusterOptions", process: "ServerProcess") -> None:
    from bolide.cluster.control import ControlServer, masters, require_state  # noqa: PLC0415
    from bolide.cluster.local_cluster import LocalCluster  # noqa: PLC0415

    cluster = LocalCluster(options)
    async with ControlServer(cluster, _stop_this_process), cluster:
        _print_status(require_state(options.data), await masters(cluster.name_servers))
        print(f"NameServers for clients: {cluster.name_servers}")
        process.report_ready(cluster.name_servers.split(";"))
        print("The cluster runs; Ctrl-C or `bolide cluster down` stops it.", flush=True)
        await asyncio.Event().wait()


def _stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _detach(data: Path) -> None:
    """Run the same command in the background, and wait until its cluster runs."""
    from bolide.cluster.data_directory import DataDirectory  # noqa: PLC0415

    directory = DataDirectory(data)
    directory.acquire_for_start()  # before the log of another cluster is emptied
    words = [word for word in sys.argv[1:] if word != "--detach"]
    with directory.passed_on() as (lock, environment), (data / _LOG).open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  our own command line
            [sys.executable, "-P", "-m", "bolide", *words],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            env=environment, pass_fds=[lock],
        )  # fmt: skip
    try:
        _wait_until_up(data, process)
    except BaseException:
        _end(data, process)
        print(_end_of_log(data), file=sys.stderr)
        raise
    status(data, as_json=False)


def _wait_until_up(data: Path, process: "subprocess.Popen[bytes]") -> None:
    from bolide.cluster.data_directory import read_state  # noqa: PLC0415

    deadline = time.monotonic() + _DETACH_WITHIN
    while (state := read_state(data)) is None or state.is_starting:
        if process.poll() is not None:
            raise typer.Exit(FAILED)  # the end of its log says why
        if time.monotonic() > deadline:
            raise ConfigError(
                f"the cluster did not run within {_DETACH_WITHIN:g} s, and was ended; see"
                f" {data / _LOG}"
            )
        time.sleep(0.05)


def _end(data: Path, process: "subprocess.Popen[bytes]") -> None:
    """End a process of `up` with its members, by force if it takes too long."""
    from bolide.cluster.control import NotRunning, take_down  # noqa: PLC0415

    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(NotRunning):
        asyncio.run(take_down(data))


def _end_of_log(data: Path) -> str:
    text = (data / _LOG).read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-_SHOWN_LINES:])


def _group_documents(
    state: "ClusterState", groups: dict[str, dict[int, str]] | None
) -> list[dict[str, Any]]:
    """For each broker group: its master as the NameServers know it, None if unknown."""
    known = groups or {}
    planned = {member.group for member in state.members if member.group}
    # The groups of workers are named after the broker that runs them.
    split = {each for each in planned - known.keys() if f"{each}-0" in known}
    documents = []
    for name in sorted((planned - split) | known.keys()):
        address = known.get(name, {}).get(0)
        documents.append({"group": name, "master": address, "member": _member_at(state, address)})
    return documents


def _member_at(state: "ClusterState", address: str | None) -> str | None:
    """The member that serves an address, by itself or by one of its workers."""
    if address is None:
        return None
    from bolide.cluster.plan import BROKER_PORT_STEP, WORKER_PORT_STEP  # noqa: PLC0415

    host, port = split_address(address)
    for member in state.members:
        own_host, own_port = split_address(member.address)
        workers = range(own_port, own_port + BROKER_PORT_STEP, WORKER_PORT_STEP)
        if member.group and host == own_host and port in workers:
            return member.name
    return None


def _print_status(state: "ClusterState", groups: dict[str, dict[int, str]] | None) -> None:
    from bolide.cli.tables import Table  # noqa: PLC0415
    from bolide.cluster.control import uptime  # noqa: PLC0415

    table = Table("Member", "Role", "Address", "Pid", "Uptime", "State", "Directory")
    for member in state.members:
        seconds = uptime(member)
        table.add(
            member.name, member.role, member.address, member.pid or "-",
            "-" if seconds is None else f"{seconds:.0f} s", _state_text(member), member.directory,
        )  # fmt: skip
    table.print()
    planned = {member.group for member in state.members}
    for each in _group_documents(state, groups):
        group, master = each["group"], each["member"] or each["master"] or "unknown"
        if group not in planned:
            broker, _, worker = group.rpartition("-")
            group = f"worker {worker} of {broker}"
        print(f"Master of {group}: {master}")


def _state_text(member: "MemberState") -> str:
    """All that was done to a member and not undone: it may be paused, cut and slow at once."""
    shown = [member.state] if member.state in {"dead", "paused"} else []
    if member.cut_from:
        ends = (
            name if direction == "both" else f"{name} ({direction})"
            for name, direction in member.cut_from.items()
        )
        shown.append(f"cut from {', '.join(ends)}")
    if member.is_slow:
        shown.append("slow")
    return ", ".join(shown) or "alive"
