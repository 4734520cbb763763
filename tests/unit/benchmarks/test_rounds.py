import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.brokers import Running
from benchmarks.compare.rounds import LoadResult, Meter

# Burns the CPU seconds given by each input line.
_WORKER = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    end = time.process_time() + float(line)
    while time.process_time() < end:
        pass
"""
_BUSY_WHEN_IDLE = """
import time
print("ready", flush=True)
while True:
    end = time.process_time() + 0.006
    while time.process_time() < end:
        pass
    time.sleep(0.014)
"""


@contextmanager
def server(program: str) -> Iterator[tuple[Running, subprocess.Popen[str]]]:
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield Running("x", process.pid, (1,), (process.pid,), "", 0.0, 0.0, process.kill), process
        process.kill()


def burn(process: subprocess.Popen[str], seconds: float) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()


def test_work_after_the_load_is_counted() -> None:
    with server(_WORKER) as (broker, process):
        with Meter(broker, patience=20.0) as meter:
            burn(process, 0.5)
        found = meter.round(LoadResult(100, 0.25, 0.0))
    assert found.used.cpu_seconds >= 0.5
    assert found.used.later_cpu_seconds >= 0.4
    assert found.per_second == 400, "the rate is the client's"


def test_without_patience_the_measurement_ends_with_the_block() -> None:
    with server(_WORKER) as (broker, process):
        begin = time.perf_counter()
        with Meter(broker, patience=0.0) as meter:
            burn(process, 5.0)
        assert time.perf_counter() - begin < 2
        assert meter.used().cpu_seconds < 2


def test_idle_usage_does_not_count_as_work_after_the_load() -> None:
    with server(_BUSY_WHEN_IDLE) as (broker, _):
        with Meter(broker, patience=20.0) as meter:
            pass
        used = meter.used()
    assert used.later_cpu_seconds <= used.cpu_seconds < 0.05


def test_the_wait_for_a_busy_broker_is_bounded() -> None:
    with server(_WORKER) as (broker, process):
        begin = time.perf_counter()
        with Meter(broker, patience=0.4) as meter:
            burn(process, 60.0)
        assert time.perf_counter() - begin < 10
        assert meter.used().cpu_seconds > 0


def test_a_failed_load_is_not_waited_for() -> None:
    with server(_WORKER) as (broker, process):
        begin = time.perf_counter()
        with pytest.raises(ValueError, match="failed"), Meter(broker, patience=20.0):
            burn(process, 60.0)
            raise ValueError("it failed")
        assert time.perf_counter() - begin < 10
