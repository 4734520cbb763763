"""What dead letters tell: whose they are, what they were, how often they were tried, and why.

RocketMQ keeps no reason with a dead letter. What its properties tell is the topic it came from
(RETRY_TOPIC) and its first id (ORIGIN_MESSAGE_ID); how often it was tried is a field of its own.
A consumer that knows more may say so in a property before it gives up.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from bolide.model.names import DEAD_LETTER_PREFIX
from bolide.model.properties import PropertyName

CAUSE_PROPERTIES: Final = ("FAILURE_CAUSE", "EXCEPTION", "ERROR")
"""Where a cause is looked for if nothing else is said."""

PLACE: Final = ("dead_topic", "broker", "queue_id", "queue_offset")
"""Columns of a list that say where a dead letter is."""

_LONGEST_CAUSE = 200


def letters(messages: DataFrame, cause_properties: Iterable[str] = ()) -> DataFrame:
    """One row a dead letter, of messages of %DLQ% topics as the source `rocketmq` reads them."""
    return messages.select(
        fn.expr(f"substring(topic, {len(DEAD_LETTER_PREFIX) + 1})").alias("group_name"),
        _first_property(PropertyName.DEAD_LETTER_ORIGIN_TOPIC, PropertyName.RETRY_TOPIC).alias(
            "origin_topic"
        ),
        "message_id",
        _first_property(
            PropertyName.DEAD_LETTER_ORIGIN_MESSAGE_ID, PropertyName.ORIGIN_MESSAGE_ID
        ).alias("origin_message_id"),
        "keys",
        "tags",
        fn.col("reconsume_times").alias("tries"),
        "born_timestamp",
        fn.col("store_timestamp").alias("died"),
        _cause([*cause_properties, *CAUSE_PROPERTIES]).alias("cause"),
        fn.col("topic").alias("dead_topic"),
        "broker",
        "queue_id",
        "queue_offset",
    )


def causes(found: DataFrame) -> DataFrame:
    """How many died of what, the most frequent first; numbers in texts are left out of account."""
    alike = found.withColumn("cause", _without_numbers(fn.col("cause")))
    grouped = alike.groupBy("group_name", "origin_topic", "tags", "cause").agg(
        fn.count("*").alias("messages"),
        fn.min("died").alias("first"),
        fn.max("died").alias("last"),
        fn.min_by("message_id", "died").alias("such_as"),
    )
    return grouped.orderBy(fn.desc("messages"), "group_name", "origin_topic", "tags", "cause")


def by_time(found: DataFrame, width: float) -> DataFrame:
    """How many died per group and window of `width` seconds."""
    window = fn.window("died", f"{width} seconds")["start"].alias("window_start")
    counted = found.groupBy(window, "group_name").agg(fn.count("*").alias("messages"))
    return counted.orderBy("window_start", "group_name")


def redrive_list(found: DataFrame) -> DataFrame:
    """What `replay` needs to find each again, and people to choose among them."""
    return found.orderBy(*PLACE)


def _first_property(*names: str) -> Column:
    return fn.coalesce(*(fn.col("properties")[name] for name in names))


def _cause(names: Iterable[str]) -> Column:
    said = fn.substring(_first_property(*names), 1, _LONGEST_CAUSE)
    tried = fn.when(fn.col("reconsume_times") <= 1, "given up at the first try").otherwise(
        fn.concat(fn.lit("given up after "), fn.col("reconsume_times"), fn.lit(" tries"))
    )
    return fn.coalesce(said, tried)


def _without_numbers(text: Column) -> Column:
    """`order 4711 at 0x7f3a` and `order 4712 at 0x7f3b` died of the same."""
    hexadecimal = r"\b(0[xX][0-9a-fA-F]+|[0-9a-fA-F]{16,})\b"
    plain = fn.regexp_replace(text, hexadecimal, "#")
    kept = fn.col("cause").startswith("given up after ")
    return fn.when(kept, text).otherwise(fn.regexp_replace(plain, r"\d+", "#"))
