"""A million messages archived by command, proved by the report, counted by SQL with later ones."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bolide import Message
from bolide.client.producer.producer import Producer
from tests.support.cluster_process import ClusterProcess

COMMAND = str(Path(sys.executable).with_name("bolide"))
MILLION = 1_000_000
LATER = 5_000
BODY = b"x" * 112 + b"%016d"
TOPIC = "million-archived"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_messages_are_archived_proved_and_counted(
    cluster: ClusterProcess, tmp_path: Path
) -> None:
    asyncio.run(send(cluster.address, 0, MILLION))
    lake = f"--path={tmp_path}/lake"
    shown = on_terminal(cluster, "pipeline", "run", "archive", lake, "--topic", TOPIC, "--once")
    assert len(re.findall(r"[1-9]\d+/1000000", shown)) > 1, shown[-2000:]  # the bar has moved
    assert "1000000/1000000" in shown

    report = run(cluster, "pipeline", "run", "reconcile", lake, "--json")
    assert report.returncode == 0, report.stderr
    rows = [json.loads(line) for line in report.stdout.splitlines()]
    hours = [row for row in rows if "hour" in row]
    assert sum(row["log"] for row in hours) == sum(row["table"] for row in hours) == MILLION
    assert all(row["difference"] == 0 for row in hours)

    asyncio.run(send(cluster.address, MILLION, LATER))
    question = f"select count(*) n, count(distinct body) bodies from `{TOPIC}`"
    answer = run(cluster, "sql", question, f"--archive={tmp_path}/lake", "--format=json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {"n": MILLION + LATER, "bodies": MILLION + LATER}


async def send(address: str, first: int, count: int) -> None:
    async with Producer("setup", name_server=address) as producer:
        if not first:
            await producer.create_topic(TOPIC, 4)
        starts = iter(range(first, first + count, 1000))

        async def work() -> None:
            for start in starts:
                numbers = range(start, start + 1000)
                await producer.send_batch([Message(TOPIC, BODY % number) for number in numbers])

        await asyncio.gather(*(work() for _ in range(4)))


def run(cluster: ClusterProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *words, f"--name-server={cluster.address}"],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def on_terminal(cluster: ClusterProcess, *words: str) -> str:
    """What a person sees on standard error while the command runs to its end."""
    ours, theirs = pty.openpty()
    command = [COMMAND, *words, f"--name-server={cluster.address}"]
    wide = os.environ | {"COLUMNS": "200"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=wide) as process:
        os.close(theirs)
        shown = b""
        while block := _read(ours):
            shown += block
        os.close(ours)
    assert process.returncode == 0, shown[-4000:].decode(errors="replace")
    return shown.decode(errors="replace")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other side is closed
        return b""
