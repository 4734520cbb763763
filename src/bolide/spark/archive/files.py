"""The file operations of an archive table, on local disks and on Hadoop file systems.

Paths are relative to the table, with `/` between their parts. `LocalFiles` syncs what it writes;
`HadoopFiles` uses Spark's JVM, and so reaches the file systems that Spark reaches (hdfs, s3a, …).
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileEntry(NamedTuple):
    """A file below a directory; `path` is relative to the table."""

    path: str
    size: int


class Files(Protocol):
    """Operations raise FileNotFoundError, FileExistsError or another OSError."""

    @property
    def url(self) -> str:
        """The location of the table as Spark expects it."""

    def read(self, path: str) -> bytes: ...

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file atomically; of several concurrent writers exactly one succeeds."""

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a file; a reader may briefly see a partial file."""

    def names(self, directory: str) -> list[str]:
        """Sorted names in a directory; empty if the directory does not exist."""

    def walk(self, directory: str) -> Iterator[FileEntry]:
        """All files below a directory, sorted."""

    def exists(self, path: str) -> bool: ...

    def move(self, path: str, target: str) -> None:
        """Move a file, creating directories as needed. Raises FileNotFoundError."""

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its contents; a missing path is no error."""


def files_at(spark: "SparkSession", path: str) -> Files:
    """The files of the table at `path`, resolved as Spark resolves it."""
    remote = HadoopFiles(spark, path)
    return LocalFiles(remote.local_path) if remote.is_local else remote


class LocalFiles:
    """Files on a local disk, or on a mount that Spark's workers share."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()

    @property
    def url(self) -> str:
        return f"file://{self._root}"  # unescaped: Hadoop takes paths literally

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def write_new(self, path: str, data: bytes) -> None:
        target = self._root / path
        aside = self._write_aside(target, data)
        try:
            target.hardlink_to(aside)
        finally:
            aside.unlink()
        _sync(target.parent)

    def overwrite(self, path: str, data: bytes) -> None:
        target = self._root / path
        self._write_aside(target, data).replace(target)

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(each.name for each in (self._root / directory).iterdir())
        except FileNotFoundError:
            return []

    def walk(self, directory: str) -> Iterator[FileEntry]:
        for path in sorted((self._root / directory).rglob("*")):
            if path.is_file():
                yield FileEntry(path.relative_to(self._root).as_posix(), path.stat().st_size)

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def move(self, path: str, target: str) -> None:
        place = self._root / target
        place.parent.mkdir(parents=True, exist_ok=True)
        _sync(self._root / path)  # Spark does not: a manifest must not outlive its files
        (self._root / path).replace(place)
        _sync(place.parent)

    def delete(self, path: str) -> None:
        place = self._root / path
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def _write_aside(self, target: Path, data: bytes) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        with aside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return aside


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HadoopFiles:
    """Files on a Hadoop file system, through Spark's JVM."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        session: Any = spark
        self._jvm: Any = session.sparkContext._jvm  # noqa: SLF001  no public accessor
        configuration = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        path = self._jvm.org.apache.hadoop.fs.Path(root)
        found = path.getFileSystem(configuration)
        self._root = found.makeQualified(path)
        self.is_local: bool = self._root.toUri().getScheme() == "file"
        # Without checksum files, which moves would have to take along.
        self._system = found.getRawFileSystem() if self.is_local else found

    @property
    def local_path(self) -> str:
        return str(self._root.toUri().getPath())

    @property
    def url(self) -> str:
        return str(self._root.toString())

    def read(self, path: str) -> bytes:
        with _translate_errors(path):
            stream = self._system.open(self._at(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write_new(self, path: str, data: bytes) -> None:
        aside = self._write_aside(path, data)
        if self.exists(path):  # some file systems rename over an existing file
            self.delete(aside)
            raise FileExistsError(path)
        self._rename(aside, path)

    def overwrite(self, path: str, data: bytes) -> None:
        self._write(path, data, replacing=True)

    def names(self, directory: str) -> list[str]:
        try:
            with _translate_errors(directory):
                found = self._system.listStatus(self._at(directory))
        except FileNotFoundError:
            return []
        return sorted(each.getPath().getName() for each in found)

    def walk(self, directory: str) -> Iterator[FileEntry]:
        for name in self.names(directory):
            path = f"{directory}/{name}"
            status = self._system.getFileStatus(self._at(path))
            if status.isDirectory():
                yield from self.walk(path)
            else:
                yield FileEntry(path, int(status.getLen()))

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._at(path)))

    def move(self, path: str, target: str) -> None:
        if not self.exists(path):
            raise FileNotFoundError(path)
        self._system.mkdirs(self._at(target).getParent())
        self._rename(path, target)

    def delete(self, path: str) -> None:
        self._system.delete(self._at(path), True)

    def _write_aside(self, target: str, data: bytes) -> str:
        directory, _, name = target.rpartition("/")
        aside = f"{directory}/.{name}.{uuid.uuid4().hex}"
        self._write(aside, data, replacing=False)
        return aside

    def _write(self, path: str, data: bytes, *, replacing: bool) -> None:
        with _translate_errors(path):
            stream = self._system.create(self._at(path), replacing)
            try:
                stream.write(bytearray(data))
                stream.hflush()
            finally:
                stream.close()

    def _rename(self, path: str, target: str) -> None:
        with _translate_errors(path):
            if not self._system.rename(self._at(path), self._at(target)):
                self.delete(path)
                raise FileExistsError(target)

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root


class _translate_errors:  # noqa: N801  reads as a function
    """Translates JVM exceptions into Python's OSError classes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        thrown = getattr(exc, "java_exception", None)
        if thrown is None:
            return
        name = thrown.getClass().getName()
        if name.endswith("FileNotFoundException"):
            raise FileNotFoundError(self._path) from None
        raise OSError(f"{self._path}: {thrown.getMessage()}") from exc
