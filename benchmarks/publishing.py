"""Reports between the marks of a page."""

import sys
from pathlib import Path


def publish(report: str, command: str, page: Path | None) -> None:
    """Print the report, and write it between the marks of the command's part of a page."""
    print(report)
    if page is not None:
        write(report, command, page)


def has_written_part(page: Path) -> bool:
    """Whether the file is a page with parts that benchmarks write."""
    return page.exists() and "<!-- written by " in page.read_text(encoding="utf-8")


def write(report: str, command: str, page: Path) -> None:
    """Put the report between the marks; exits where the page has none."""
    opening, closing = f"<!-- written by {command} -->", f"<!-- end of {command} -->"
    before, begin, rest = page.read_text(encoding="utf-8").partition(opening)
    _, end, after = rest.partition(closing)
    if not (begin and end):
        sys.exit(f"{page} has no lines {opening!r} and {closing!r}: nothing was written there")
    page.write_text(f"{before}{opening}\n{report}\n{closing}{after}", encoding="utf-8")
