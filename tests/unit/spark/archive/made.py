"""Archive tables built without Spark: data files contain a word instead of rows."""

from pathlib import Path

from bolide.spark.archive.files import Files, LocalFiles
from bolide.spark.archive.manifest import DataFile, QueueSpan
from bolide.spark.archive.table import ArchiveTable, TableWriter


def table_in(root: Path) -> ArchiveTable:
    return ArchiveTable(LocalFiles(root))


def stage(
    writer: TableWriter,
    first: int,
    last: int,
    *,
    hour: str = "2026-07-01-05",
    topic: str = "orders",
    queue_id: int = 0,
) -> DataFile:
    """A file that Spark could have written, with the rows of one queue."""
    path = f"{writer.new_staging()}/topic={topic}/hour={hour}/part-0.parquet"
    data = f"{topic} {queue_id} {first} {last}".encode()
    writer.files.write_new(path, data)
    span = QueueSpan("broker-a", queue_id, first, last, last - first + 1)
    return DataFile(path, topic, hour, len(data), (span,))


def plain_rows(files: Files) -> list[str]:
    """The files that a reader without the manifest sees."""
    found = [each.path for each in files.walk(".") if each.path.startswith("topic=")]
    return sorted(files.read(path).decode() for path in found)


def manifest_rows(table: ArchiveTable) -> list[str]:
    return sorted(table.files.read(each.path).decode() for each in table.state().files_of())
