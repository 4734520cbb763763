"""Java's mqadmin, 4.9.8 and 5.5.0: every command shows of our cluster what it shows of Apache's.

The commands are in `mqadmin_cases`, with the reason where something differs. Both clusters hold the
same messages and have the same clients connected. Our mqadmin runs the same command lines.
"""

import re
from collections.abc import Callable

import pytest

from tests.interop.bench import Bench
from tests.interop.conftest import obtain_or_skip
from tests.interop.mqadmin import run_commands
from tests.interop.mqadmin_cases import CASES, OWN, Case, Place, cases
from tests.interop.mqadmin_runs import (
    VERSIONS,
    Twins,
    disagreement,
    disagreement_of_ours,
    run_all,
)


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
def test_javas_shows_of_our_cluster_what_it_shows_of_apaches(
    twins_at: Callable[[Place], Twins], who: str, case: Case
) -> None:
    found = disagreement(twins_at(case.place), who, case)
    assert not found, found


@each_case(OWN)
def test_ours_shows_of_both_clusters_the_same_and_ends_as_javas(
    twins_at: Callable[[Place], Twins], who: str, case: Case
) -> None:
    found = disagreement_of_ours(twins_at(case.place), case)
    assert not found, found


def test_every_command_has_a_case(java_module_bench: Bench) -> None:
    for version in VERSIONS:
        (listed,) = run_commands(java_module_bench, version, "127.0.0.1:1", [[]])
        names = set(re.findall(r"^   (\w+) ", listed, re.MULTILINE))
        assert names == {case.command for case in CASES if case.words_for(version)}
