"""Lists of messages in files: what `dlq` writes and `replay` reads."""

from pathlib import PurePosixPath

from pyspark.sql import DataFrame, SparkSession

from bolide.spark.archive.files import files_at

_LINES = (".jsonl", ".json", ".ndjson")
_WORDS = (".txt", ".ids")


def write_list(rows: DataFrame, path: str) -> None:
    """One file of JSON lines if the name ends so, else a directory of Parquet; replaces the old.

    Only a list that fits into the driver's memory should be one file.
    """
    if PurePosixPath(path).suffix not in _LINES:
        rows.coalesce(1).write.mode("overwrite").parquet(path)
        return
    lines = [row[0] for row in rows.selectExpr("to_json(struct(*))").collect()]
    place = PurePosixPath(path)
    text = "".join(f"{line}\n" for line in lines)
    files_at(rows.sparkSession, str(place.parent)).overwrite(place.name, text.encode())


def read_list(spark: SparkSession, path: str) -> DataFrame:
    """Parquet, JSON lines (.jsonl), or message ids line by line (.txt): a column `message_id`."""
    suffix = PurePosixPath(path).suffix
    if suffix in _LINES:
        return spark.read.json(path)
    if suffix in _WORDS:
        return (
            spark.read.text(path).selectExpr("trim(value) as message_id").where("message_id != ''")
        )
    return spark.read.parquet(path)
