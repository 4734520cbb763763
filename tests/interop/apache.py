"""Apache RocketMQ for the interop tests: its jars by Maven, our Java programs by javac.

Run as `python -m tests.interop.apache` to fetch and compile everything ahead of the tests.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "java"
VERSIONS = HERE / "versions.toml"

# Below the 120 s that one test may take, so that a hanging download skips instead of failing.
PATIENCE_IN_A_TEST = 90.0
PATIENCE_AHEAD = 900.0


class Unobtainable(Exception):
    """Something the bench needs is missing; the text says what and how to get it."""


class CompilationFailed(Exception):
    """One of our own Java programs does not compile."""


@dataclass(frozen=True)
class Release:
    name: str
    version: str
    modules: tuple[str, ...]
    programs: tuple[Path, ...]
    broker_class: str | None
    client: str
    dependency_plugin: str

    @property
    def sources(self) -> list[Path]:
        return sorted(source for place in self.programs for source in place.glob("*.java"))


@dataclass(frozen=True)
class Installation:
    release: Release
    jars: tuple[Path, ...]
    programs: Path
    archive: Path
    """Classes of the jars for a quick start, if it exists; see class_archives.py."""

    def classpath(self, configuration: Path) -> str:
        """The jars first if there is an archive: it has to have been made of what comes first.

        Otherwise our files come before files of the same name in the jars.
        """
        ours = (configuration, self.programs)
        places = (*self.jars, *ours) if self.archive.exists() else (*ours, *self.jars)
        return os.pathsep.join(map(str, places))


@cache
def releases() -> dict[str, Release]:
    pins = tomllib.loads(VERSIONS.read_text())
    plugin = pins["maven"]["dependency-plugin"]
    return {
        name: Release(
            name=name,
            version=pin["version"],
            modules=tuple(pin["modules"]),
            programs=tuple(SOURCES / place for place in pin["java"]),
            broker_class=pin.get("broker"),
            client=pin.get("client", name),
            dependency_plugin=plugin,
        )
        for name, pin in pins["releases"].items()
    }


def cache_directory() -> Path:
    root = os.environ.get("BOLIDE_CACHE") or HERE.parents[1] / ".cache"
    return Path(root).resolve() / "rocketmq"


_failures: dict[str, Unobtainable] = {}


def obtain(name: str, patience: float = PATIENCE_IN_A_TEST) -> Installation:
    """The named release, fetched and compiled if need be; a failure is not tried again."""
    if name in _failures:
        raise _failures[name]
    try:
        return _obtain(name, patience)
    except Unobtainable as missing:
        _failures[name] = missing
        raise


@cache
def _obtain(name: str, patience: float) -> Installation:
    release = releases()[name]
    directory = _directory_of(release)
    directory.mkdir(parents=True, exist_ok=True)
    tool("java")
    with locked(directory.with_name(f"{directory.name}.lock")):
        jars = _fetch(release, directory, patience)
        archive = directory / f"classes-{_archive_fingerprint(release)}.jsa"
        return Installation(release, jars, _compile(release, directory, jars), archive)


JAVA_ADVICE = "install a JDK (11 or newer) and Maven (3.6.3 or newer)"


def _directory_of(release: Release) -> Path:
    """Where a release's jars and our programs are; two entries may pin parts of one version."""
    return cache_directory() / f"{release.name.replace(' ', '-')}-{release.version}"


def tool(name: str, advice: str = JAVA_ADVICE) -> str:
    path = shutil.which(name)
    if path is None:
        raise Unobtainable(f"`{name}` is not on PATH: {advice}")
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(release: Release, directory: Path, patience: float) -> tuple[Path, ...]:
    pom, library, stamp = directory / "pom.xml", directory / "lib", directory / "complete"
    wanted = _pom(release)
    if not stamp.exists() or stamp.read_text() != wanted:
        stamp.unlink(missing_ok=True)
        shutil.rmtree(library, ignore_errors=True)
        pom.write_text(wanted)
        _run_maven(release, pom, library, patience)
        stamp.write_text(wanted)
    return tuple(sorted(library.glob("*.jar")))


def _pom(release: Release) -> str:
    dependencies = "\n".join(
        f"    <dependency><groupId>org.apache.rocketmq</groupId>"
        f"<artifactId>{module}</artifactId><version>{release.version}</version></dependency>"
        for module in release.modules
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bolide</groupId>
  <artifactId>interop</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def _run_maven(release: Release, pom: Path, library: Path, patience: float) -> None:
    plugin = f"org.apache.maven.plugins:maven-dependency-plugin:{release.dependency_plugin}"
    command = [tool("mvn"), "-q", "-B", "-Dstyle.color=never", "-f", str(pom)]
    command += [f"{plugin}:copy-dependencies", f"-DoutputDirectory={library}"]
    command += ["-DincludeScope=runtime"]
    what = f"Apache RocketMQ {release.version} could not be fetched by Maven"
    advice = "run `python -m tests.interop.apache` where Maven reaches a repository that has it"
    try:
        done = _run(command, patience)
    except subprocess.TimeoutExpired:
        raise Unobtainable(f"{what} within {patience:.0f} s; {advice}") from None
    if done.returncode:
        raise Unobtainable(f"{what}; {advice}. Maven said:\n{done.stdout.strip()[:2000]}")


def _run(command: Sequence[str], patience: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience,
    )


def _compile(release: Release, directory: Path, jars: Sequence[Path]) -> Path:
    classes = directory / "classes" / _fingerprint(release.sources)
    if classes.exists():
        return classes
    if not release.sources:
        classes.mkdir(parents=True)
        return classes
    partial = classes.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    command = [tool("javac"), "-proc:none", "-encoding", "UTF-8", "-d", str(partial)]
    command += ["-cp", os.pathsep.join(map(str, jars)), *map(str, release.sources)]
    done = _run(command, PATIENCE_IN_A_TEST)
    if done.returncode:
        raise CompilationFailed(f"against RocketMQ {release.version}:\n{done.stdout}")
    return partial.rename(classes)


def _archive_fingerprint(release: Release) -> str:
    """An archive is of use to the JVM that made it, with the same jars."""
    java = Path(tool("java")).resolve()
    made_of = f"{java} {java.stat().st_mtime_ns} {_pom(release)}"
    return hashlib.sha256(made_of.encode()).hexdigest()[:16]


def _fingerprint(sources: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def main() -> None:
    for name, release in releases().items():
        try:
            jars = len(obtain(name, PATIENCE_AHEAD).jars)
            where = _directory_of(release)
            print(f"Apache RocketMQ {name}: {release.version}, {jars} jars in {where}")
        except Unobtainable as missing:
            print(f"Apache RocketMQ {name}: its tests will be skipped: {missing}")


if __name__ == "__main__":
    main()
    from tests.interop import class_archives, golang

    class_archives.main()
    golang.main()
