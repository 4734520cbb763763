"""The load generators: C programs beside this file, compiled when a benchmark needs one."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop import apache


class GeneratorFailed(Exception):
    """A load generator ended badly; what it said is in the text."""


def compile_generator(name: str) -> Path:
    """The program of `<name>.c`, below .cache; each state of the source has its own."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("the load generator needs a C compiler: install gcc")
    source = Path(__file__).with_name(f"{name}.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
    target = apache.cache_directory().with_name("bench") / f"{name}-{digest}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O2", "-o", str(partial), str(source)], check=True)
        partial.replace(target)
    return target


def run_generator(program: Path, *arguments: object) -> Any:
    """What it printed."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    said = done.stderr.strip()[:500]
    if done.returncode:
        raise GeneratorFailed(f"{program.name} ended with exit code {done.returncode}: {said}")
    if said:
        print(said, file=sys.stderr)
    return json.loads(done.stdout)
