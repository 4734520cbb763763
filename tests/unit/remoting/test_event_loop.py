"""A process that is asked to stop."""

import asyncio
import os
import signal

import pytest

from bolide.remoting.event_loop import until_stopped
from tests.support.aio import on_loop


class Served:
    """Work that never ends by itself and takes a moment to tidy up."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.is_tidy = False

    async def serve(self) -> None:
        try:
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            self.is_tidy = True

    async def signal_when_begun(self, *numbers: signal.Signals) -> None:
        await self.begun.wait()
        for number in numbers:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGTERM,), (signal.SIGINT,), (signal.SIGINT, signal.SIGINT, signal.SIGTERM)],
)
@on_loop
async def test_what_serves_tidies_up_however_often_it_is_told_to_stop(
    numbers: tuple[signal.Signals, ...],
) -> None:
    served = Served()
    await asyncio.gather(until_stopped(served.serve()), served.signal_when_begun(*numbers))
    assert served.is_tidy


@on_loop
async def test_what_fails_by_itself_is_told() -> None:
    async def fail() -> None:
        raise OSError("the port is taken")

    with pytest.raises(OSError, match="the port is taken"):
        await until_stopped(fail())


@on_loop
async def test_whoever_is_cancelled_without_a_signal_stays_so() -> None:
    served = Served()
    stopping = asyncio.create_task(until_stopped(served.serve()))
    await served.begun.wait()
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    assert stopping.cancelled()
    assert served.is_tidy
