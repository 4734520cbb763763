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


SIGNED = ("-DSIGNED",), ("-lcrypto",)
"""How the generator for brokers is compiled to sign its requests; needs the headers of OpenSSL."""
PLAIN: tuple[tuple[str, ...], tuple[str, ...]] = (), ()


def compile_generator(name: str, options: tuple[tuple[str, ...], tuple[str, ...]] = PLAIN) -> Path:
    """Compile `<name>.c` into .cache, once for each version of the source and of the options.

    Args:
        options: of the compiler, those before and those after the source.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("the load generator needs a C compiler such as gcc")
    source = Path(__file__).with_name(f"{name}.c")
    content = source.read_bytes() + repr(options if any(options) else "").encode()
    digest = hashlib.sha256(content).hexdigest()[:8]
    before, after = options
    target = apache.cache_directory().with_name("bench") / f"{name}-{digest}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", *before, "-o", str(partial), str(source), *after]
        subprocess.run(command, check=True)
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
