"""A Spark session that suits messages: UTC, quiet, small shuffles, this Python for its workers."""

import logging
import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bolide.errors import ConfigError

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

    Call it once in every thread that starts streams to `rocketmq`: see `activate`.

    Args:
        app: how Spark calls it.
        name_server: NameServers that `rocketmq` reads from where no option says so; else those of
            NAMESRV_ADDR.
        master: where it runs; workers whose Python is elsewhere need PYSPARK_PYTHON to say so.
        conf: settings of Spark; they beat the ones chosen here.

    Raises:
        ConfigError: Spark's JVM was started for other NameServers.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    chosen = settings(name_server, master, conf or {})
    # The JVM starts the Python that looks for sources, with its own environment: settings of Spark
    # do not reach it.
    os.environ.setdefault("PYSPARK_PYTHON", chosen.get(_PYTHON, sys.executable))
    if _NAME_SERVER in chosen:
        os.environ["NAMESRV_ADDR"] = chosen[_NAME_SERVER]
    builder = SparkSession.builder.appName(app).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    _check_name_server(made, name_server)
    made.sparkContext.setLogLevel("WARN")
    _silence_query_loggers()
    activate(made)
    return made


def activate(spark: "SparkSession") -> None:
    """Have streams that this thread starts find their sinks.

    Spark 4.3 looks for a sink in Python only in the active session, and of all threads only the
    one that made the session has one.
    """
    kind: Any = type(spark)
    kind._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)  # noqa: SLF001


def _silence_query_loggers() -> None:
    """pyspark logs pages of JSON of an error in a query, and raises it too."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _check_name_server(spark: "SparkSession", wanted: str | None) -> None:
    """A JVM keeps the environment that it was started with, also from one session to the next."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001  there is no other way to ask
    known = jvm.System.getenv("NAMESRV_ADDR") if jvm else wanted
    if wanted and known != wanted:
        raise ConfigError(
            f"Spark's JVM in this process was started for the NameServers {known or 'of nobody'}:"
            f" give {wanted} as the option nameServer, or start a new process"
        )


def settings(name_server: str | None, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """What the session is told."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.debug.maxToStringFields": "100",  # else it warns of plans with all our columns
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
