"""The report of a verification."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

_KEPT = 1000
"""Findings retained in full; the rest is only counted."""


class Part(StrEnum):
    LOG = "commit log"
    QUEUES = "consume queues"
    INDEX = "key index"
    COMPACTION = "compaction logs"
    CHECKPOINT = "checkpoint"
    TABLES = "tables"


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage at `offset` in a file; `physical_offset` is that of the record concerned."""

    part: Part
    file: Path
    offset: int
    reason: str
    physical_offset: int | None = None


@dataclass(slots=True)
class Report:
    root: Path
    log_files: int = 0
    records: int = 0
    log_start: int = 0
    log_end: int = 0
    """End of the last sound record."""
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    tables: int = 0
    compacted: int = 0
    """Records in the logs of compaction topics."""
    damages: dict[Part, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    """The first findings; `damages` counts all."""
    notes: list[str] = field(default_factory=list)
    """Observations that are not damage."""
    repairs: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        return not self.damages

    def damage(
        self, part: Part, file: Path, offset: int, reason: str, physical_offset: int | None = None
    ) -> None:
        self.damages[part] = self.damages.get(part, 0) + 1
        if len(self.findings) < _KEPT:
            self.findings.append(Finding(part, file, offset, reason, physical_offset))

    def sort(self) -> None:
        """Sort findings, those of the log first: most others follow from them."""
        parts = list(Part)
        self.findings.sort(key=lambda finding: parts.index(finding.part))
        self.damages = {part: self.damages[part] for part in parts if part in self.damages}

    def add_note(self, text: str) -> None:
        self.notes.append(text)
