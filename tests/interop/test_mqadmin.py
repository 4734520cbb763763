"""Java's mqadmin, 4.9.8 and 5.5.0: every command shows of our cluster what it shows of Apache's.

The commands are in `mqadmin_cases`, with the reason where something differs. Both clusters hold the
same messages and have the same clients connected.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.bench import Bench
from tests.interop.conftest import obtain_or_skip
from tests.interop.mqadmin import run_commands
from tests.interop.mqadmin_cases import (
    APACHE,
    CASES,
    NEW,
    OLD,
    OURS,
    OWN,
    Case,
    Place,
    cases,
)
from tests.interop.mqadmin_clusters import Cluster, Outcome, cluster, content, run, settle
from tests.interop.mqadmin_comparison import difference

VERSIONS = (NEW, OLD)
TURNS = dict.fromkeys(Place, (*VERSIONS, OWN)) | {
    # Java's clients stay on Apache's broker for a while: who is connected must be the same.
    Place.PLAIN: (OWN, *VERSIONS)
}
Printed = Mapping[str, Mapping[Case, Outcome]]
"""The outcome of each case by who ran it."""


@dataclass(frozen=True)
class Twins:
    """What was printed of our cluster and of Apache's."""

    ours: Printed
    apache: Printed


@pytest.fixture(scope="module")
def twins_at(
    java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Place], Twins]:
    for version in VERSIONS:
        obtain_or_skip(version)

    found: dict[Place, Twins | Exception] = {}

    def find(place: Place) -> Twins:
        if place not in found:
            directory = tmp_path_factory.mktemp(place.name)
            try:
                found[place] = run_all(place, java_module_bench, directory)
            except Exception as failed:  # noqa: BLE001 - raised by each test that asks for it
                found[place] = failed
        twins = found[place]
        if isinstance(twins, Exception):
            raise twins
        return twins

    return find


def run_all(place: Place, bench: Bench, directory: Path) -> Twins:
    """Run the cases of a place on both clusters at once."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        starts = [cluster(place, kind, bench, directory / kind) for kind in (OURS, APACHE)]
        clusters = list(pool.map(stack.enter_context, starts))
        return Twins(*pool.map(lambda each: asyncio.run(printed(each)), clusters))


async def printed(of: Cluster) -> Printed:
    """Run the cases while clients of ours are connected."""
    outcomes: dict[str, dict[Case, Outcome]] = {}
    async with content(of) as facts:
        for who in TURNS[of.place]:
            await settle(of)
            outcomes[who] = await asyncio.to_thread(run, of, who, facts)
    return outcomes


def each_case(*who: str) -> pytest.MarkDecorator:
    """One test for each case and who runs it."""
    return pytest.mark.parametrize(
        ("who", "case"),
        [
            pytest.param(
                name, case, id=f"{name}-{case.words}",
                marks=() if place is Place.PLAIN else pytest.mark.long,
            )
            for place in Place
            for name in who
            for case in cases(place, name)
        ],
    )  # fmt: skip


@each_case(*VERSIONS)
def test_it_shows_of_ours_what_it_shows_of_apache(
    twins_at: Callable[[Place], Twins], who: str, case: Case
) -> None:
    twins = twins_at(case.place)
    ours, apache = twins.ours[who][case].text, twins.apache[who][case].text
    differing = difference(case, ours, apache)

    assert re.search(case.shows, ours, re.MULTILINE), ours
    if who == OLD and case.old_fails:
        assert "Exception" in apache
        assert "Exception" not in ours
    elif case.differs:
        assert differing, "it is the same: it needs no reason any more"
    else:
        assert not differing, differing
        assert bool(apache) != case.silent


@each_case(OWN)
def test_ours_shows_of_both_clusters_the_same_and_ends_as_javas(
    twins_at: Callable[[Place], Twins], who: str, case: Case
) -> None:
    twins = twins_at(case.place)
    java = NEW if case.words_for(NEW) else OLD
    for printed in (twins.ours, twins.apache):
        own, theirs = printed[who][case], printed[java][case]
        assert not own.trouble
        assert "Traceback" not in own.text
        assert own.text
        if not case.ours:
            assert own.is_done == theirs.is_done, (own.text, theirs.text)
    ours, apache = twins.ours[who][case], twins.apache[who][case]
    if not case.differs:
        assert ours.is_done == apache.is_done, (ours.text, apache.text)
        if ours.is_done:
            assert not difference(case, ours.text, apache.text)


def test_every_command_has_a_case(java_module_bench: Bench) -> None:
    for version in VERSIONS:
        (listed,) = run_commands(java_module_bench, version, "127.0.0.1:1", [[]])
        names = set(re.findall(r"^   (\w+) ", listed, re.MULTILINE))
        assert names == {case.command for case in CASES if case.words_for(version)}
