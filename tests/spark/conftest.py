"""One Spark session and one cluster for all tests here: each takes seconds to start."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.cluster_process import ClusterProcess, cluster_process

HERE = Path(__file__).resolve().parent
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Less than half the CPU time of a session with little data: most of it goes into compiling."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for the session, and a busy machine makes all of Spark slow."""
    for item in items:
        if item.path.is_relative_to(HERE) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the workers take any python3
    session = (
        SparkSession.builder.master("local[2]")
        .appName("bolide-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """A cluster that all share: topics of tests have names of their own, and it stays up."""
    with cluster_process(tmp_path_factory.mktemp("cluster")) as served:
        yield served


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """A cluster for one test, that may stop and kill what it likes."""
    with cluster_process(tmp_path_factory.mktemp("own-cluster")) as served:
        yield served
