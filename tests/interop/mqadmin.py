"""Many commands of Java's mqadmin in one process: each alone would cost a JVM's start."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.interop.bench import LOGBACK, LOGBACK_4, LOGBACK_5, Bench

WORD = "--next--"


def run_commands(
    bench: Bench,
    version: str,
    namesrv: str,
    commands: Iterable[Sequence[str]],
    timeout: float = 100,
    jvm: Sequence[str] = (),
    *,
    of_servers: bool = False,
) -> list[str]:
    """What each command printed, its errors included.

    Args:
        of_servers: run the mqadmin of the servers' release; 4.9 has a newer one for clients.
    """
    words = [word for command in commands for word in (*command, WORD)]
    start = bench.program if of_servers else bench.client
    process = start(
        version,
        "Mqadmin",
        *words,
        jvm=[f"-Drocketmq.namesrv.addr={namesrv}", f"-Dbetween={WORD}", *jvm],
    )
    printed = "\n".join(process.wait(timeout)).split(f"\n{WORD}")
    return [text.strip("\n") for text in printed[:-1]]


def tools_home(directory: Path, access_key: str, secret: str) -> str:
    """The option for a home of mqadmin, which signs by its conf/tools.yml."""
    conf = directory / access_key / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "tools.yml").write_text(f"accessKey: {access_key}\nsecretKey: '{secret}'\n")
    for file in LOGBACK_4:
        (conf / file).write_text(LOGBACK.format(package=""))
    (conf / LOGBACK_5).write_text(LOGBACK.format(package="org.apache.rocketmq.logging."))
    return f"-Drocketmq.home.dir={conf.parent}"
