"""The bar of a long scan."""

import io
import sys
from typing import TextIO

import pytest

from bolide.cli.admin.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(patch: pytest.MonkeyPatch, stdout: TextIO) -> str:
    """What a scan that prints draws on a terminal."""
    terminal = Terminal()
    patch.setenv("TERM", "xterm")
    patch.setattr("sys.stderr", terminal)
    patch.setattr("sys.stdout", stdout)
    with progress_bar("messages", 2, prints=True) as advance:
        sys.stdout.write("a finding\n")
        advance(2)
    return terminal.getvalue()


def test_what_is_printed_stays_on_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = io.StringIO()

    bar = drawn(monkeypatch, kept)

    assert kept.getvalue() == "a finding\n"
    assert "messages" in bar
    assert "a finding" not in bar


def test_no_bar_runs_through_findings_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, Terminal()) == ""
