"""Tables for people: drawn on a terminal, plain columns where the output goes to a program."""

import sys
from typing import TextIO

from bolide.logs import one_line

_GAP = "  "


class Table:
    """Rows under titles. RocketMQ's tools begin a title with `#`; a terminal shows it without."""

    def __init__(self, *titles: str) -> None:
        self._rows: list[tuple[str, ...]] = [titles]

    def add(self, *cells: object) -> None:
        self._rows.append(tuple(one_line(str(cell)) for cell in cells))

    @property
    def width(self) -> int:
        """Columns of a terminal that it takes if nothing is broken over lines."""
        return sum(max(map(len, column)) + len(_GAP) for column in zip(*self._rows, strict=True))

    def print(self, to: TextIO | None = None) -> None:
        """Print to standard output, or to another stream."""
        to = to or sys.stdout
        if to.isatty():
            self._draw(to)
        else:
            self._print_columns(to)

    def _print_columns(self, to: TextIO) -> None:
        """Columns as wide as their contents, as scripts around RocketMQ's tools split them."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        for row in self._rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print(_GAP.join(cells).rstrip(), file=to)

    def _draw(self, to: TextIO) -> None:
        from rich import box  # noqa: PLC0415  a program that reads the output does without
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table as Drawn  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        titles, *rows = self._rows
        table = Drawn(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for title, *column in zip(titles, *rows, strict=True):
            numbers = bool(column) and all(_is_number(cell) for cell in column if cell)
            table.add_column(
                Text(title.removeprefix("#")),
                justify="right" if numbers else "left",
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console(file=to, highlight=False).print(table)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
