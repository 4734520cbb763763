"""What the findings of an examination are in the checklist."""

from bolide.doctor import Finding, Report, Severity
from bolide.doctor.findings import KINDS
from bolide.operations.servers.health import CheckState, checklist


def test_what_was_checked_and_is_fine_is_told_from_what_was_not_checked() -> None:
    warning = Finding(id="disk-usage", severity=Severity.WARNING, subject="b", measured="80%")
    fine = Finding(id="disk-usage", severity=Severity.OK, subject="a", measured="20%")
    lost = Finding(id="settings", severity=Severity.UNKNOWN, subject="b", measured="refused")

    found = checklist(
        Report(findings=(fine, lost, warning), is_reachable=True, seconds=0.1), examined_ms=5
    )

    assert [each.id for each in found.checks[:2]] == ["disk-usage", "settings"]
    assert {each.id for each in found.checks} == KINDS.keys()
    states = {each.id: each.state for each in found.checks}
    assert states["disk-usage"] is found.state is CheckState.WARNING
    assert [each.where for each in found.checks[0].findings] == ["b", "a"]
    assert states["settings"] is CheckState.UNKNOWN
    assert states["broker-identity"] is CheckState.OK
    assert states["controller-reachable"] is CheckState.NOT_CHECKED
    assert found.counts["warning"] == 1

    nobody = checklist(Report(findings=(), is_reachable=False, seconds=0.1), examined_ms=5)
    assert {each.state for each in nobody.checks if each.id != "spark"} == {CheckState.NOT_CHECKED}
