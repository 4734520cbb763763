"""A screen for pipelines that are tested without a terminal."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bolide.spark.pipelines.definition import Table


@dataclass
class RecordingScreen:
    """Records all output; `on_show` is called with every table, and may request a stop."""

    on_show: Callable[[Table], None] = lambda _: None
    lines: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    done: list[tuple[int, int | None]] = field(default_factory=list)
    stop_requested: bool = False

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show(self, table: Table) -> None:
        self.tables.append(table)
        self.on_show(table)

    def advance(self, done: int, total: int | None = None) -> None:
        self.done.append((done, total))


def dicts(table: Table) -> list[dict[str, object]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]
