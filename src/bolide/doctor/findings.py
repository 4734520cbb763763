"""What an examination finds: values, in the order in which they are worth reading."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

LISTED = 10
"""Findings of one kind that are listed; the rest is counted."""


class Severity(StrEnum):
    """Worst first."""

    ERROR = "error"
    """Messages are not taken, not delivered or not safe, or will soon not be."""
    WARNING = "warning"
    """Works now, and will cause trouble."""
    UNKNOWN = "unknown"
    """Could not be checked; the finding says why."""
    NOTE = "note"
    """Worth knowing; may be intended."""
    OK = "ok"


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check on one subject."""

    id: str
    """The kind of finding, in lower case with hyphens; it does not change between versions."""
    severity: Severity
    subject: str
    """The server, topic or group that was checked."""
    measured: str
    """What was seen, as a sentence."""
    why: str = ""
    """Why it matters; empty if nothing is wrong."""
    command: str = ""
    """What mends it, or shows more where no command mends it."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of an examination, worst first."""

    findings: tuple[Finding, ...]
    is_reachable: bool
    """Whether a NameServer or broker answered."""
    seconds: float

    @property
    def counts(self) -> dict[Severity, int]:
        found = [each.severity for each in self.findings]
        return {severity: found.count(severity) for severity in Severity}

    def of(self, severity: Severity) -> list[Finding]:
        return [each for each in self.findings if each.severity is severity]


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by severity; those of one severity in the order of the checks."""
    return tuple(sorted(findings, key=lambda each: _RANKS[each.severity]))


def limited(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, but of each kind and severity only the first `LISTED`; then their number."""
    more: dict[tuple[str, Severity], list[Finding]] = {}
    for each in findings:
        seen = more.setdefault((each.id, each.severity), [])
        seen.append(each)
        if len(seen) <= LISTED:
            yield each
    for (name, severity), seen in more.items():
        if (rest := len(seen) - LISTED) > 0:
            yield Finding(
                id=name,
                severity=severity,
                subject=f"{rest} more",
                measured=f"The same was found {rest} more times.",
                why=seen[0].why,
                command=seen[0].command,
            )


def or_ok(findings: Iterable[Finding], name: str, subject: str, measured: str) -> Iterator[Finding]:
    """The findings of a check, or that nothing is wrong."""
    nothing = True
    for each in findings:
        nothing = False
        yield each
    if nothing:
        yield Finding(id=name, severity=Severity.OK, subject=subject, measured=measured)
