"""SQL over topics: the topics that a query names become temporary views."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from bolide.spark.view import UnknownTopic, Views, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MISSING = "TABLE_OR_VIEW_NOT_FOUND"
_KINDS = ("SQL", "DataFrame")


def query(
    spark: "SparkSession",
    text: str,
    views: Views,
    *,
    value_schemas: Mapping[str, str] | None = None,
    allow_gaps: bool = False,
) -> "DataFrame":
    """The frame of a query; topics that it names become temporary views.

    Raises:
        UnknownTopic: a table is neither a view nor a topic; names similar topics.
        AnalysisException: the query is invalid for another reason.
    """
    schemas = value_schemas or {}
    made: set[str] = set()
    try:
        while True:
            try:
                with unlogged():
                    return spark.sql(text)
            except AnalysisException as exc:
                name = _missing_table(exc)
                if name is None or name in made:
                    raise
            topic = _topic_of(name, views)
            frame = views.view(topic, value_schema=schemas.get(topic), allow_gaps=allow_gaps)
            register(frame, name)
            made.add(name)
    finally:
        for name in made:  # the next query resolves its topics anew
            spark.catalog.dropTempView(name)


@contextmanager
def unlogged() -> Iterator[None]:
    """Disable Spark's logging of query errors, which are raised anyway."""
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in _KINDS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _missing_table(exc: AnalysisException) -> str | None:
    if exc.getCondition() != _MISSING:
        return None
    name = (exc.getMessageParameters() or {})["relationName"]
    return name.strip("`").replace("`.`", ".").replace("``", "`")


def _topic_of(name: str, views: Views) -> str:
    """Topic names are case-sensitive, SQL is not: accept another case if only one topic matches."""
    if views.has(name):  # system topics exist too, but are not listed
        return name
    known = views.names()
    alike = [topic for topic in known if topic.lower() == name.lower()]
    if len(alike) != 1:
        raise UnknownTopic(name, known)
    return alike[0]
