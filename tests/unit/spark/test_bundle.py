"""The bundle for workers: what is in it, and that it runs where nothing is installed."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from bolide.spark import bundle
from bolide.spark.bundle import PackageMissing, ship_settings, write_bundle

PROGRAM = """
import sys
import bolide.client.producer.producer, bolide.kernel, pyspark_rocketmq, pyspark_rocketmq_commitlog
print(bolide.__file__)
"""


def test_a_bundle_runs_where_the_package_is_not_installed(tmp_path: Path) -> None:
    packed = write_bundle(tmp_path / "bundle.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    pyspark = Path(next(iter(__import__("pyspark").__path__))).parent
    (tmp_path / "worker").mkdir()
    for name in ("pyspark", "py4j", "pyarrow", "numpy", "pandas", "pytz", "dateutil"):
        if (pyspark / name).exists():
            (tmp_path / "worker" / name).symlink_to(pyspark / name)
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],
        env={"PYTHONPATH": f"{tmp_path / 'there'}:{tmp_path / 'worker'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(tmp_path / "there" / "bolide" / "__init__.py"), done.stderr


def test_a_bundle_leaves_out_what_workers_do_not_read(tmp_path: Path) -> None:
    packed = write_bundle(tmp_path / "bundle.tar.gz")
    with tarfile.open(packed) as archive:
        names = archive.getnames()
    assert "bolide/kernel/records.py" in names
    assert not [name for name in names if name.endswith((".pyc", ".pyx"))]


def test_a_package_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_PACKAGES", ("bolide", "no_such_package"))
    with pytest.raises(PackageMissing, match="'no_such_package'"):
        write_bundle(tmp_path / "bundle.tar.gz")


def test_executors_look_into_the_bundle_first(tmp_path: Path) -> None:
    settings = ship_settings(tmp_path / "b.tar.gz")
    assert settings["spark.archives"] == f"{tmp_path / 'b.tar.gz'}#bolide-bundle"
    assert settings["spark.executorEnv.PYTHONPATH"] == "./bolide-bundle"
