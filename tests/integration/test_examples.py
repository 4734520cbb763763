"""The programs in examples/ do what the documentation says."""

import asyncio
import sys
from pathlib import Path

from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from tests.support.aio import PATIENCE, on_loop
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.name_servers import name_server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@on_loop
async def test_list_topics_prints_brokers_and_topics(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, RemotingClient() as client:
        await client.call(
            server.address,
            RequestCode.REGISTER_BROKER,
            broker_header("10.0.0.1:10911", name="broker-a", cluster="cluster-1"),
            body=plain(topics_body("Orders")),
        )

        printed = await run_example("list_topics.py", server.address)

    assert printed.splitlines() == [
        "Clusters: 1",
        "  cluster-1 broker-a 10.0.0.1:10911",
        "Topics: 2",
        "  Orders",
        "  TBW102",
    ]


@on_loop
async def test_list_topics_of_an_empty_name_server_prints_that_there_are_none(
    tmp_path: Path,
) -> None:
    async with name_server(tmp_path) as server:
        printed = await run_example("list_topics.py", server.address)

    assert printed == "Clusters: 0\nTopics: 0\n"


@on_loop
async def test_embedded_store_reads_back_what_it_keeps(tmp_path: Path) -> None:
    printed = await run_example("embedded_store.py", str(tmp_path / "store"))

    assert printed.splitlines() == [
        "on the disk: True",
        "order number 0",
        "order number 1",
        "order number 2",
        "found by key: order number 1",
    ]


async def run_example(name: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / name), *arguments, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()
