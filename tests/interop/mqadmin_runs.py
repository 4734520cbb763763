"""Java's mqadmin and ours, run over both clusters; are the outcomes what the cases say?"""

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bolide.cli.command_line import NOT_APPLICABLE
from tests.interop.bench import Bench
from tests.interop.mqadmin_cases import (
    APACHE,
    LEFT_OUT,
    NEW,
    OLD,
    OURS,
    OWN,
    Case,
    Compare,
    Place,
)
from tests.interop.mqadmin_clusters import Cluster, Outcome, cluster, content, run, settle
from tests.interop.mqadmin_comparison import difference, keys

VERSIONS = (NEW, OLD)
TURNS = dict.fromkeys(Place, (*VERSIONS, OWN)) | {
    # Java's clients stay on Apache's broker for a while: who is connected must be the same.
    Place.PLAIN: (OWN, *VERSIONS)
}
Outcomes = Mapping[str, Mapping[Case, Outcome]]
"""The outcome of each case by who ran it."""


@dataclass(frozen=True)
class Twins:
    """What was printed of our cluster and of Apache's."""

    ours: Outcomes
    apache: Outcomes


def run_all(place: Place, bench: Bench, directory: Path) -> Twins:
    """Run the cases of a place on both clusters at once."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        starts = [cluster(place, kind, bench, directory / kind) for kind in (OURS, APACHE)]
        clusters = list(pool.map(stack.enter_context, starts))
        return Twins(*pool.map(lambda each: asyncio.run(_run_on(each)), clusters))


async def _run_on(of: Cluster) -> Outcomes:
    """Run the cases while clients of ours are connected."""
    outcomes: dict[str, dict[Case, Outcome]] = {}
    async with content(of) as facts:
        for who in TURNS[of.place]:
            await settle(of)
            outcomes[who] = await asyncio.to_thread(run, of, who, facts)
    return outcomes


def disagreement(twins: Twins, version: str, case: Case) -> str:
    """What Java's mqadmin shows of the clusters otherwise than the case says; empty if nothing."""
    ours, apache = twins.ours[version][case].text, twins.apache[version][case].text
    if not re.search(case.shows, ours, re.MULTILINE):
        return f"{case.shows!r} is not in:\n{ours}"
    if version == OLD and case.old_fails:
        fails = "Exception" in apache and "Exception" not in ours
        return "" if fails else f"it does not fail over Apache's alone:\n{apache}\n{ours}"
    differing = difference(case, ours, apache)
    if case.differs and not case.lacks:
        return "" if differing else f"there is no difference any more: {case.differs}"
    if not differing and bool(apache) == case.silent:
        return f"it prints: {apache!r}"
    return differing


def disagreement_of_ours(twins: Twins, case: Case) -> str:
    """What our mqadmin does otherwise on one of the clusters, or than Java's; empty if nothing."""
    java = NEW if case.words_for(NEW) else OLD
    for outcomes in (twins.ours, twins.apache):
        found = _otherwise(case, outcomes[OWN][case], outcomes[java][case])
        if found:
            return f"{found}:\n{outcomes[OWN][case].text}\n{outcomes[java][case].text}"
    ours, apache = twins.ours[OWN][case], twins.apache[OWN][case]
    if case.differs:
        return ""
    if ours.is_done != apache.is_done:
        return f"it ends otherwise over Apache's:\n{ours.text}\n{apache.text}"
    return difference(case, ours.text, apache.text) if ours.is_done else ""


def _otherwise(case: Case, own: Outcome, theirs: Outcome) -> str:
    """What ours does otherwise than Java's over the same cluster."""
    if own.trouble or "Traceback" in own.text or not own.text:
        return own.trouble or "it prints nothing to the point"
    if (own.exit_code == NOT_APPLICABLE) != case.ours.startswith("not applicable"):
        return f"it ends with exit code {own.exit_code}"
    if not case.ours and own.is_done != theirs.is_done:
        return "Java's ends otherwise"
    unprinted = _unprinted(case, own, theirs) if own.is_done and not case.differs else set()
    return f"it does not print {sorted(unprinted)}" if unprinted else ""


def _unprinted(case: Case, own: Outcome, theirs: Outcome) -> set[str]:
    """Words of Java's that ours leaves out without a reason."""
    if case.place is not Place.PLAIN:  # where an election has changed what there is to see
        return set()
    found = keys if case.compare is Compare.KEYS else words
    left_out, _ = LEFT_OUT.get(case.command, ("", ""))
    missing = found(theirs.text) - found(own.text)
    return {word for word in missing if not re.fullmatch(left_out, word)}


def words(text: str) -> set[str]:
    """Titles, names and other words of an output, without figures."""
    named = re.sub(r"(?<=Static-)(\w+-?\w)(?=-<ms>|\b)", "<me>", text)
    return set(re.findall(r"[A-Za-z_%<][\w.%>-]*", named))
