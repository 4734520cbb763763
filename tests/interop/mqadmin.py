"""Many commands of Java's mqadmin in one process: each alone would cost a JVM's start."""

from collections.abc import Iterable, Sequence

from tests.interop.bench import Bench

WORD = "--next--"


def run_commands(
    bench: Bench,
    version: str,
    namesrv: str,
    commands: Iterable[Sequence[str]],
    timeout: float = 100,
) -> list[str]:
    """What each command printed, its errors included."""
    words = [word for command in commands for word in (*command, WORD)]
    process = bench.client(
        version,
        "Mqadmin",
        *words,
        jvm=[f"-Drocketmq.namesrv.addr={namesrv}", f"-Dbetween={WORD}"],
    )
    printed = "\n".join(process.wait(timeout)).split(f"\n{WORD}")
    return [text.strip("\n") for text in printed[:-1]]
