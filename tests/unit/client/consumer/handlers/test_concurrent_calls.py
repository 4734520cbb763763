"""Calls for what one pull brought: those that end at once together, the others one by one."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bolide.client.consumer.counters import TopicCounters
from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers import workers
from bolide.client.consumer.handlers.concurrent import ConcurrentDelivery
from bolide.client.consumer.handlers.handler import Handler
from bolide.client.consumer.handlers.invocation import ConsumeContext, ConsumerRuntime, Hooks
from bolide.client.consumer.handlers.workers import Workers
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from tests.support.aio import PATIENCE, each_loop, on_loop, until
from tests.support.clock import FakeClock
from tests.support.crowd import Crowd
from tests.unit.client.stored import stored

__all__ = ["each_loop"]
pytestmark = pytest.mark.usefixtures("each_loop")

PLACES = ["on_loop", "inline", "in_thread"]


class Broker:
    """Takes messages back."""

    def __init__(self) -> None:
        self.took: list[int] = []

    async def send(self, message: StoredMessage, delay_level: int) -> None:
        self.took.append(message.queue_offset)


class Scene:
    """A held queue, and a handler that is called with its messages."""

    def __init__(self, handler: Handler, limit: int = 3, hooks: Sequence[Any] = ()) -> None:
        send_back: Any = Broker()
        self.broker: Broker = send_back
        self.workers = Workers(limit, "test")
        self.counters = TopicCounters(lambda: 0.0)
        self.consuming = ConcurrentDelivery(
            ConsumerRuntime(
                "G", {"T": handler}, self.workers, send_back, self.counters, Hooks(hooks)
            )
        )
        self.held = HeldQueue(MessageQueue("T", "broker-a", 0), 0, FakeClock())

    def pull(self, count: int) -> None:
        start = self.held.process.next_offset
        found = [stored(offset) for offset in range(start, start + count)]
        self.consuming.deliver(self.held, self.held.accept(found, start + count))

    @property
    def unfinished(self) -> int:
        return self.held.process.unfinished

    async def idle(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.held.wait_until_idle()

    async def close(self) -> None:
        await self.consuming.close()
        await self.workers.close()


def handler(place: str, function: Callable[[StoredMessage], object], batch: int = 1) -> Handler:
    async def on_the_loop(message: StoredMessage) -> object:
        return function(message)

    chosen = on_the_loop if place == "on_loop" else function
    return Handler.of(chosen, ordered=False, batch=batch, inline=place == "inline")


@pytest.mark.parametrize("place", PLACES)
@on_loop
async def test_every_message_is_handled_once_and_counted(place: str) -> None:
    seen: list[int] = []
    it = Scene(handler(place, lambda message: seen.append(message.queue_offset)))
    it.pull(100)
    it.pull(50)
    await it.idle()
    assert sorted(seen) == list(range(150))
    assert (it.unfinished, len(it.held.process), it.held.process.size) == (150, 0, 0)
    it.counters["T"].sample(10.0)
    assert it.counters["T"].status().consume_ok_tps == pytest.approx(15.0)
    await it.close()


@pytest.mark.parametrize("place", PLACES)
@on_loop
async def test_one_that_fails_is_sent_back_and_its_neighbours_are_done(place: str) -> None:
    def fails(message: StoredMessage) -> None:
        if message.queue_offset in {3, 7}:
            raise ValueError("no")

    it = Scene(handler(place, fails))
    it.pull(10)
    await it.idle()
    assert sorted(it.broker.took) == [3, 7]
    assert it.unfinished == 10
    await it.close()


@on_loop
async def test_what_a_waiting_handler_holds_back_is_its_own_message_only() -> None:
    gate = asyncio.Event()

    async def waits(message: StoredMessage) -> None:
        if message.queue_offset == 5:
            await gate.wait()

    it = Scene(Handler.of(waits, ordered=False, batch=1, inline=False))
    it.pull(20)
    await until(lambda: len(it.held.process) == 1)
    assert it.unfinished == 5
    gate.set()
    await it.idle()
    assert it.unfinished == 20
    await it.close()


@on_loop
async def test_whoever_a_handler_wakes_finds_its_message_done() -> None:
    loop = asyncio.get_running_loop()
    found: list[tuple[int, bool]] = []

    async def wakes(message: StoredMessage) -> None:
        offset = message.queue_offset
        if offset % 2:
            await asyncio.sleep(0)
        loop.call_soon(lambda: found.append((offset, offset in it.held.process)))

    it = Scene(Handler.of(wakes, ordered=False, batch=1, inline=False))
    it.pull(10)
    await it.idle()
    await until(lambda: len(found) == 10)
    assert [offset for offset, is_open in found if is_open] == []
    await it.close()


def crowd_scene(place: str, limit: int) -> tuple[Crowd, Scene]:
    crowd = Crowd()
    called = Handler.of(getattr(crowd, place), ordered=False, batch=1, inline=False)
    return crowd, Scene(called, limit)


@pytest.mark.parametrize("place", ["on_loop", "in_thread"])
@on_loop
async def test_handlers_that_take_a_while_run_side_by_side_up_to_the_limit(place: str) -> None:
    crowd, it = crowd_scene(place, 5)
    it.pull(3)
    await until(lambda: crowd.now == 3)
    it.pull(20)
    await until(lambda: crowd.now == 5)
    it.workers.limit = 7
    await until(lambda: crowd.now == 7)
    crowd.open()
    await it.idle()
    assert (crowd.most, it.unfinished) == (7, 23)
    await it.close()


@pytest.mark.parametrize("place", ["on_loop", "in_thread"])
@on_loop
async def test_what_has_not_begun_is_let_go_with_its_queue(place: str) -> None:
    crowd, it = crowd_scene(place, 2)
    it.pull(6)
    await until(lambda: crowd.now == 2)
    it.held.drop()
    it.consuming.withdraw(it.held)
    crowd.open()
    await it.idle()
    assert (crowd.most, it.unfinished) == (2, 2)
    await it.close()


@pytest.mark.parametrize("place", ["on_loop", "in_thread"])
@on_loop
async def test_a_message_that_takes_too_long_is_sent_back_once_and_the_rest_goes_on(
    place: str,
) -> None:
    crowd, it = crowd_scene(place, 1)
    it.pull(3)
    await until(lambda: crowd.now == 1)
    it.consuming.expire([it.held], asyncio.get_running_loop().time() + 1)
    await until(lambda: it.broker.took == [0])
    crowd.open()
    await it.idle()
    await until(lambda: crowd.now == 0)
    assert (it.broker.took, it.unfinished) == ([0], 3)
    await it.close()


@on_loop
async def test_quick_handlers_leave_the_loop_its_turns() -> None:
    it = Scene(handler("inline", lambda _message: time.sleep(0.004)))
    it.pull(20)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < it.unfinished < 20
    await it.idle()
    await it.close()


@on_loop
async def test_an_awaitable_of_a_plain_function_is_awaited() -> None:
    done: list[int] = []

    async def later(message: StoredMessage) -> None:
        await asyncio.sleep(0)
        done.append(message.queue_offset)

    it = Scene(handler("inline", lambda message: asyncio.ensure_future(later(message))))
    it.pull(4)
    await it.idle()
    assert sorted(done) == [0, 1, 2, 3]
    await it.close()


@on_loop
async def test_a_handler_that_cancels_itself_has_failed() -> None:
    async def cancelled(message: StoredMessage) -> None:
        if message.queue_offset == 1:
            raise asyncio.CancelledError

    it = Scene(Handler.of(cancelled, ordered=False, batch=1, inline=False))
    it.pull(3)
    await it.idle()
    assert (it.broker.took, it.unfinished) == ([1], 3)
    await it.close()


@on_loop
async def test_hooks_see_each_call_and_batches_are_cut_from_what_waits() -> None:
    sizes: list[int] = []

    class Hook:
        def before(self, context: ConsumeContext) -> None:
            sizes.append(len(context.messages))

        def after(self, context: ConsumeContext) -> None:
            assert context.outcome is not None

    single = Scene(handler("inline", lambda _message: None), hooks=[Hook()])
    single.pull(3)
    await single.idle()
    several = Scene(handler("inline", lambda _messages: None, batch=4), hooks=[Hook()])
    several.pull(10)
    await several.idle()
    assert sizes == [1, 1, 1, 4, 4, 2]
    for scene in (single, several):
        await scene.close()


@pytest.mark.parametrize("refused", [{1, 2}, {2, 3}], ids=["the first", "others"])
@on_loop
async def test_threads_that_the_system_does_not_have_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, refused: set[int]
) -> None:
    start, asked = threading.Thread.start, 0

    def limited(thread: threading.Thread) -> None:
        nonlocal asked
        if thread.name.startswith("test_"):
            asked += 1
            if asked in refused:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setattr(workers, "_THREAD_RETRY_DELAY", 0.01)
    together = threading.Barrier(2, timeout=PATIENCE)
    it = Scene(handler("in_thread", lambda _message: together.wait()), limit=2)
    it.pull(20)
    await it.idle()
    assert (it.unfinished, it.broker.took) == (20, [])
    assert asked > max(refused)
    await it.close()
