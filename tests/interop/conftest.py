"""Fixtures that start real Java processes; a release that cannot be had skips the test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import apache
from tests.interop.bench import Bench, Server
from tests.interop.processes import ChildProcess

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)


def obtain_or_skip(version: str) -> apache.Installation:
    try:
        return apache.obtain(version)
    except apache.Unobtainable as missing:
        pytest.skip(str(missing))


NEWEST = "5.x"
WITH_SERVERS = [
    # The suite has minutes, not hours: older releases are for `make test-long`.
    pytest.param(name, marks=() if name == NEWEST else pytest.mark.long)
    for name, release in apache.releases().items()
    if release.broker_class
]


@pytest.fixture(scope="session", params=WITH_SERVERS)
def rocketmq(request: pytest.FixtureRequest) -> str:
    """The name of each pinned release in turn: "5.x", and "4.9" among the long tests."""
    version: str = request.param
    obtain_or_skip(version)
    return version


@pytest.fixture
def java_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Its processes end with the test."""
    with Bench(tmp_path_factory.mktemp("java"), obtain_or_skip) as bench:
        yield bench


@pytest.fixture(scope="module")
def java_module_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Its processes end with the module: for servers that many tests share."""
    with Bench(tmp_path_factory.mktemp("java-module"), obtain_or_skip) as bench:
        yield bench


@pytest.fixture
def java_namesrv(java_bench: Bench) -> Callable[..., Server]:
    return java_bench.namesrv


@pytest.fixture
def java_broker(java_bench: Bench) -> Callable[..., Server]:
    return java_bench.broker


@pytest.fixture
def java_client(java_bench: Bench) -> Callable[..., ChildProcess]:
    return java_bench.client


@pytest.fixture
def java_mqadmin(java_bench: Bench) -> Callable[..., str]:
    return java_bench.mqadmin
