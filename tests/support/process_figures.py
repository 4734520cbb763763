"""What a process costs, read from outside."""

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest


def require_proc() -> None:
    """Skip the test where processes cannot be watched."""
    if not Path("/proc/self/status").exists():
        pytest.skip("there is no /proc to watch a process through")


def private_memory(pid: int) -> int:
    """Bytes of memory that are its own (RssAnon)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found.group(1)) * 1024


def cpu_seconds(pid: int) -> float:
    """Of all its threads, in user mode and in the system."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> dict[int, str]:
    """The processes that it started and that run, with their commands."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended meanwhile
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                words = status.with_name("cmdline").read_bytes().split(b"\0")
                found[int(status.parent.name)] = b" ".join(words).decode()
    return found
