"""`bolide doctor`: examine a cluster and this machine, and say what is wrong."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from bolide.cli.admin.times import check_seconds
from bolide.cli.command_line import FAILED, UNREACHABLE
from bolide.cli.documents import (
    Format,
    JsonFlag,
    Output,
    chosen_format,
    documents_in,
    print_document,
)

if TYPE_CHECKING:
    from bolide.doctor import Finding, Limits, Report, Severity


def doctor(
    name_server: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrvAddr",
            help="NameServers, host:port;host:port; by default from NAMESRV_ADDR.",
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", help="Only the brokers of this cluster.")
    ] = None,
    within: Annotated[
        float,
        typer.Option(
            "--within",
            min=1,
            callback=check_seconds,
            help="Seconds after which groups are left out.",
        ),
    ] = 8.0,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.1, callback=check_seconds, help="Seconds to wait for one answer."
        ),
    ] = 2.0,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="List what is in order, too.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    output: Output = None,
    as_json: JsonFlag = False,
) -> None:
    """Examine a cluster from here: what is wrong, why it matters, and what mends it.

    Nothing is changed. Exit codes: 0 no error was found (there may be warnings), 1 an error was
    found, or a warning with --strict, 2 usage error, 3 no server answers.
    """
    wanted = chosen_format(output, as_json)
    from bolide.doctor import Limits, Severity  # noqa: PLC0415

    report = _examine(name_server, cluster, Limits(answer=timeout, total=within))
    if wanted is None:
        _print(report, everything)
    else:
        rows = [
            {
                "severity": str(each.severity), "id": each.id, "subject": each.subject,
                "measured": each.measured, "why": each.why, "command": each.command,
            }
            for each in report.findings
        ]  # fmt: skip
        counts = {str(severity): count for severity, count in report.counts.items()}
        document = {
            "reachable": report.is_reachable, "seconds": report.seconds, "counts": counts,
            "findings": rows,
        }  # fmt: skip
        with documents_in(wanted):
            print_document(rows if wanted is Format.CSV else document)
    if not report.is_reachable:
        raise typer.Exit(UNREACHABLE)
    if report.of(Severity.ERROR) or (strict and report.of(Severity.WARNING)):
        raise typer.Exit(FAILED)


def _examine(name_server: str | None, cluster: str | None, limits: "Limits") -> "Report":
    from bolide.admin import AdminClient, BadAddress, NoNameServer  # noqa: PLC0415
    from bolide.cli.admin.credentials import own_credentials  # noqa: PLC0415
    from bolide.cli.command_line import fail  # noqa: PLC0415
    from bolide.cli.tls_options import chosen_tls  # noqa: PLC0415
    from bolide.doctor import examine  # noqa: PLC0415
    from bolide.errors import BolideError  # noqa: PLC0415

    async def run() -> "Report":
        access_key, secret_key = own_credentials()
        async with AdminClient(
            name_server,
            timeout=limits.answer,
            access_key=access_key,
            secret_key=secret_key,
            tls=chosen_tls(),
        ) as admin:
            if not admin.name_servers.addresses:
                raise NoNameServer
            return await examine(admin, cluster=cluster, limits=limits)

    try:
        return asyncio.run(run())
    except (NoNameServer, BadAddress) as exc:
        raise typer.BadParameter(str(exc)) from exc
    except BolideError as exc:
        fail(str(exc), FAILED)


def _print(report: "Report", everything: bool) -> None:
    if sys.stdout.isatty():
        _print_styled(report, everything)
    else:
        _print_plain(report, everything)


def _print_plain(report: "Report", everything: bool) -> None:
    for severity, findings in _groups(report, everything):
        print(f"{str(severity).upper()} ({len(findings)})")
        for each in findings:
            for line in _lines(each):
                print(f"  {line}")
        print()
    print(_summary(report, everything))


def _print_styled(report: "Report", everything: bool) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.padding import Padding  # noqa: PLC0415

    styles = {
        "error": "bold red", "warning": "yellow", "unknown": "magenta", "note": "cyan",
        "ok": "green",
    }  # fmt: skip
    console = Console(highlight=False)
    for severity, findings in _groups(report, everything):
        style = styles[severity]
        console.print(f"[{style}]{str(severity).upper()}[/] ({len(findings)})")
        for each in findings:
            title, *rest = _lines(each)
            name, _, told = title.partition("  ")
            console.print(Padding(f"[{style}]{escape(name)}[/]  {escape(told)}", (0, 0, 0, 2)))
            for line in rest:
                text = escape(line.strip())
                if text.startswith("$"):  # on one line, so that it can be copied
                    console.print(f"    [bold]{text}[/]", soft_wrap=True)
                else:
                    console.print(Padding(f"[dim]{text}[/]", (0, 0, 0, 4)))
        console.print()
    console.print(escape(_summary(report, everything)))


def _groups(report: "Report", everything: bool) -> "list[tuple[Severity, list[Finding]]]":
    from bolide.doctor import Severity  # noqa: PLC0415

    shown = [each for each in Severity if everything or each is not Severity.OK]
    return [(severity, found) for severity in shown if (found := report.of(severity))]


def _lines(finding: "Finding") -> list[str]:
    from bolide.logs import one_line  # noqa: PLC0415

    lines = [f"{finding.id}  {finding.subject}: {finding.measured}"]
    if finding.why:
        lines.append(f"    {finding.why}")
    if finding.command:
        lines.append(f"    $ {finding.command}")
    return [one_line(line) for line in lines]


def _summary(report: "Report", everything: bool) -> str:
    counts = {str(severity): count for severity, count in report.counts.items()}
    parts = ", ".join(
        f"{count} {name}" + ("s" if count != 1 and name in {"error", "warning", "note"} else "")
        for name, count in counts.items()
    )
    more = "" if everything or not counts["ok"] else " (--all lists what is in order)"
    found = f"{parts} in {report.seconds:.1f} s{more}."
    return found if report.is_reachable else f"No server answers. {found}"
