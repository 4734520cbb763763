"""The file that every round goes to, so that a run that was stopped can go on."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.compare.rounds import Loaded, Round, Used


@dataclass
class Results:
    """What was measured so far, by cell."""

    file: Path
    settings: dict[str, Any]
    """Under which it was measured: cells of other settings do not belong together."""
    machine: str
    cells: dict[str, list[Round]] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    """Single figures about the machine."""
    missing: dict[str, str] = field(default_factory=dict)
    """Why a cell, or a thing beside the cells, has no figures."""
    context: list[dict[str, Any]] = field(default_factory=list)

    def rounds(self, cell: str) -> list[Round]:
        return self.cells.get(cell, [])

    def add(self, cell: str, rounds: Sequence[Round]) -> None:
        self.missing.pop(cell, None)
        self.cells[cell] = list(rounds)
        self.save()

    def fail(self, cell: str, why: str) -> None:
        self.cells.pop(cell, None)
        self.missing[cell] = why
        self.save()

    def save(self) -> None:
        document = asdict(self)
        del document["file"]
        partial = self.file.with_suffix(".partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(document, indent=1), encoding="utf-8")
        partial.replace(self.file)

    def go_on(self) -> None:
        """Take up what the file has; exits where it was measured under other settings."""
        if not self.file.exists():
            return
        found = json.loads(self.file.read_text(encoding="utf-8"))
        if found["settings"] != self.settings:
            sys.exit(
                f"{self.file} was measured with {found['settings']}, this run has"
                f" {self.settings}: give the same options, or leave --resume out"
            )
        self.machine = found["machine"]
        self.cells = {name: list(map(_round, rounds)) for name, rounds in found["cells"].items()}
        self.facts, self.context = found["facts"], found["context"]
        self.missing = found["missing"]


def _round(found: dict[str, Any]) -> Round:
    return Round(found["server"], Loaded(**found["loaded"]), Used(**found["used"]))
