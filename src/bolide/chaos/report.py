"""The report of a run in Markdown: where and how it ran, what was found, and a timeline."""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bolide.chaos.checker import OUTAGE, KindResult
from bolide.chaos.history import Fault
from bolide.chaos.run import RunResult
from bolide.chaos.timeline import failovers, timeline_svg
from bolide.version import __version__

_MEANING = """\
Lost is what was acknowledged and was never delivered, or is not where the acknowledgement said when
all queues are read in the end. Time without service is the time in gaps of more than {:g} s between
two acknowledged sends of one kind. Copies are further places of a message: by a retry of the
sender, or by a new master that finished a timer or a transaction once more. Redelivered are further
deliveries of a stored message; replayed, those that come too long after the first to be explained
by a commit that was lost."""
_LEGEND = """\
Green: acknowledged sends per second. Red: failed sends. Shaded, and bars below: faults. Dashed: a
new master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Where, when and of what a run was made."""

    date: str
    machine: str
    python: str
    commit: str
    settings: dict[str, str] = field(default_factory=dict)
    """Options of the run, as shown."""

    @classmethod
    def here(cls, settings: dict[str, str]) -> "Circumstances":
        return cls(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            machine=f"{_processor()}, {os.cpu_count()} cores, {platform.system()}"
            f" {platform.release()}",
            python=platform.python_version(),
            commit=commit(),
            settings=settings,
        )

    def lines(self) -> list[str]:
        rows = {
            "Date": self.date, "Machine": self.machine, "Python": self.python,
            "Commit": self.commit, **self.settings,
        }  # fmt: skip
        return table_lines(("", ""), list(rows.items()))


def commit() -> str:
    """The commit of the checkout that runs, or the version of the package."""
    git = shutil.which("git")
    if git is None:
        return f"version {__version__}"
    here = Path(__file__).parent
    try:
        found = subprocess.run(  # noqa: S603  no words from outside
            [git, "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return f"version {__version__}"
    return found.stdout.strip()


def run_report(result: RunResult, where: Circumstances, picture: str) -> str:
    """The page of a run.

    Args:
        picture: the name of the timeline, beside the page; empty if there is none.
    """
    verdict = result.verdict
    faults = result.history.faults
    lines = ["# Fault bench", "", *where.lines(), ""]
    lines += [f"{len(faults)} rounds in {result.seconds:.0f} s. {sentence(result)}", ""]
    if not result.is_drained:
        lines += ["After the last round some deliveries did not come in time.", ""]
    if verdict.violations:
        lines += ["## Broken promises", ""]
        lines += [f"- {each}" for each in verdict.violations] + [""]
    lines += ["## Messages", "", *kinds_table(list(verdict.kinds.values())), ""]
    lines += [_MEANING.format(OUTAGE), ""]
    lines += ["## Faults", "", *nemesis_table(faults), ""]
    changes = failovers(result.history.masters)
    lines += [f"{len(changes)} changes of a master were seen.", ""]
    if picture:
        lines += ["## Timeline", "", f"![Timeline of the run]({picture})", "", _LEGEND, ""]
    lines += ["## Rounds", "", *_rounds_table(faults), ""]
    return "\n".join(lines)


def write_report(result: RunResult, where: Circumstances, file: Path) -> None:
    """Write the page and its picture."""
    picture = file.with_suffix(".svg")
    title = ", ".join(f"{key} {value}" for key, value in where.settings.items())
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(timeline_svg(result.history, title), encoding="utf-8")
    file.write_text(run_report(result, where, picture.name), encoding="utf-8")


def sentence(result: RunResult) -> str:
    verdict = result.verdict
    acknowledged = sum(each.acknowledged for each in verdict.kinds.values())
    allowed = " (this mode allows it)" if verdict.is_loss_allowed and verdict.lost else ""
    text = f"Of {acknowledged} acknowledged messages {verdict.lost} were lost{allowed}."
    return text + (" All promises were kept." if verdict.is_good else " **Promises were broken.**")


def kinds_table(kinds: Sequence[KindResult]) -> list[str]:
    titles = (
        "Kind", "Sent", "Acknowledged", "Weak", "Unknown", "Rolled back", "Delivered", "Lost",
        "Never sent", "Out of order", "Stored twice", "Early", "Late", "Replayed", "Copies",
        "Redelivered",
        "Longest gap (s)", "Without service (s)",
    )  # fmt: skip
    rows = [
        (
            each.kind.value, each.sent, each.acknowledged, each.weak, each.unknown,
            each.rolled_back, each.delivered, len(each.lost),
            len(each.phantom) + len(each.kept_phantom), len(each.reordered),
            len(each.stored_twice), len(each.early), len(each.late), len(each.replayed),
            each.copies, each.redelivered, f"{each.longest_gap:.1f}", f"{each.total_gaps:.1f}",
        )
        for each in kinds
    ]  # fmt: skip
    return table_lines(titles, rows)


def nemesis_table(faults: Sequence[Fault]) -> list[str]:
    by_name: dict[str, list[Fault]] = {}
    for fault in faults:
        name = "several" if "+" in fault.nemesis else fault.nemesis
        by_name.setdefault(name, []).append(fault)
    rows = []
    for name, found in sorted(by_name.items()):
        back = [each.back_after for each in found if each.back_after is not None]
        rows.append((
            name, len(found), f"{median(back):.2f}" if back else "-",
            f"{max(back):.2f}" if back else "-", len(found) - len(back),
        ))  # fmt: skip
    return table_lines(
        ("Nemesis", "Rounds", "Back after, median (s)", "Worst (s)", "Not back in time"), rows
    )


def _rounds_table(faults: Sequence[Fault]) -> list[str]:
    rows = [
        (
            each.round, each.nemesis, ", ".join(each.targets), f"{each.began:.1f}",
            f"{each.ended - each.began:.1f}",
            _back(each),
        )
        for each in faults
    ]  # fmt: skip
    return table_lines(("Round", "Nemesis", "Targets", "At (s)", "For (s)", "Back after (s)"), rows)


def _back(fault: Fault) -> str:
    if fault.error:
        return "ended by an error"
    return "not in time" if fault.back_after is None else f"{fault.back_after:.2f}"


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [titles, ["---"] * len(titles), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
