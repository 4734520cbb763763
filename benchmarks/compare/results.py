"""The file of all rounds, from which an interrupted run can be resumed."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.compare import code
from benchmarks.compare.rounds import LoadResult, ResourceUsage, Round


@dataclass
class Results:
    """The rounds measured so far, by cell."""

    file: Path
    settings: dict[str, Any]
    """Options of the run; cells measured with other options are not mixed."""
    machine: str
    code: str = ""
    """Version of the code that this run measures and measures with."""
    codes: dict[str, str] = field(default_factory=dict)
    """The version for each cell."""
    cells: dict[str, list[Round]] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    """Figures about the machine, by name."""
    missing: dict[str, str] = field(default_factory=dict)
    """Why a cell or a broker of `--context` has no figures."""
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

    def record_maximum(self, fact: str, value: float) -> None:
        self.facts[fact] = max(value, self.facts.get(fact, value))
        self.save()

    def save(self) -> None:
        document = asdict(self)
        del document["file"]
        partial = self.file.with_suffix(".partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(document, indent=1), encoding="utf-8")
        partial.replace(self.file)

    def start_over(self) -> None:
        """Rename an existing file to `.before.json`, because it may have taken an hour."""
        if self.file.exists():
            self.file.replace(self.file.with_suffix(".before.json"))

    def resume(self, *, other_code: bool = False) -> None:
        """Load the rounds of the file.

        Exits if they were measured with other options, on another machine or, unless `other_code`
        is set, by other code.
        """
        if not self.file.exists():
            return
        found = json.loads(self.file.read_text(encoding="utf-8"))
        self._refuse("options", found["settings"], self.settings)
        self._refuse("a machine", _hardware(found["machine"]), _hardware(self.machine))
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
                f" use the same, {way_out}or omit --resume"
            )


def _hardware(machine: str) -> str:
    """The machine without the date."""
    return machine.rpartition(", ")[0]


def _round(found: dict[str, Any]) -> Round:
    return Round(found["server"], LoadResult(**found["loaded"]), ResourceUsage(**found["used"]))
