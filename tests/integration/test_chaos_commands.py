"""`bolide chaos` refuses at once what would not be the run that was asked for."""

from pathlib import Path

import pytest

from tests.support.commands import home, run

__all__ = ["home"]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("run", "--mode", "controller", "--controllers", "0"), "--controllers 0"),
        (("run", "--mode", "controller", "--replicas", "1"), "--replicas 1"),
        (("run", "--mode", "single", "--replicas", "3"), "--replicas 3"),
        (("run", "--mode", "sync", "--controllers", "3"), "--controllers 3"),
        (("run", "flushDiskTyp=SYNC_FLUSH"), "did you mean flushDiskType?"),
        (("run", "flushDiskType=SYNC"), "flushDiskType='SYNC'"),
        (("failover", "--controllers", "0"), "--controllers 0"),
    ],
)
def test_a_run_that_contradicts_itself_is_refused(words: tuple[str, ...], reason: str) -> None:
    done = run("bolide", "chaos", *words)

    assert done.returncode == 3
    assert reason in done.stderr


def test_a_report_that_cannot_be_written_is_refused_before_the_run(home: Path) -> None:
    (home / "file").touch()

    done = run("bolide", "chaos", "run", "--report", "file/report.md")

    assert done.returncode != 0
    assert "file" in done.stderr
    assert "round" not in done.stderr
