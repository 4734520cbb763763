"""The player: all its cells at once on one event loop, a line of JSON for each."""

import asyncio
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from bolide import Producer, PullConsumer
from tests.interop.matrix.ours import (
    consumes,
    exchanges,
    positions,
    pulls,
    pushes,
    sends,
    timers,
)
from tests.interop.matrix.ours.sharing import sharing
from tests.interop.matrix.ours.stage import Cell, Stage

CELLS: Mapping[str, Cell] = {
    "sync": sends.sync,
    "async": sends.at_once,
    "one-way": sends.one_way,
    "batch": sends.batch,
    "selector": sends.selector,
    "transaction": exchanges.transaction,
    "request": exchanges.request,
    "trace": exchanges.trace,
    "timer": timers.timer,
    "recall": timers.recall,
    "sql": consumes.sql,
    "broadcast-ordered": consumes.broadcast_ordered,
    "order-config": consumes.order_config,
    "batch-consume": consumes.batch_consume,
    "consume-directly": consumes.consume_directly,
    "pop": consumes.pop,
    "push-concurrent": pushes.concurrent,
    "push-ordered": pushes.ordered,
    "broadcast": pushes.broadcast,
    "pull": pulls.pull,
    "lite-pull": pulls.lite_pull,
    "tags": pushes.tags,
    "retry-success": pushes.retry_success,
    "dead-letter": pushes.dead_letter,
    "delay-level": pushes.delay_level,
    "query": pulls.query,
    "from-first": positions.from_first,
    "from-last": positions.from_last,
    "from-timestamp": positions.from_timestamp,
    "offset-reset": positions.offset_reset,
    "sharing": sharing,
}


async def main(name_server: str, broker: str, prefix: str, *cells: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with (
            Producer(f"{prefix}_producers", name_server=name_server, send_timeout=10) as producer,
            PullConsumer(f"{prefix}_readers", name_server=name_server) as reader,
        ):
            stage = Stage(name_server, broker, prefix, "", producer, reader, Path(directory))
            await asyncio.gather(*(play(replace(stage, cell=cell)) for cell in cells))


async def play(stage: Stage) -> None:
    begin = time.monotonic()
    line: dict[str, object] = {"cell": stage.cell}
    try:
        line["facts"] = await CELLS[stage.cell](stage)
    except Exception:  # noqa: BLE001 - the test that asks for the cell tells it
        line["failure"] = traceback.format_exc()
    line["seconds"] = round(time.monotonic() - begin, 3)
    print(msgspec.json.encode(line).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
