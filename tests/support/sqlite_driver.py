"""The JDBC driver of SQLite, by Maven: what Spark needs to write to a database file."""

import subprocess
from pathlib import Path

from tests.interop.apache import PATIENCE_IN_A_TEST, Unobtainable, cache_directory, releases, tool

VERSION = "3.47.1.0"


def obtain() -> Path:
    """The jar, fetched if need be.

    Raises:
        Unobtainable: Maven is missing, or does not get it.
    """
    directory = cache_directory().parent / "sqlite"
    jar = directory / f"sqlite-jdbc-{VERSION}.jar"
    if not jar.exists():
        _fetch(directory)
    return jar


def _fetch(directory: Path) -> None:
    pinned = next(iter(releases().values())).dependency_plugin
    plugin = f"org.apache.maven.plugins:maven-dependency-plugin:{pinned}"
    artifact = f"-Dartifact=org.xerial:sqlite-jdbc:{VERSION}"
    command = [tool("mvn"), "-q", "-B", f"{plugin}:copy", artifact]
    command += [f"-DoutputDirectory={directory}"]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=PATIENCE_IN_A_TEST
        )
    except subprocess.TimeoutExpired:
        raise Unobtainable("the JDBC driver of SQLite did not come in time") from None
    except subprocess.CalledProcessError as exc:
        said = exc.stdout.strip()[:2000]
        raise Unobtainable(f"Maven does not get the JDBC driver of SQLite:\n{said}") from exc
