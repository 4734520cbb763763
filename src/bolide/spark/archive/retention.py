"""Old hours taken out of an archive, and remembered as taken out."""

from datetime import datetime

from bolide.spark.archive.reading import hour_of
from bolide.spark.archive.table import TableWriter


def drop_before(writer: TableWriter, moment: datetime) -> int:
    """Delete the files of hours that were over at `moment`; returns how many rows they had."""
    last = hour_of(moment)
    old = [each for each in writer.state().files_of() if each.hour < last]
    if old:
        writer.commit("drop", [], [each.path for each in old])
    return sum(each.rows for each in old)
