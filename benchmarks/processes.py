"""Resource usage of processes, read from /proc, and a description of the machine."""

import mmap
import os
import platform
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_SCHEDULER_CLOCK = 2
_MAPPED_BYTES = 256 * 2**20


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, in nanosecond resolution."""
    # The clock id of clock_getcpuclockid(3), which Python offers for threads only.
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)


def tree_cpu_seconds(pid: int) -> float:
    """CPU time of a process and its descendants, including those that have ended."""
    stats = _stats()
    return sum(sum(map(int, stats[each][11:15])) for each in _descendants(pid, stats)) / _TICKS


def tree(pid: int) -> tuple[int, ...]:
    """Ids of the process and its descendants."""
    return tuple(sorted(_descendants(pid, _stats())))


def is_runnable(pid: int) -> bool:
    """Whether a thread of the process runs, or waits for a processor that others keep busy."""
    return any(_stat(file)[:1] == ["R"] for file in Path(f"/proc/{pid}/task").glob("[0-9]*/stat"))


def _stats() -> dict[int, list[str]]:
    found = {int(file.parent.name): _stat(file) for file in Path("/proc").glob("[0-9]*/stat")}
    return {pid: fields for pid, fields in found.items() if fields}


def _descendants(pid: int, stats: dict[int, list[str]]) -> set[int]:
    found = {pid} & set(stats)
    while more := {each for each, fields in stats.items() if int(fields[1]) in found} - found:
        found |= more
    return found


def _stat(file: Path) -> list[str]:
    try:
        return file.read_text().rpartition(")")[2].split()
    except OSError:
        return []  # the process has ended


def resident_mib(pid: int) -> float:
    return _status_mib(pid, "VmRSS")


def private_mib(pid: int) -> float:
    """Anonymous memory of the process, without mapped files."""
    return _status_mib(pid, "RssAnon")


def written_bytes(pid: int) -> int:
    """Bytes that the process caused to be written to disks, mapped pages included."""
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
    """Steal time: CPU time that the hypervisor gave to other guests since boot."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / _TICKS


def busy_seconds() -> float:
    """CPU time that all processes and the kernel used since boot."""
    user, nice, system, _, _, irq, soft_irq = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, soft_irq))) / _TICKS


def new_page_us(size: int = _MAPPED_BYTES) -> float:
    """CPU time of the first write to a page of a new file, as every broker's log needs it."""
    pages = size // mmap.PAGESIZE
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, size)
        with mmap.mmap(file.fileno(), size) as view:
            begin = time.process_time()
            for at in range(0, size, mmap.PAGESIZE):
                view[at] = 1
            return (time.process_time() - begin) / pages * 1e6


def machine() -> str:
    """One line with the hardware, the software versions and the date."""
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
