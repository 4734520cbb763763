"""A Spark session that suits messages: UTC, quiet, small shuffles, this Python for its workers."""

import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME_SERVER = "spark.executorEnv.NAMESRV_ADDR"
_PYTHON = "spark.pyspark.python"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(
    app: str = "bolide",
    *,
    name_server: str | None = None,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> "SparkSession":
    """The session of this process, made if there is none; the sources are found by their names.

    Args:
        app: how Spark calls it.
        name_server: NameServers that `rocketmq` reads from where no option says so.
        master: where it runs; workers whose Python is elsewhere need PYSPARK_PYTHON to say so.
        conf: settings of Spark; they beat the ones chosen here.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    chosen = settings(name_server, master, conf or {})
    # The JVM looks for sources with the Python of its environment, whatever its settings say.
    os.environ.setdefault("PYSPARK_PYTHON", chosen.get(_PYTHON, sys.executable))
    builder = SparkSession.builder.appName(app).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("WARN")
    return made


def settings(name_server: str | None, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """What the session is told."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.ui.showConsoleProgress": "false",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={files(__package__) / 'log4j2.properties'}",
    }
    if master.startswith("local"):
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        }
    address = name_server or os.environ.get("NAMESRV_ADDR")
    if address:
        chosen[_NAME_SERVER] = address
    return chosen | dict(conf)


def find_name_server(spark: "SparkSession") -> str | None:
    """The NameServers that the session was made with."""
    return spark.conf.get(_NAME_SERVER, None)
