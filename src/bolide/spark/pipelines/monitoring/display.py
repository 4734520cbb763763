"""Terminal output of a run: progress bar, live table or plain lines; results as text or JSON."""

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from threading import Event as Flag
from typing import IO, Any, Protocol, Self

from bolide.protocol.bodies.pipelines import Progress
from bolide.spark.pipelines.definition import Table

_RATE_WINDOW = 30.0
_LINE_INTERVAL = 5.0


class Display(Protocol):
    """Shows the progress of a run within its `with` block; thread-safe."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> None: ...

    def update(self, progress: Progress) -> None: ...

    def line(self, text: str) -> None: ...


class RunScreen:
    """The screen of one run: forwards output to the display, and progress to the reporter."""

    def __init__(
        self,
        display: Display,
        *,
        show: Callable[[Table], None],
        stop: Flag,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._display = display
        self._show = show
        self._stop = stop
        self._on_progress = on_progress
        self._meter = Meter()

    @property
    def stop_requested(self) -> bool:
        return self._stop.is_set()

    def say(self, line: str) -> None:
        self._display.line(line)

    def show(self, table: Table) -> None:
        self._show(table)

    def advance(self, done: int, total: int | None = None) -> None:
        rate = self._meter.rate(done, time.monotonic())
        self.update(Progress(rows=done, total=total, rows_per_second=round(rate, 1)))

    def update(self, progress: Progress) -> None:
        self._display.update(progress)
        self._on_progress(progress)


class Meter:
    """Rows per second over the last half minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def rate(self, rows: int, now: float) -> float:
        self._samples.append((now, rows))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_WINDOW:
            self._samples.popleft()
        (began, first), passed = self._samples[0], now - self._samples[0][0]
        return (rows - first) / passed if passed > 0 and began < now else 0.0


# Progress displays


def choose_display(title: str, *, once: bool, stream: IO[str]) -> Display:
    """A bar for a run with an end, a live table for one without, lines if not on a terminal."""
    if not stream.isatty():
        return Lines(stream)
    return Bar(title, stream) if once else LiveTable(title, stream)


class Lines:
    """Prints a progress line at intervals, and one at the end."""

    def __init__(self, stream: IO[str] = sys.stderr, interval: float = _LINE_INTERVAL) -> None:
        self._stream = stream
        self._interval = interval
        self._next_line = 0.0
        self._latest: Progress | None = None
        self._printed: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self._print_progress()

    def update(self, progress: Progress) -> None:
        self._latest = progress
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + self._interval
            self._print_progress()

    def _print_progress(self) -> None:
        if self._latest is not None and self._latest != self._printed:
            self._printed = self._latest
            self.line(progress_text(self._latest))

    def line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Bar:
    """A progress bar over the total number of rows."""

    def __init__(self, title: str, stream: IO[str]) -> None:
        from rich import progress as rich  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415

        self._progress = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("{task.fields[rate]:,.0f} rows/s"),
            rich.TimeElapsedColumn(),
            rich.TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._task = self._progress.add_task(title, total=None, rate=0.0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._progress.stop()

    def update(self, progress: Progress) -> None:
        self._progress.update(
            self._task,
            completed=progress.rows,
            total=progress.total,
            rate=progress.rows_per_second,
        )

    def line(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


class LiveTable:
    """One row per topic and a total, refreshed in place."""

    def __init__(self, title: str, stream: IO[str]) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        self._title = title
        self._live = Live(console=Console(file=stream), refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        self.update(Progress())
        return self

    def __exit__(self, *reason: object) -> None:
        self._live.stop()

    def update(self, progress: Progress) -> None:
        self._live.update(self._table(progress))

    def line(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def _table(self, progress: Progress) -> Any:
        from rich.table import Table as RichTable  # noqa: PLC0415

        batch = "no batch yet" if progress.batch is None else f"batch {progress.batch}"
        table = RichTable(title=f"{self._title}, {batch}", title_justify="left")
        table.add_column("topic")
        for name in ("rows", "rows/s", "behind"):
            table.add_column(name, justify="right")
        for topic, behind in sorted((progress.behind or {}).items()):
            table.add_row(topic, "", "", f"{behind:,}")
        table.add_row("all", f"{progress.rows:,}", f"{progress.rows_per_second:,.0f}",
                      "" if progress.backlog is None else f"{progress.backlog:,}")  # fmt: skip
        return table


def progress_text(progress: Progress) -> str:
    words = [f"{progress.rows:,} rows"]
    if progress.total is not None:
        words[0] = f"{progress.rows:,} of {progress.total:,} rows"
    words.append(f"{progress.rows_per_second:,.0f} rows/s")
    if progress.batch is not None:
        words.append(f"batch {progress.batch}")
    if progress.backlog is not None:
        words.append(f"{progress.backlog:,} behind")
    return ", ".join(words)


# Results


def show_json(table: Table) -> None:
    """One JSON object per row, keyed by column names."""
    for row in table.rows:
        document = dict(zip(table.columns, row, strict=True))
        sys.stdout.write(json.dumps(document, default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def show_text(table: Table) -> None:
    """Aligned columns under a title."""
    lines = [table.columns, *(tuple(map(_cell, row)) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numeric = [_is_numeric(table, index) for index in range(len(table.columns))]
    sys.stdout.write(f"\n{table.title}\n")
    for line in lines:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    sys.stdout.flush()


def _is_numeric(table: Table, index: int) -> bool:
    found = [row[index] for row in table.rows if row[index] is not None]
    return bool(found) and all(type(value) in {int, float} for value in found)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
