"""The file that every round goes to, so that a run that was stopped can go on."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.compare import code
from benchmarks.compare.rounds import Loaded, Round, Used


@dataclass
class Results:
    """What was measured so far, by cell."""

    file: Path
    settings: dict[str, Any]
    """Under which it was measured: cells of other settings do not belong together."""
    machine: str
    code: str = ""
    """What this run measures, and measures with."""
    codes: dict[str, str] = field(default_factory=dict)
    """That of each cell."""
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
        self.codes[cell] = self.code
        self.save()

    def fail(self, cell: str, why: str) -> None:
        self.cells.pop(cell, None)
        self.codes.pop(cell, None)
        self.missing[cell] = why
        self.save()

    def note_most(self, fact: str, value: float) -> None:
        self.facts[fact] = max(value, self.facts.get(fact, value))
        self.save()

    def save(self) -> None:
        document = asdict(self)
        del document["file"]
        partial = self.file.with_suffix(".partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(document, indent=1), encoding="utf-8")
        partial.replace(self.file)

    def begin_anew(self) -> None:
        """Keep what the file has beside it, once: it may have taken an hour."""
        if self.file.exists():
            self.file.replace(self.file.with_suffix(".before.json"))

    def go_on(self, *, other_code: bool = False) -> None:
        """Take up what the file has; exits where that does not belong with this run."""
        if not self.file.exists():
            return
        found = json.loads(self.file.read_text(encoding="utf-8"))
        self._refuse("options", found["settings"], self.settings)
        self._refuse("a machine", _place(found["machine"]), _place(self.machine))
        codes = found.get("codes", {})
        for cell in found["cells"] if not other_code else ():
            if not code.same(codes.get(cell, "unknown"), self.code):
                self._refuse("code", codes.get(cell, "unknown"), self.code, "add --other-code, ")
        self.machine = found["machine"]
        self.codes = {cell: codes.get(cell, "unknown") for cell in found["cells"]}
        self.cells = {name: list(map(_round, rounds)) for name, rounds in found["cells"].items()}
        self.facts, self.context = found["facts"], found["context"]
        self.missing = found["missing"]

    def _refuse(self, what: str, then: object, now: object, way_out: str = "") -> None:
        if then != now:
            sys.exit(
                f"{self.file} was measured with {what} {then}, this run has {now}:"
                f" give the same, {way_out}or leave --resume out"
            )


def _place(machine: str) -> str:
    """Without the time."""
    return machine.rpartition(", ")[0]


def _round(found: dict[str, Any]) -> Round:
    return Round(found["server"], Loaded(**found["loaded"]), Used(**found["used"]))
