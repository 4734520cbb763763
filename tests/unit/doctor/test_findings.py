"""The kinds of findings: closed, and all of them in the documentation."""

import re
from pathlib import Path

import pytest

from bolide.doctor import Finding, Severity
from bolide.doctor.findings import KINDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "doctor.md"


def test_every_kind_is_in_the_documentation_and_no_other() -> None:
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \| \w+ \| ", PAGE.read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert sorted(named) == sorted(KINDS)


def test_a_kind_that_is_not_declared_is_refused() -> None:
    with pytest.raises(ValueError, match="novelty"):
        Finding(id="novelty", severity=Severity.OK, subject="x", measured="y")
