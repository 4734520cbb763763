"""Checks of the machine that asks: the package, its limits, and what Spark needs."""

import asyncio
import importlib.util
import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bolide import kernel
from bolide.doctor.findings import Finding, Severity

_PATIENCE = 5.0
_JAVA_NEEDED = 17
"""The oldest Java that Spark 4 runs on."""
_FEW_FILES = 65_536
_FEW_MAPS = 65_530
_SUBJECT = "this machine"
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What concerns Bolide on this machine."""

    is_compiled: bool
    is_plain_chosen: bool = False
    """Whether BOLIDE_KERNEL=python asks for plain Python."""
    open_files: int
    """The hard limit, to which servers raise theirs."""
    maps: int | None
    """The limit of memory maps of a process; None where there is none."""
    has_spark: bool
    java: str = ""
    """Path of the java program that Spark would use; empty without one."""
    java_version: int | None = None
    python: str = ""
    """What PYSPARK_PYTHON names; empty if it is not set."""
    python_version: tuple[int, int] | None = None
    has_packages: bool = True
    """Whether that Python has the packages that Spark's workers need."""


async def look(environment: Mapping[str, str] | None = None) -> MachineFacts:
    """Collect the facts; runs java and the Python of Spark, side by side."""
    environment = os.environ if environment is None else environment
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    has_spark = importlib.util.find_spec("pyspark") is not None
    java, python = _java(environment), environment.get("PYSPARK_PYTHON", "")
    java_text, python_text = await asyncio.gather(
        _output(java, "-version") if has_spark and java else _nothing(),
        _output(python, "-c", _PYTHON_PROBE) if has_spark and python else _nothing(),
    )
    found = _JAVA_VERSION.search(java_text)
    words = python_text.split()
    return MachineFacts(
        is_compiled=kernel.COMPILED,
        is_plain_chosen=environment.get("BOLIDE_KERNEL") == "python",
        open_files=sys.maxsize if hard == resource.RLIM_INFINITY else hard,
        maps=_map_limit(),
        has_spark=has_spark,
        java=java,
        java_version=int(found[1]) if found else None,
        python=python,
        python_version=(int(words[0]), int(words[1])) if len(words) == 3 else None,
        has_packages=words[2:] != ["False"],
    )


_PYTHON_PROBE = (
    "import sys, importlib.util as u;"
    " print(*sys.version_info[:2], all(map(u.find_spec, ('pyspark', 'pyarrow', 'bolide'))))"
)


def check(facts: MachineFacts) -> Iterator[Finding]:
    yield _kernel(facts)
    yield _files(facts)
    yield _maps(facts)
    if facts.has_spark:
        yield _java_version(facts)
        yield _python(facts)
    else:
        yield Finding(
            id="spark", severity=Severity.NOTE, subject=_SUBJECT,
            measured="pyspark is not installed.",
            why="`bolide pipeline` and `bolide sql` need it; brokers and clients do not.",
            command='pip install "bolide[spark]"',
        )  # fmt: skip


def _kernel(facts: MachineFacts) -> Finding:
    if facts.is_compiled:
        return _ok("compiled-kernel", "The compiled modules are in use.")
    if facts.is_plain_chosen:
        measured, command = "BOLIDE_KERNEL=python chooses plain Python.", "unset BOLIDE_KERNEL"
    else:
        measured = "The compiled modules are missing; plain Python is in use."
        command = "pip install Cython && pip install --force-reinstall --no-binary bolide bolide"
    return Finding(
        id="compiled-kernel", severity=Severity.WARNING, subject=_SUBJECT, measured=measured,
        why="Servers and clients here are several times slower. The modules are built at the"
        " installation, which needs a C compiler and the headers of Python.",
        command=command,
    )  # fmt: skip


def _files(facts: MachineFacts) -> Finding:
    if facts.open_files >= _FEW_FILES:
        return _ok("open-files", f"A process may open {_count(facts.open_files)} files.")
    return Finding(
        id="open-files", severity=Severity.WARNING, subject=_SUBJECT,
        measured=f"A process may open {facts.open_files} files.",
        why="A broker needs one for each connection and each queue. (This concerns servers on this"
        " machine.)",
        command="echo '* - nofile 1048576' | sudo tee /etc/security/limits.d/bolide.conf",
    )  # fmt: skip


def _maps(facts: MachineFacts) -> Finding:
    if facts.maps is None:
        return Finding(
            id="memory-maps", severity=Severity.UNKNOWN, subject=_SUBJECT,
            measured="This system does not tell how many files a process may map.",
        )  # fmt: skip
    if facts.maps >= _FEW_MAPS:
        return _ok("memory-maps", f"A process may map {facts.maps} files into memory.")
    return Finding(
        id="memory-maps", severity=Severity.WARNING, subject=_SUBJECT,
        measured=f"A process may map {facts.maps} files into memory.",
        why="A broker maps each file of its log. (This concerns servers on this machine.)",
        command="sudo sysctl -w vm.max_map_count=655360",
    )  # fmt: skip


def _java_version(facts: MachineFacts) -> Finding:
    needed = f"Spark 4 needs Java {_JAVA_NEEDED} or newer."
    command = f"sudo apt install openjdk-{_JAVA_NEEDED}-jre-headless  # or set JAVA_HOME"
    if not facts.java:
        measured = "pyspark is installed, and there is no java: not in JAVA_HOME, not on PATH."
    elif facts.java_version is None:
        measured = f"{facts.java} -version does not tell a version."
    elif facts.java_version < _JAVA_NEEDED:
        measured = f"{facts.java} is Java {facts.java_version}."
    else:
        return _ok("java", f"{facts.java} is Java {facts.java_version}.")
    return Finding(
        id="java", severity=Severity.WARNING, subject=_SUBJECT, measured=measured,
        why=f"{needed} `bolide pipeline` and `bolide sql` do not start.", command=command,
    )  # fmt: skip


def _python(facts: MachineFacts) -> Finding:
    own = sys.version_info[:2]
    if not facts.python:
        measured = f"PYSPARK_PYTHON is not set, so Spark's workers run {sys.executable}."
        return _ok("pyspark-python", measured)
    if facts.python_version is None:
        measured = f"PYSPARK_PYTHON is {facts.python}, which does not run."
    elif facts.python_version != own:
        shown = ".".join(map(str, facts.python_version))
        measured = f"PYSPARK_PYTHON is {facts.python}, Python {shown}; this is {own[0]}.{own[1]}."
    elif not facts.has_packages:
        measured = f"PYSPARK_PYTHON is {facts.python}, which lacks pyspark, pyarrow or bolide."
    else:
        return _ok("pyspark-python", f"PYSPARK_PYTHON is {facts.python}, the same version.")
    return Finding(
        id="pyspark-python", severity=Severity.WARNING, subject=_SUBJECT, measured=measured,
        why="Spark's workers need the Python version of the driver, and its packages.",
        command=f"export PYSPARK_PYTHON={sys.executable}",
    )  # fmt: skip


def _ok(name: str, measured: str) -> Finding:
    return Finding(id=name, severity=Severity.OK, subject=_SUBJECT, measured=measured)


def _count(number: int) -> str:
    return "any number of" if number == sys.maxsize else str(number)


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        return str(program) if os.access(program, os.X_OK) else ""
    return shutil.which("java", path=environment.get("PATH")) or ""


def _map_limit() -> int | None:
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


async def _output(program: str, *words: str) -> str:
    """What a program prints on both streams; empty if it fails or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_PATIENCE):
            text, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:  # too late, or cancelled
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
    return text.decode(errors="replace") if process.returncode == 0 else ""


async def _nothing() -> str:
    return ""
