"""`LocalFiles`; `HadoopFiles` runs the same contract in tests/spark."""

from pathlib import Path

from bolide.spark.archive.files import LocalFiles
from tests.unit.spark.archive.contract import check_files


def test_files_are_made_whole_moved_and_deleted(tmp_path: Path) -> None:
    check_files(LocalFiles(tmp_path / "table"))
