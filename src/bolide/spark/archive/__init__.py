"""Archives of topics: Parquet by topic and hour, each message once; `manifest` has the layout."""

from bolide.spark.archive.errors import (
    ArchiveGap,
    LeaseLost,
    NoArchive,
    OtherLog,
    OtherSettings,
    SeamGap,
    TableBusy,
)
from bolide.spark.archive.reading import read_archive
from bolide.spark.archive.table import ArchiveTable, Settings

__all__ = [
    "ArchiveGap",
    "ArchiveTable",
    "LeaseLost",
    "NoArchive",
    "OtherLog",
    "OtherSettings",
    "SeamGap",
    "Settings",
    "TableBusy",
    "read_archive",
]
