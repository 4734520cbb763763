"""What a look into a store found."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

_KEPT = 1000
"""Findings that are kept in full; the rest is only counted."""


class Part(StrEnum):
    LOG = "commit log"
    QUEUES = "consume queues"
    INDEX = "key index"
    CHECKPOINT = "checkpoint"
    TABLES = "tables"


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage. `offset` is the place in the file, `physical_offset` that of a record concerned."""

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
    """Where the log ends: behind its last sound record."""
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    tables: int = 0
    damages: dict[Part, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    """The first ones; `damages` counts all."""
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no damage."""
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

    def arrange(self) -> None:
        """Put the log first: what is wrong with the rest mostly follows from it."""
        parts = list(Part)
        self.findings.sort(key=lambda finding: parts.index(finding.part))
        self.damages = {part: self.damages[part] for part in parts if part in self.damages}

    def note(self, text: str) -> None:
        self.notes.append(text)
