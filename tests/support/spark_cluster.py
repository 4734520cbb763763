"""Spark's standalone cluster on loopback, started from the installed pyspark."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.interop.processes import ChildProcess
from tests.support.ports import free_port

HOME = Path(pyspark.__file__).parent
_PATIENCE = 60


@dataclass
class StandaloneCluster:
    """`workers` are the processes that executors belong to: killing one kills its executors."""

    master: str
    workers: list[ChildProcess]


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[StandaloneCluster]:
    """One master and workers of one core and a gigabyte each."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = stack.enter_context(
            _daemon("master.Master", directory, "--port", str(port), "--webui-port", "0")
        )
        master.wait_for_line("I have been elected leader", _PATIENCE)
        started = [
            stack.enter_context(
                _daemon(
                    "worker.Worker", directory / f"worker-{number}", "--cores", "1",
                    "--memory", "1g", "--webui-port", "0",
                    "--work-dir", str(directory / f"worker-{number}"), address,
                )
            )
            for number in range(workers)
        ]  # fmt: skip
        for worker in started:
            worker.wait_for_line("Successfully registered with master", _PATIENCE)
        yield StandaloneCluster(address, started)


@contextmanager
def _daemon(name: str, directory: Path, *arguments: str) -> Iterator[ChildProcess]:
    directory.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    words = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    words += ["--host", "127.0.0.1", *arguments]
    with ChildProcess(f"spark {name}", words, environment) as process:
        yield process
