"""Archives of Java classes, with which the processes of a release start in half the time.

The JVM maps the classes of an archive instead of reading, checking and linking those in the jars
(class data sharing). `python -m tests.interop.apache` makes the archives ahead of the suite: it
runs a server and clients once to see which classes they load. An archive that is missing, or that
the JVM does not take because it is another one, costs nothing but the time.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from tests.interop import apache
from tests.interop.bench import Bench
from tests.interop.processes import ProcessFailed

RELEASES = ("5.x", "4.9", "4.9 client")
"""Those with servers, and with the clients of most tests."""
_TOPIC = "Archived"
_COUNT = 10
_PATIENCE = 300.0


def make(name: str, patience: float = _PATIENCE) -> Path:
    """The archive of a release, made if need be."""
    installation = apache.obtain(name, patience)
    archive = installation.archive
    if not archive.exists():
        with apache.locked(archive.with_suffix(".lock")), tempfile.TemporaryDirectory() as scratch:
            for old in archive.parent.glob("classes-*.jsa"):
                old.unlink()
            classes = _loaded_classes(name, Path(scratch))
            _dump(installation, classes, archive, patience)
    return archive


def _loaded_classes(name: str, scratch: Path) -> Path:
    """A list of what the server and clients of a release load."""
    lists = [scratch / f"{number}.list" for number in range(5)]
    jvm = [("-Xshare:off", f"-XX:DumpLoadedClassList={each}") for each in lists]
    with Bench(scratch, apache.obtain) as bench:
        if apache.releases()[name].broker_class is not None:
            namesrv = bench.namesrv(name, jvm=jvm[0])
            broker = bench.broker(name, namesrv.address, jvm=jvm[1])
        else:
            namesrv = bench.namesrv("5.x")
            broker = bench.broker("5.x", namesrv.address)
        if apache.releases()[name].client == name:
            job = (namesrv.address, _TOPIC, _COUNT)
            bench.client(name, "SendMessages", *job, jvm=jvm[2]).wait()
            bench.client(name, "ReceiveMessages", *job, jvm=jvm[3]).wait()
            bench.mqadmin(name, "topicList", namesrv=namesrv.address, jvm=jvm[4])
        broker.stop()
        namesrv.stop()
    together = scratch / "classes.list"
    lines = dict.fromkeys(
        line for each in lists if each.exists() for line in each.read_text().splitlines()
    )
    together.write_text("\n".join(lines) + "\n")
    return together


def _dump(installation: apache.Installation, classes: Path, archive: Path, patience: float) -> None:
    partial = archive.with_suffix(".partial")
    command = [apache.tool("java"), "-XX:+UseSerialGC", "-Xshare:dump"]
    command += [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={partial}"]
    command += ["-cp", os.pathsep.join(map(str, installation.jars))]
    done = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience,
    )
    if done.returncode or not partial.exists():
        raise apache.CompilationFailed(f"no archive of classes:\n{done.stdout[-2000:]}")
    partial.rename(archive)


def main() -> None:
    for name in RELEASES:
        try:
            archive = make(name)
            print(f"Apache RocketMQ {name}: classes in {archive.name}")
        except (
            apache.Unobtainable,
            apache.CompilationFailed,
            ProcessFailed,
            subprocess.TimeoutExpired,
        ) as failed:
            print(f"Apache RocketMQ {name}: its processes start more slowly: {failed}")
