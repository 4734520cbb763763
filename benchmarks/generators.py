"""Compile and run the load generators, the C programs in this directory."""

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
    """A load generator failed; the text has its output."""


def compile_generator(name: str) -> Path:
    """Compile `<name>.c` into .cache, once for each version of the source."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("the load generator needs a C compiler such as gcc")
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
    """Run the program and return the JSON value that it printed."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    errors = done.stderr.strip()[:500]
    if done.returncode:
        raise GeneratorFailed(f"{program.name} failed with exit code {done.returncode}: {errors}")
    if errors:
        print(errors, file=sys.stderr)
    return json.loads(done.stdout)
