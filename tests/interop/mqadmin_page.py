"""`python -m tests.interop.mqadmin_page`: the table of what each command of mqadmin shows.

It runs all cases, and prints the page if they are as the table says. With `--write` the page
becomes docs/mqadmin-comparison.md.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bolide.version import __version__
from tests.interop import apache
from tests.interop.bench import Bench
from tests.interop.mqadmin_cases import (
    CASES,
    LEFT_OUT,
    NEW,
    NOTES,
    OLD,
    OLD_NAMES,
    OWN,
    Case,
    Place,
    cases,
)
from tests.interop.mqadmin_runs import VERSIONS, disagreement, disagreement_of_ours, run_all

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "mqadmin-comparison.md"

SAME, DIFFERS, ABSENT = "same", "differs", "\N{EN DASH}"
INTRODUCTION = """# Java's mqadmin with our brokers

Every command of RocketMQ's `mqadmin`, {old} and {new}, was run against a cluster of
Bolide {own} and against one of Apache RocketMQ {new} with the same messages, groups and clients.
*same* means that it printed the same of both, but for addresses, times, ids and rates; of settings
and figures ours show more. Where it differs, the note says why. A command is run several times,
also with names that do not exist; most command lines are the same for {old}.
Commands of accounts ran against a broker of 4.9.7, the last that had them.

Our `mqadmin` ran the same command lines against both clusters. *same* means that it showed the same
of both, did or refused what Java's did or refused, and printed each title and name that Java's
printed, but for what the notes say.

{counts}

The tests repeat the comparison: `tests/interop/test_mqadmin.py`, and for controllers and accounts
`make test-long`. This page was written by `python -m tests.interop.mqadmin_page --write` on
{date}, of commit {commit}.

| Command | {old} | {new} | Our `mqadmin` | Notes |
| --- | :-: | :-: | :-: | --- |
"""


def rows() -> list[str]:
    """One line of the table for each command, as the cases say."""
    by_name: dict[str, list[Case]] = {}
    for case in CASES:
        by_name.setdefault(case.command, []).append(case)
    return [_row(name, by_name[name]) for name in sorted(by_name, key=str.lower)]


def _row(name: str, of: Iterable[Case]) -> str:
    of = list(of)
    cells = [_outcome(of, OLD), _outcome(of, NEW), _outcome_of_ours(of)]
    notes = [case.differs for case in of] + [case.old_fails for case in of]
    left_out = LEFT_OUT.get(name, ("", ""))[1]
    own = [left_out] + [case.ours for case in of]
    notes += [note and f"our `mqadmin`: {note}" for note in own] + [NOTES.get(name, "")]
    text = ". ".join(_capital(note) for note in dict.fromkeys(notes) if note)
    return f"| `{name}` | {' | '.join(cells)} | {text} |"


def _outcome(of: Iterable[Case], version: str) -> str:
    run = [case for case in of if case.words_for(version)]
    if not run:
        return ABSENT
    is_same = not any(case.differs or (version == OLD and case.old_fails) for case in run)
    return SAME if is_same else DIFFERS


def _outcome_of_ours(of: Iterable[Case]) -> str:
    reasons = [case.ours for case in of if case.ours]
    if any(reason.startswith("not applicable") for reason in reasons):
        return "not applicable"
    return DIFFERS if reasons else SAME


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _counts(lines: Iterable[str]) -> str:
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    new = [line[2] for line in cells]
    return (
        f"{len(cells)} commands, {len(OLD_NAMES)} of them in 4.9.8 and"
        f" {len(new) - new.count(ABSENT)} in 5.5.0."
        f" Of those of 5.5.0 {new.count(SAME)} print the same in every case,"
        f" {new.count(DIFFERS)} differ in one or more."
    )


def page() -> str:
    """The page of now."""
    releases = apache.releases()
    git = ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"]
    lines = rows()
    return INTRODUCTION.format(
        old=releases[releases[OLD].client].version,
        new=releases[NEW].version,
        own=__version__,
        counts=_counts(lines),
        date=datetime.now(UTC).date(),
        commit=subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip(),
    ) + "".join(f"{line}\n" for line in lines)


def disagreements() -> Iterator[str]:
    """Run everything, and tell what is not as the table says."""
    with tempfile.TemporaryDirectory() as directory, Bench(Path(directory) / "java") as bench:
        for place in Place:
            twins = run_all(place, bench, Path(directory) / place.name)
            found = {
                (version, case): disagreement(twins, version, case)
                for version in VERSIONS
                for case in cases(place, version)
            } | {(OWN, case): disagreement_of_ours(twins, case) for case in cases(place, OWN)}
            yield from (
                f"{who} {case.words}: {text}" for (who, case), text in found.items() if text
            )


def main(words: Iterable[str]) -> None:
    found = list(disagreements())
    if found:
        sys.exit("\n".join(found))
    if "--write" in words:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())


if __name__ == "__main__":
    main(sys.argv[1:])
