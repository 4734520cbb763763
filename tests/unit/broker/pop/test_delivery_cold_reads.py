"""Pops that have to read from the disk."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import PopHeader
from bolide.store.errors import NotInMemory
from bolide.store.memory_store import MemoryStore
from bolide.store.reading import ReadResult
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock
from tests.support.pop_core import PopCore
from tests.support.popping import read_pop


class ColdStore(MemoryStore):
    """Serves no read of topic T from memory; disk reads wait for `go_on`."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked = 0
        self.go_on = threading.Event()

    def read(self, topic: str, *args: Any, may_block: bool = True, **kwargs: Any) -> ReadResult:
        if topic == "T":
            if not may_block:
                raise NotInMemory("T", 0)
            self.asked += 1
            assert self.go_on.wait(10)
        return super().read(topic, *args, may_block=may_block, **kwargs)


def header(poll_time: int = 0, **given: Any) -> PopHeader:
    values: dict[str, Any] = {
        "consumer_group": "G", "topic": "T", "queue_id": -1, "max_msg_nums": 2,
        "invisible_time": 60_000, "poll_time": poll_time, "born_time": 0, "init_mode": 0,
    }  # fmt: skip
    return PopHeader(**values | given)


@on_loop
async def test_while_the_disk_is_read_others_pass_on_and_are_woken_afterwards(
    tmp_path: Path,
) -> None:
    clock = FakeClock(1_700_000_000.0)
    store = ColdStore(clock)
    core = PopCore(tmp_path, clock=clock, store=store)
    await core.create("T", 1)
    for number in range(3):
        core.send("T", 0, b"%d" % number)
    first = core.peer.ask(RequestCode.POP_MESSAGE, header())
    await until(lambda: store.asked == 1)
    hasty = await core.call(RequestCode.POP_MESSAGE, header())
    assert hasty.code == ResponseCode.POLLING_TIMEOUT
    assert read_pop("T", hasty).header.rest_num == 3
    patient = core.peer.ask(RequestCode.POP_MESSAGE, header(poll_time=10_000))
    store.go_on.set()
    found = []
    for opaque in (first, patient):
        await until(lambda opaque=opaque: core.peer.answer(opaque))  # type: ignore[misc]
        answer = core.peer.answer(opaque)
        assert answer is not None
        found.append(read_pop("T", answer).bodies)
    assert found == [[b"0", b"1"], [b"2"]]
    await core.stop()


@on_loop
async def test_a_pop_whose_consumer_is_gone_takes_nothing(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000.0)
    store = ColdStore(clock)
    core = PopCore(tmp_path, clock=clock, store=store)
    await core.create("T", 1)
    core.send("T", 0, b"0")
    core.peer.ask(RequestCode.POP_MESSAGE, header())
    await until(lambda: store.asked == 1)
    core.peer.connection.connection_lost(None)
    await asyncio.sleep(0)
    store.go_on.set()
    queue = core.pop.state.queues["T", "G", 0]
    await until(lambda: not queue.is_busy)
    assert queue.next_offset == 0
    await core.stop()
