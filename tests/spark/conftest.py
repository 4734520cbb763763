"""One Spark session and one cluster for all tests here: each takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.cluster_process import ClusterProcess, cluster_process


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("bolide-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
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
