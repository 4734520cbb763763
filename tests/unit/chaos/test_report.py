"""The report says where it ran, what was kept and what was broken."""

from pathlib import Path
from xml.etree import ElementTree as ET

from bolide.chaos.checker import check
from bolide.chaos.history import Delivered, Fault, History, Kind, Outcome, Sent
from bolide.chaos.report import Circumstances, run_report, write_report
from bolide.chaos.run import RunResult

WHERE = Circumstances(
    date="2026-11-18 10:00 UTC",
    machine="a machine",
    python="3.11",
    commit="abc",
    settings={"Seed": "7"},
)


def result(*, is_lost: bool = False, is_loss_allowed: bool = False) -> RunResult:
    history = History()
    history.record(
        Sent(
            id="a", kind=Kind.PLAIN, key="k", number=1, began=0.0, ended=0.5,
            outcome=Outcome.ACKNOWLEDGED,
        )
    )  # fmt: skip
    if not is_lost:
        history.record(Delivered(id="a", kind=Kind.PLAIN, at=1.0, queue="broker-a/0", offset=0))
    for number, name in enumerate(("kill", "kill", "kill+cut"), 1):
        history.record(
            Fault(
                nemesis=name, targets=("broker-a-0",), round=number, began=number,
                ended=number + 0.5, back_after=number / 10,
            )
        )  # fmt: skip
    verdict = check(history, is_loss_allowed=is_loss_allowed)
    return RunResult(verdict, history, 12.0, is_drained=not is_lost)


def test_a_good_run() -> None:
    page = run_report(result(), WHERE, "run.svg")

    assert "| Seed | 7 |" in page
    assert "| Machine | a machine |" in page
    assert (
        "3 rounds in 12 s. Of 1 acknowledged messages 0 were lost. All promises were kept." in page
    )
    assert "| kill | 2 | 0.15 | 0.20 | 0 |" in page
    assert "| several | 1 | 0.30 | 0.30 | 0 |" in page
    assert "| 3 | kill+cut | broker-a-0 | 3.0 | 0.5 | 0.30 |" in page
    assert "![Timeline of the run](run.svg)" in page
    assert "Broken promises" not in page
    assert "did not come in time" not in page


def test_a_bad_run_names_what_was_lost() -> None:
    page = run_report(result(is_lost=True), WHERE, "run.svg")

    assert "Of 1 acknowledged messages 1 were lost. **Promises were broken.**" in page
    assert "- plain: 1 acknowledged and lost: a" in page
    assert "After the last round some deliveries did not come in time." in page


def test_loss_that_is_allowed_is_said() -> None:
    page = run_report(result(is_lost=True, is_loss_allowed=True), WHERE, "run.svg")

    assert "1 were lost (this mode allows it). All promises were kept." in page


def test_the_picture_is_beside_the_page(tmp_path: Path) -> None:
    write_report(result(), WHERE, tmp_path / "out" / "run.md")

    assert "](run.svg)" in (tmp_path / "out" / "run.md").read_text()
    ET.fromstring((tmp_path / "out" / "run.svg").read_text())


def test_circumstances_are_those_of_this_machine() -> None:
    here = Circumstances.here({"Mode": "single"})

    assert here.commit
    assert "cores" in here.machine
    assert here.settings == {"Mode": "single"}
