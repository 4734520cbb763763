"""What a process used, read from /proc, and the machine it ran on."""

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_SCHEDULER_CLOCK = 2


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, to the nanosecond."""
    # As clock_getcpuclockid(3) makes a clock of a process: Python has it for threads only.
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)


def tree_cpu_seconds(pid: int) -> float:
    """That of a process, of all that it started and they started, the ended ones too."""
    stats = _stats()
    return sum(sum(map(int, stats[each][11:15])) for each in _below(pid, stats)) / _TICKS


def tree(pid: int) -> tuple[int, ...]:
    """The process, what it started and what those started."""
    return tuple(sorted(_below(pid, _stats())))


def _stats() -> dict[int, list[str]]:
    found = {int(file.parent.name): _stat(file) for file in Path("/proc").glob("[0-9]*/stat")}
    return {pid: fields for pid, fields in found.items() if fields}


def _below(pid: int, stats: dict[int, list[str]]) -> set[int]:
    found = {pid} & set(stats)
    while more := {each for each, fields in stats.items() if int(fields[1]) in found} - found:
        found |= more
    return found


def _stat(file: Path) -> list[str]:
    try:
        return file.read_text().rpartition(")")[2].split()
    except OSError:
        return []  # ended meanwhile


def resident_mib(pid: int) -> float:
    return _status_mib(pid, "VmRSS")


def private_mib(pid: int) -> float:
    """Memory that is the process's own: mapped files do not count."""
    return _status_mib(pid, "RssAnon")


def written_bytes(pid: int) -> int:
    """What the process had the system write to disks so far, mapped pages included."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise ValueError(f"process {pid} has no count of bytes written")


def _status_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no {name}")


def stolen_seconds() -> float:
    """CPU time that the machine's host gave to others so far; it makes a round look worse."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / _TICKS


def busy_seconds() -> float:
    """CPU time that all processes of this machine, and its kernel, used so far."""
    user, nice, system, _, _, irq, soft_irq = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, soft_irq))) / _TICKS


def machine() -> str:
    """One line that says where and when numbers were measured."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {_java_version()}, {when}"
    )


def _java_version() -> str:
    done = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    return lines[0].replace('"', "") if lines else "no Java"
