"""How reports are printed for people."""

import sys

import pytest

from bolide.cli.doctor import _print
from bolide.doctor import Finding, Report, Severity

COMMAND = "mqadmin updateTopic -n 127.0.0.1:9876 -b 127.0.0.1:10911 -t " + "T" * 100 + " [x]"
REPORT = Report(
    findings=(
        Finding(
            id="topic-queues", severity=Severity.ERROR, subject="T\x1b[31m", measured="It [b]has.",
            why="words " * 40, command=COMMAND,
        ),
        Finding(id="master", severity=Severity.OK, subject="b", measured="Its master is there."),
    ),
    is_reachable=True,
    seconds=0.25,
)  # fmt: skip


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_report_shows_what_is_wrong_with_its_command_on_one_line(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)

    _print(REPORT, everything=False)

    printed = capsys.readouterr().out
    assert f"$ {COMMAND}" in printed
    assert "[b]has." in printed
    assert "\x1b[31m" not in printed  # what servers send does not reach the terminal as it is
    assert "master" not in printed
    assert "1 error, 0 warnings, 0 unknown, 0 notes, 1 ok in 0.2 s" in printed

    _print(REPORT, everything=True)
    assert "Its master is there." in capsys.readouterr().out
