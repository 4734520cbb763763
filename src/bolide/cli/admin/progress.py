"""A progress bar for scans that take long, and the line that says that a listing was cut."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress_bar(
    title: str, total: int | None = None, *, prints: bool = False
) -> Iterator[Advance]:
    """Yield a function to call with the number of steps done.

    The bar is on standard error and only on a terminal, so that outputs that are read or kept do
    not have it; it goes when the scan is over.

    Args:
        title: what is counted.
        total: how many steps there are, if that is known.
        prints: the scan prints what it finds, which is progress enough on a terminal.
    """
    if not sys.stderr.isatty() or (prints and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  only terminals need it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(  # which would take what is printed to the terminal, too
        *columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda steps: bar.advance(task, steps)


def print_cut(shown: int, of: str, go_on: str) -> None:
    """Say on standard error that a listing was cut.

    Args:
        of: what was scanned, such as "of 1200 messages scanned in 4 queues".
        go_on: the option that shows the rest, such as "-c 256 shows more".
    """
    print(f"cut after {shown} {of}; {go_on}", file=sys.stderr)
