import pytest
import typer

from bolide.cli.admin.audit import _seconds, _show
from tests.unit.admin.test_audit import record


@pytest.mark.parametrize(
    ("span", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("7d", 604_800)]
)
def test_a_span_has_a_unit(span: str, seconds: int) -> None:
    assert _seconds(span) == seconds


@pytest.mark.parametrize("span", ["1", "h", "1w", "-1h", "1.5h", ""])
def test_a_span_without_a_unit_is_refused(span: str) -> None:
    with pytest.raises(typer.BadParameter, match="such as 30m"):
        _seconds(span)


def test_what_an_attacker_claims_cannot_control_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "\x1b[2J\nbroker-a alice"
    denied = record(user=evil, target={"topic": evil}, remark=evil, denied=True, code=16)
    _show([denied], as_document=False)
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 2
    assert "\x1b" not in printed


def test_outcomes_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    _show(
        [
            record(),
            record(code=29, remark="no such key"),
            record(code=-1),
            record(code=16, denied=True),
            record(code=16, denied=True, count=7),
        ],
        as_document=False,
    )
    lines = capsys.readouterr().out.splitlines()
    wanted = ["done", "code 29", "connection lost", "denied", "denied (7 times)"]
    assert [outcome in line for outcome, line in zip(wanted, lines[1:], strict=True)] == [True] * 5
    assert "no such key" in lines[2]
