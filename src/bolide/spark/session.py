"""A Spark session with defaults for messages: UTC, quiet logs, small shuffles, own Python."""

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
    """Get the session of this process, or create it; the data sources are found by their names.

    Call it once in every thread that starts streams to `rocketmq`: see `activate`.

    Args:
        app: the name of the Spark application.
        name_server: default NameServers of the source `rocketmq`; else those of NAMESRV_ADDR.
        master: the Spark master; if its workers have Python elsewhere, set PYSPARK_PYTHON.
        conf: Spark settings; they override the defaults chosen here.

    Raises:
        ConfigError: Spark's JVM was started for other NameServers.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    chosen = settings(name_server, master, conf or {})
    # The JVM starts the Python process that looks up data sources with its own environment, which
    # Spark settings do not reach.
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
    """Make the session active in this thread, so that streams started here find their sinks.

    Spark 4.3 looks up a Python sink only in the active session, which is set only in the thread
    that created the session.
    """
    kind: Any = type(spark)
    kind._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)  # noqa: SLF001


def _silence_query_loggers() -> None:
    """pyspark logs query errors as pages of JSON, in addition to raising them."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _check_name_server(spark: "SparkSession", wanted: str | None) -> None:
    """A JVM keeps the environment it was started with, from one session to the next."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001  no public accessor
    known = jvm.System.getenv("NAMESRV_ADDR") if jvm else wanted
    if wanted and known != wanted:
        raise ConfigError(
            f"Spark's JVM in this process was started for the NameServers {known or '(none)'}:"
            f" give {wanted} as the option nameServer, or start a new process"
        )


def settings(name_server: str | None, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The Spark settings of a session."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.debug.maxToStringFields": "100",  # else it warns about long plans
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
    """The NameServers that the session was created with."""
    return spark.conf.get(_NAME_SERVER, None)
