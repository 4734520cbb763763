"""`bolide chaos run|failover|loss`: faults under load against a local cluster."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from bolide.cli.command_line import FAILED, ExitOnError, SettingWords, parse_settings
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bolide.chaos.report import Circumstances
    from bolide.chaos.target import LocalTarget
    from bolide.cluster.plan import ClusterOptions

T = TypeVar("T")

_SETTINGS = {
    "mappedFileSizeCommitLog": str(4 * 1024 * 1024),  # a full disk is noticed at the next file
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
    "transactionCheckMax": "1000",
}

Mode = Annotated[
    str,
    typer.Option(
        help="single: masters alone; async, sync: with slaves; controller: with failover."
    ),
]
Brokers = Annotated[int | None, typer.Option(help="Broker groups; 2 in mode single, else 1.")]
Replicas = Annotated[
    int | None,
    typer.Option(help="Members of each group: 1 in mode single, 3 in mode controller, else 2."),
]
Namesrvs = Annotated[int | None, typer.Option(help="NameServers; 3 in mode controller, else 2.")]
Controllers = Annotated[
    int | None, typer.Option(help="Controllers; 3 in mode controller, else none.")
]
NetworkKind = Annotated[
    str,
    typer.Option(help="auto, proxy, namespaces or plain; auto is namespaces where they work."),
]
Data = Annotated[
    Path | None, typer.Option(help="Directory of the cluster; by default a temporary one.")
]
Keep = Annotated[bool, typer.Option(help="Keep the directory, also after a good run.")]
Report = Annotated[Path | None, typer.Option(help="File for the report in Markdown.")]
BasePort = Annotated[int, typer.Option(help="Port of the first NameServer.")]

_MODE, _NETWORK, _BASE_PORT = "single", "auto", 21876


@dataclass(frozen=True, slots=True)
class _Shape:
    """The size of the cluster of a mode."""

    brokers: int
    replicas: int
    namesrvs: int
    controllers: int


_SHAPES = {
    "single": _Shape(2, 1, 2, 0),
    "async": _Shape(1, 2, 2, 0),
    "sync": _Shape(1, 2, 2, 0),
    "controller": _Shape(1, 3, 3, 3),
}


_BOUNDS = {
    "single": {"replicas": (1, 1), "controllers": (0, 0)},
    "async": {"replicas": (2, 9), "controllers": (0, 0)},
    "sync": {"replicas": (2, 9), "controllers": (0, 0)},
    "controller": {"replicas": (2, 9), "controllers": (1, 9)},
}
"""What a mode must have, so that it is what its name says."""


def run(
    settings: SettingWords = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; one fault in each.")] = 10,
    minutes: Annotated[
        float, typer.Option(min=0, help="Rounds until so many minutes have passed instead.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same faults.")] = 1,
    nemesis: Annotated[
        list[str] | None,
        typer.Option(help="A kind of fault; may be repeated. By default all that are possible."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="A kind of workload; may be repeated. By default all."),
    ] = None,
    mode: Mode = _MODE,
    brokers: Brokers = None,
    replicas: Replicas = None,
    namesrvs: Namesrvs = None,
    controllers: Controllers = None,
    network: NetworkKind = _NETWORK,
    allow_loss: Annotated[
        bool, typer.Option(help="Count lost messages without failing; so do modes that allow it.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="File for the report in Markdown; the timeline is beside it."),
    ] = None,
    data: Data = None,
    base_port: BasePort = _BASE_PORT,
    keep: Keep = False,
) -> None:
    """Inject faults under load, and check that no promise is broken.

    Exit code 1: an acknowledged message was lost, a message was delivered that nobody sent, or
    again long after, an order was broken, a timer was early or much too late, a dedup key was
    stored twice, service did not come back, a member did not start again (this ends the rounds), or
    a queue could not be read in the end.

    Settings are those of a broker.conf, such as flushDiskType=SYNC_FLUSH.
    """
    from bolide.chaos.history import Kind  # noqa: PLC0415
    from bolide.chaos.report import run_report, sentence, write_report  # noqa: PLC0415
    from bolide.chaos.run import RunOptions, run_rounds  # noqa: PLC0415
    from bolide.chaos.workload import WorkloadOptions  # noqa: PLC0415

    with ExitOnError(OSError), _directory(data, keep=keep) as work:
        _check_report(report)
        shape = _shape(mode, brokers, replicas, namesrvs, controllers)
        chosen = _SETTINGS | parse_settings(settings)
        cluster = _cluster(shape, mode, network, base_port, chosen, work.path)
        options = RunOptions(
            seed=seed, rounds=rounds, minutes=minutes, nemeses=tuple(nemesis or ()),
            is_loss_allowed=allow_loss or _allows_loss(mode, chosen),
            workload=WorkloadOptions(kinds=_kinds(kind or [], list(Kind))),
        )  # fmt: skip
        result = _with_cluster(
            cluster, lambda target: run_rounds(target, options, _emit, work.path / "history.jsonl")
        )
        where = _circumstances(mode, cluster, {"Seed": str(seed)})
        if report:
            write_report(result, where, report)
            print(f"{sentence(result)} The report is {report}.")
        else:
            print(run_report(result, where, ""))
        work.is_good = result.verdict.is_good
    for line in result.verdict.violations:
        print(line, file=sys.stderr)
    if not work.is_good:
        raise typer.Exit(FAILED)


def failover(
    settings: SettingWords = None,
    fault: Annotated[
        str, typer.Option(help="kill, kill-leaders (the leading controller too), pause or cut.")
    ] = "kill",
    rounds: Annotated[int, typer.Option(min=1, help="Failovers.")] = 20,
    replicas: Replicas = None,
    namesrvs: Namesrvs = None,
    controllers: Controllers = None,
    network: NetworkKind = _NETWORK,
    report: Report = None,
    data: Data = None,
    base_port: BasePort = _BASE_PORT,
    keep: Keep = False,
) -> None:
    """Measure how long a broker group cannot be written to when its master fails.

    Exit code 1: a round had no new master, or the old master acknowledged a send after that.
    """
    from bolide.chaos.failover import FailoverOptions, measure_failover  # noqa: PLC0415

    with ExitOnError(OSError), _directory(data, keep=keep) as work:
        _check_report(report)
        mode = "controller"
        shape = _shape(mode, 1, replicas, namesrvs, controllers)
        cluster = _cluster(shape, mode, network, base_port, parse_settings(settings), work.path)
        options = FailoverOptions(fault=fault, rounds=rounds)
        result = _with_cluster(cluster, lambda target: measure_failover(target, options, _emit))
        page = result.report(_circumstances(mode, cluster, {"Fault": fault}))
        if report:
            report.write_text(page, encoding="utf-8")
        print(result.summary() if report else page)
        work.is_good = result.is_good
    if not work.is_good:
        raise typer.Exit(FAILED)


def loss(
    settings: SettingWords = None,
    mode: Annotated[
        str, typer.Option(help="async, sync: a master and a slave; controller: with failover.")
    ] = "async",
    rounds: Annotated[int, typer.Option(min=1, help="Losses of the master.")] = 20,
    senders: Annotated[int, typer.Option(min=1, help="Senders, each with one send at once.")] = 16,
    size: Annotated[int, typer.Option(min=1, help="Bytes of a message.")] = 1024,
    ahead: Annotated[
        float, typer.Option(min=0, help="Seconds for which the slaves are cut off before that.")
    ] = 0.0,
    network: NetworkKind = _NETWORK,
    report: Report = None,
    data: Data = None,
    base_port: BasePort = _BASE_PORT,
    keep: Keep = False,
) -> None:
    """Measure what a master has acknowledged and the others lack when its machine is lost.

    The links of the master are cut at one moment under load, and it is killed. Only sends that were
    answered with SEND_OK count as acknowledged.

    Exit code 1: something was lost in mode sync, or in mode controller without
    allAckInSyncStateSet=false; or nothing was acknowledged.
    """
    from bolide.chaos.loss import LossOptions, measure_loss  # noqa: PLC0415

    with ExitOnError(OSError), _directory(data, keep=keep) as work:
        _check_report(report)
        shape = _shape(mode, None, None, None, None)
        if mode == "single":
            raise ConfigError("--mode single: a master without slaves loses all; take another mode")
        chosen = parse_settings(settings)
        cluster = _cluster(shape, mode, network, base_port, chosen, work.path)
        options = LossOptions(
            rounds=rounds, senders=senders, size=size, ahead=ahead,
            is_loss_allowed=_allows_loss(mode, chosen),
        )  # fmt: skip
        result = _with_cluster(cluster, lambda target: measure_loss(target, options, _emit))
        load = {"Load": f"{senders} senders, messages of {size} bytes"}
        if ahead:
            load["Slaves cut off"] = f"{ahead:g} s before the master"
        page = result.report(_circumstances(mode, cluster, load))
        if report:
            report.write_text(page, encoding="utf-8")
        print(result.summary() if report else page)
        work.is_good = result.is_good
    if not work.is_good:
        raise typer.Exit(FAILED)


def _allows_loss(mode: str, settings: dict[str, str]) -> bool:
    """Whether a failover may lose what was acknowledged."""
    is_weak = settings.get("allAckInSyncStateSet", "true").lower() == "false"
    return mode == "async" or (mode == "controller" and is_weak)


@dataclass(slots=True)
class _Work:
    path: Path
    is_good: bool = False


@contextmanager
def _directory(given: Path | None, *, keep: bool) -> "Iterator[_Work]":
    """The directory of a run; a temporary one is removed after a good run."""
    work = _Work(given or Path(tempfile.mkdtemp(prefix="bolide-chaos-")))
    work.path.mkdir(parents=True, exist_ok=True)
    is_refused = False
    try:
        yield work
    except ConfigError:
        is_refused = True
        raise
    finally:
        if is_refused and not given:
            shutil.rmtree(work.path, ignore_errors=True)
        elif given or keep or not work.is_good:
            print(f"files of the run: {work.path}", file=sys.stderr)
        else:
            shutil.rmtree(work.path, ignore_errors=True)


def _check_report(file: Path | None) -> None:
    """Refuse a file that cannot be written before a run of many minutes. Raises OSError."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()


def _shape(mode: str, *given: int | None) -> _Shape:
    if mode not in _SHAPES:
        raise ConfigError(f"--mode {mode}: must be one of {', '.join(_SHAPES)}")
    names = ("brokers", "replicas", "namesrvs", "controllers")
    chosen = {name: value for name, value in zip(names, given, strict=True) if value is not None}
    shape = replace(_SHAPES[mode], **chosen)
    for name, (least, most) in _BOUNDS[mode].items():
        if not least <= (value := getattr(shape, name)) <= most:
            bound = f"{least}" if least == most else f"between {least} and {most}"
            raise ConfigError(f"--{name} {value}: must be {bound} with --mode {mode}")
    return shape


def _cluster(
    shape: _Shape, mode: str, network: str, base_port: int, settings: dict[str, str], data: Path
) -> "ClusterOptions":
    from bolide.cluster.plan import ClusterOptions  # noqa: PLC0415

    return ClusterOptions(
        brokers=shape.brokers, replicas=shape.replicas, namesrvs=shape.namesrvs,
        controllers=shape.controllers, asynchronous=mode == "async", data=data,
        base_port=base_port, network=_network(network, shape), settings=settings,
    )  # fmt: skip


def _network(kind: str, shape: _Shape) -> str:
    """Namespaces where they work: their partitions are real ones."""
    from importlib.util import find_spec  # noqa: PLC0415

    from bolide.cluster.network import why_no_namespaces  # noqa: PLC0415

    if kind != "auto":
        return kind
    # Off loopback, controllers encrypt their connections.
    can_encrypt = not shape.controllers or find_spec("cryptography") is not None
    if can_encrypt and not why_no_namespaces():
        return "namespaces"
    return "proxy" if sys.platform == "linux" else "plain"


def _with_cluster(options: "ClusterOptions", measure: "Callable[[LocalTarget], Awaitable[T]]") -> T:
    """Run a measurement against a new cluster."""
    from bolide import logs  # noqa: PLC0415
    from bolide.chaos.target import LocalTarget  # noqa: PLC0415

    async def with_cluster() -> T:
        target = LocalTarget(options)
        async with target.cluster:
            return await measure(target)

    # The clients log every failed request; that belongs beside the logs of the members.
    with (options.data / "clients.log").open("w", encoding="utf-8") as output:
        logs.configure(logs.LogConfig(level=logs.LogLevel.INFO), console=output)
        try:
            return asyncio.run(with_cluster())
        finally:
            logs.shutdown()


def _circumstances(mode: str, cluster: "ClusterOptions", more: dict[str, str]) -> "Circumstances":
    from bolide.chaos.report import Circumstances  # noqa: PLC0415

    size = (
        f"{cluster.brokers} x {cluster.replicas} brokers, {cluster.namesrvs} NameServers,"
        f" {cluster.controllers} controllers, network {cluster.network}"
    )
    shown = " ".join(f"{key}={value}" for key, value in cluster.settings.items())
    return Circumstances.here({"Mode": mode, "Cluster": size, "Settings": shown, **more})


def _kinds(chosen: list[str], known: list[T]) -> tuple[T, ...]:
    by_name = {str(each): each for each in known}
    for name in chosen:
        if name not in by_name:
            raise ConfigError(f"--kind {name}: must be one of {', '.join(by_name)}")
    return tuple(by_name[name] for name in chosen) or tuple(known)


def _emit(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
