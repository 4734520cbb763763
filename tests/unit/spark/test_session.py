import os
from importlib.resources import files
from pathlib import Path

import pytest

import bolide.spark
from bolide.spark.session import settings


@pytest.fixture(autouse=True)
def no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def test_a_local_session_is_in_utc_and_has_as_many_shuffles_as_cores() -> None:
    chosen = settings(None, "local[*]", {})

    assert chosen["spark.sql.session.timeZone"] == "UTC"
    assert chosen["spark.sql.shuffle.partitions"] == str(os.cpu_count())
    assert chosen["spark.driver.memory"] == "2g"
    assert "spark.executorEnv.NAMESRV_ADDR" not in chosen


def test_a_cluster_decides_its_shuffles_and_hosts_itself() -> None:
    chosen = settings(None, "spark://master:7077", {})

    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.driver.host" not in chosen


def test_what_the_user_says_wins() -> None:
    chosen = settings("ns:9876", "local[2]", {"spark.driver.memory": "8g", "spark.x": "y"})

    assert chosen["spark.driver.memory"] == "8g"
    assert chosen["spark.x"] == "y"


def test_workers_are_told_the_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:9876")

    assert settings(None, "local", {})["spark.executorEnv.NAMESRV_ADDR"] == "env:9876"
    assert settings("ns:9876", "local", {})["spark.executorEnv.NAMESRV_ADDR"] == "ns:9876"


def test_the_logging_of_the_jvm_is_in_the_package() -> None:
    option = settings(None, "local", {})["spark.driver.extraJavaOptions"]

    assert Path(option.partition("=")[2]).is_file()
    assert (files(bolide.spark) / "log4j2.properties").is_file()
