"""Runs the targets under atheris, each for some minutes, and reports: `make fuzz`.

Inputs that increase coverage are kept in `.cache/fuzz/corpus/TARGET`, so that the next run goes on
from them; inputs that fail are in `.cache/fuzz/findings/TARGET`.
"""

import argparse
import hashlib
import os
import re
import site
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.targets import BY_NAME, TARGETS, Target

ROOT = Path(".cache") / "fuzz"
REGRESSIONS = Path("tests") / "fuzz" / "regressions"
_STATUS = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+) .*?corp: (\d+)", re.MULTILINE)
_DONE = re.compile(r"^Done (\d+) runs|stat::number_of_executed_units: (\d+)", re.MULTILINE)
_MAX_LENGTH = 4096
_INPUT_TIMEOUT = 20
_MEMORY_MB = 3000


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one target."""

    target: str
    seconds: float
    executions: int
    coverage: int
    corpus: int
    findings: list[Path]
    output: str
    code: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="by default all of them")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.targets if name not in BY_NAME]:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    chosen = [BY_NAME[name] for name in given.targets] or TARGETS
    reports = []
    print(f"{'target':16} {'seconds':>8} {'runs':>10} {'coverage':>9} {'corpus':>7}  findings")
    for target in chosen:
        report = fuzz(target, given.minutes * 60)
        reports.append(report)
        print(
            f"{report.target:16} {report.seconds:8.0f} {report.executions:10} {report.coverage:9}"
            f" {report.corpus:7}  {len(report.findings) or '-'}",
            flush=True,
        )
    failed = [report for report in reports if report.findings or report.code]
    for report in failed:
        _explain(report)
    return bool(failed)


def fuzz(target: Target, seconds: float) -> Report:
    """Run one target until the time is over or an input fails."""
    corpus, findings = ROOT / "corpus" / target.name, ROOT / "findings" / target.name
    for directory in (corpus, findings):
        directory.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    known = set(findings.iterdir())
    command = [
        sys.executable, "-m", "tests.fuzz.guided", target.name, str(corpus),
        f"-max_total_time={max(int(seconds), 1)}", f"-artifact_prefix={findings}/",
        f"-max_len={_MAX_LENGTH}", f"-timeout={_INPUT_TIMEOUT}", f"-rss_limit_mb={_MEMORY_MB}",
        "-print_final_stats=1",
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, errors="replace", check=False
    )
    output = done.stdout + done.stderr
    status = _STATUS.findall(output)
    runs = _DONE.findall(output)
    return Report(
        target=target.name,
        seconds=time.monotonic() - began,
        executions=int(runs[-1][0] or runs[-1][1]) if runs else 0,
        coverage=int(status[-1][1]) if status else 0,
        corpus=int(status[-1][2]) if status else 0,
        findings=sorted(set(findings.iterdir()) - known),
        output=output,
        code=done.returncode,
    )


def _environment() -> dict[str, str]:
    """Have the kernel that was built for AddressSanitizer imported, with its runtime."""
    (runtime,) = (
        path
        for directory in site.getsitepackages()
        for path in Path(directory).glob("asan_with_fuzzer.so")
    )
    return os.environ | {
        "LD_PRELOAD": str(runtime),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",  # AddressSanitizer must see each object
        "PYTHONPATH": str(ROOT / "lib"),
    }


def _explain(report: Report) -> None:
    print(f"\n---- {report.target}\n")
    lines = [line for line in report.output.splitlines() if not line.startswith("INFO: Instr")]
    print("\n".join(lines[-60:]))
    for path in report.findings:
        print(
            f"\nFound {path}. Run it again:\n"
            f'    python -c "from tests.fuzz.targets import BY_NAME;'
            f" BY_NAME['{report.target}'](open('{path}', 'rb').read())\"\n"
            f"Keep it as a test, which fails until the code is mended:\n"
            f"    mkdir -p {REGRESSIONS / report.target} &&"
            f" cp {path} {REGRESSIONS / report.target}/what-is-wrong"
        )


if __name__ == "__main__":
    sys.exit(main())
