"""Third-party programs from Debian and Maven Central, unpacked below .cache, not installed."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.interop import apache

_TIMEOUT = 300.0


class PackageUnavailable(Exception):
    """A program cannot be obtained; the text says which one and how to get it."""


def unpack_debian(name: str, packages: Sequence[str]) -> Path:
    """Download and unpack Debian packages; return the root of their files."""
    home = _home(name)
    if not (home / "complete").exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise PackageUnavailable(
                f"{name}: its packages {', '.join(packages)} come from Debian's apt-get"
            )
        _run(["apt-get", "download", *packages], home, f"{name} from Debian")
        for package in home.glob("*.deb"):
            _run(
                ["dpkg-deb", "-x", package.name, "root"], home, f"{name}, unpacking {package.name},"
            )
        (home / "complete").touch()
    return home / "root"


def fetch_jars(group: str, artifact: str, version: str) -> Path:
    """Download a Maven artifact with its dependencies; return their directory."""
    home = _home(f"{artifact}-{version}")
    if not (home / "complete").exists():
        (home / "pom.xml").write_text(_POM.format(group=group, artifact=artifact, version=version))
        plugin = f"org.apache.maven.plugins:maven-dependency-plugin:{_plugin()}"
        command = [apache.tool("mvn"), "-q", "-B", "-f", "pom.xml", f"{plugin}:copy-dependencies"]
        command += [f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"]
        _run(command, home, f"{artifact} {version} from Maven Central")
        (home / "complete").touch()
    return home / "lib"


def require_tool(name: str, how: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(_home(name)))
    if found is None:
        raise PackageUnavailable(f"`{name}` is not on PATH: {how}")
    return found


def _home(name: str) -> Path:
    home = apache.cache_directory().with_name("bench") / name
    home.mkdir(parents=True, exist_ok=True)
    return home


def _plugin() -> str:
    return apache.releases()["5.x"].dependency_plugin


def _run(command: Sequence[str], home: Path, what: str) -> None:
    try:
        done = subprocess.run(
            command, check=False, cwd=home, capture_output=True, text=True, timeout=_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise PackageUnavailable(f"{what} did not finish within {_TIMEOUT:.0f} s") from None
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-300:]
        raise PackageUnavailable(
            f"{what} cannot be obtained: `{' '.join(command[:3])}` printed {output}"
        )


_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bolide</groupId>
  <artifactId>context</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""
