"""Java's mqadmin, 4.9.8 and 5.5.0: every command shows of our cluster what it shows of Apache's.

The commands are in `mqadmin_cases`, with the reason where something differs. Both clusters hold the
same messages and have the same clients connected. Our mqadmin runs the same command lines.
"""

import re
from collections.abc import Callable

import pytest
import typer
from typer.core import TyperGroup

from bolide.cli import app
from bolide.cli.program import AdminGroup
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


@pytest.fixture(scope="module")
def options(java_module_bench: Bench) -> dict[str, dict[str, set[str]]]:
    """The options of each command, by release, as the jars' own help has them."""
    return {version: options_in(java_module_bench, version) for version in VERSIONS}


def options_in(bench: Bench, version: str) -> dict[str, set[str]]:
    obtain_or_skip(version)
    chosen = sorted({case.command for case in CASES})
    listed, *helps = run_commands(
        bench, version, "127.0.0.1:1", [[], *(["help", name] for name in chosen)]
    )
    found = dict(zip(chosen, map(options_of, helps), strict=True))
    names = re.findall(r"^   (\w+) ", listed, re.MULTILINE)
    return {name: found.get(name, set()) for name in names}


def options_of(shown: str) -> set[str]:
    """The options that a command's help lists, short and long."""
    pairs = OPTION.findall(shown)
    return {f"--{long}" for _, long in pairs} | {short for short, _ in pairs if short}


OPTION = re.compile(r"^ +(?:(-\w+),)?--([\w ]+?) +(?:<arg>)? ", re.MULTILINE)


def test_no_case_stands_twice_in_the_table() -> None:
    assert len({(case.place, case.words) for case in CASES}) == len(CASES)


def test_every_command_of_the_jars_has_a_case(options: dict[str, dict[str, set[str]]]) -> None:
    for version, found in options.items():
        assert found.keys() == {case.command for case in CASES if case.words_for(version)}


def test_ours_has_every_command_and_every_option(options: dict[str, dict[str, set[str]]]) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    admin = group.commands["admin"]
    assert isinstance(admin, AdminGroup)
    for found in options.values():
        for name, wanted in found.items():
            command = admin.get_command(typer.Context(admin), name)
            assert command is not None, name
            known = {each for option in command.params for each in option.opts}
            assert wanted - known == {"-h", "--help"}, name
            assert len(wanted) > 2
