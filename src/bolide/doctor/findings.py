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


KINDS = {
    "name-server-reachable": "Each NameServer of the list answers.",
    "name-servers-agree": "All NameServers know the same brokers and topics.",
    "broker-registered": "A broker is registered.",
    "broker-reachable": "Each broker answers at the address that it announces.",
    "broker-identity": "The broker that answers there is the one that registered.",
    "broker-address-loopback": "No broker announces loopback to a network.",
    "vip-port": "The port two below that of the broker is open, for old Java clients.",
    "clock-difference": "The clock of each broker agrees with this one.",
    "disk-usage": "The disks of each broker have room.",
    "broker-load": "No send waits for long, and all messages are in their queues.",
    "broker-permission": "Each broker takes and delivers messages.",
    "broker-limits": "Each broker may open and map enough files.",
    "version-mix": "All brokers have one version.",
    "master": "Each broker group has one master.",
    "replicas": "The slaves of each master are connected and have its log.",
    "replicas-in-sync": "The controllers have all replicas in the sync-state set.",
    "controller-reachable": "A controller leads.",
    "ha-address": "Slaves can copy from the address that they are told.",
    "topic-queues": "Topics have as many queues to read as to write.",
    "topic-brokers": "Topics have the same queues on each broker.",
    "topic-permission": "Topics can be read and written.",
    "subscriptions": "The members of each group subscribe to the same.",
    "dead-letters": "No group has dead letters.",
    "consumer-lag": "No group is far behind.",
    "settings": "The settings of each broker can be read.",
    "pending-settings": "No setting waits for a restart.",
    "access-control": "What is reached over the network is protected.",
    "encryption": "What is reached over the network is encrypted.",
    "ha-port": "Not everybody may copy the log.",
    "automatic-topics": "Topics are created by an operator only.",
    "durability": "An acknowledged message is on a disk or on two machines.",
    "compiled-kernel": "The compiled modules are in use.",
    "open-files": "Processes here may open enough files.",
    "memory-maps": "Processes here may map enough files.",
    "spark": "Spark is installed.",
    "java": "Spark has a Java that it runs on.",
    "pyspark-python": "Spark's workers have the Python of this process, and its packages.",
}
"""What is in order if a check finds nothing, by the id of its findings."""

_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check on one subject."""

    id: str
    """The kind of finding, one of `KINDS`; it does not change between versions."""
    severity: Severity
    subject: str
    """The server, topic or group that was checked."""
    measured: str
    """What was seen, as a sentence."""
    why: str = ""
    """Why it matters; empty if nothing is wrong."""
    command: str = ""
    """What mends it, or shows more where no command mends it."""

    def __post_init__(self) -> None:
        if self.id not in KINDS:
            raise ValueError(f"{self.id!r} is not in KINDS")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of an examination, worst first."""

    findings: tuple[Finding, ...]
    is_reachable: bool
    """Whether a NameServer answered, be it with a refusal."""
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
    """The findings, but of what is not in order only the first `LISTED` of each kind and severity;
    then their number."""
    more: dict[tuple[str, Severity], list[Finding]] = {}
    for each in findings:
        seen = more.setdefault((each.id, each.severity), [])
        seen.append(each)
        if each.severity is Severity.OK or len(seen) <= LISTED:
            yield each
    for (name, severity), seen in more.items():
        if severity is not Severity.OK and (rest := len(seen) - LISTED) > 0:
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
