"""The package as one archive that Spark ships to workers on which Bolide is not installed.

Workers need Python of the driver's minor version with pyspark and pyarrow, as every PySpark job
does; the bundle contains the rest. Compiled modules are those of the driver's platform.
"""

import tarfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from bolide.errors import BolideError

ALIAS = "bolide-bundle"
"""The directory beside every executor into which Spark unpacks the bundle."""

_PACKAGES = ("bolide", "pyspark_rocketmq", "pyspark_rocketmq_commitlog", "msgspec")
_CODECS = ("lz4", "zstandard")
_LEFT_OUT = (".pyc", ".pyx", ".pxd", ".c")


class PackageMissing(BolideError):
    """A package that the bundle needs is not installed on the driver."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the bundle needs the package {name!r}: install it where the driver runs")
        self.name = name


def write_bundle(path: Path) -> Path:
    """Write the packages that workers need into a .tar.gz.

    Raises:
        PackageMissing: a package is not installed on the driver.
    """
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        for name in _PACKAGES:
            _add(archive, name, _require(name))
        for name in _CODECS:
            if (found := _find(name)) is not None:
                _add(archive, name, found)
    return path


def ship_settings(bundle: Path) -> dict[str, str]:
    """Spark settings that ship the bundle to executors and put it first on their import path."""
    return {
        "spark.archives": f"{bundle.resolve()}#{ALIAS}",
        "spark.executorEnv.PYTHONPATH": f"./{ALIAS}",
    }


def _require(name: str) -> Path:
    found = _find(name)
    if found is None:
        raise PackageMissing(name)
    return found


def _find(name: str) -> Path | None:
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _add(archive: tarfile.TarFile, name: str, directory: Path) -> None:
    for file in sorted(_files(directory)):
        archive.add(file, f"{name}/{file.relative_to(directory).as_posix()}")


def _files(directory: Path) -> Iterator[Path]:
    for file in directory.rglob("*"):
        if file.is_file() and file.suffix not in _LEFT_OUT:
            yield file
