"""How far a checkpoint of Spark is: read as Spark writes it, without starting a query.

`offsets/N` says what batch N reads, `commits/N` that it is done. A file of offsets has the line
`v1`, a line about the batch, and one line of JSON for each source.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from bolide.arrow.errors import BadPosition
from bolide.arrow.offsets import from_plain
from bolide.model.message_queue import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reached(NamedTuple):
    """The last batch that is done, and where the next one starts."""

    batch: int
    offsets: dict[MessageQueue, int]


def find_reached(spark: "SparkSession", checkpoint: str) -> Reached | None:
    """What a checkpoint of one source has reached; None if it has no batch that is done."""
    folder = _Local(checkpoint) if _is_local(checkpoint) else _Remote(spark, checkpoint)
    done = set(folder.numbers("commits")) & set(folder.numbers("offsets"))
    if not done:
        return None
    last = max(done)
    return Reached(last, _offsets(folder.text("offsets", last)))


def _offsets(text: str) -> dict[MessageQueue, int]:
    """Of the sources that are ours."""
    found: dict[MessageQueue, int] = {}
    for line in text.splitlines()[2:]:
        try:
            found |= from_plain(json.loads(line))
        except (ValueError, BadPosition):  # another kind of source; "-" where one has none
            continue
    return found


def _is_local(checkpoint: str) -> bool:
    return urlsplit(checkpoint).scheme in {"", "file"}


class _Local:
    def __init__(self, checkpoint: str) -> None:
        self._root = Path(urlsplit(checkpoint).path)

    def numbers(self, part: str) -> list[int]:
        folder = self._root / part
        names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
        return [int(name) for name in names if name.isdecimal()]

    def text(self, part: str, number: int) -> str:
        return (self._root / part / str(number)).read_text(encoding="utf-8")


class _Remote:
    """By Hadoop's file systems, as Spark itself reads it."""

    def __init__(self, spark: "SparkSession", checkpoint: str) -> None:
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  Spark has no other way to a folder
        self._root = jvm.org.apache.hadoop.fs.Path(checkpoint)
        self._path = jvm.org.apache.hadoop.fs.Path
        context: Any = spark.sparkContext._jsc  # noqa: SLF001
        self._files = self._root.getFileSystem(context.hadoopConfiguration())

    def numbers(self, part: str) -> list[int]:
        folder = self._path(self._root, part)
        if not self._files.exists(folder):
            return []
        names = [status.getPath().getName() for status in self._files.listStatus(folder)]
        return [int(name) for name in names if name.isdecimal()]

    def text(self, part: str, number: int) -> str:
        file = self._path(self._path(self._root, part), str(number))
        found = self._spark.read.text(file.toString(), wholetext=True).head()
        return str(found[0]) if found else ""
