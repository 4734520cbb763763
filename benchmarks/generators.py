"""The load generators: C programs beside this file, compiled when a benchmark needs one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop import apache


def compile_generator(name: str) -> Path:
    """The program of `<name>.c`, below .cache."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("the load generator needs a C compiler: install gcc")
    target = apache.cache_directory().with_name("bench") / name
    target.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run([compiler, "-O2", "-o", str(target), str(source)], check=True)
    return target


def run_generator(program: Path, *arguments: object) -> Any:
    """What it printed."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.stderr:
        print(done.stderr.strip()[:500], file=sys.stderr)
    if done.returncode:
        sys.exit(f"{program.name} ended with exit code {done.returncode}")
    return json.loads(done.stdout)
