from typing import Any, cast

from bolide.bench.counters import SendCounters
from bolide.bench.producer import Senders
from bolide.bench.runner import Bounds, Run
from bolide.bench.workload import Workload
from bolide.client.errors import RouteNotFound
from bolide.client.producer.producer import Producer
from bolide.model.message import Message
from tests.support.aio import on_loop


class Post:
    """Stands in for a producer; sends whose number is in `refused` fail."""

    def __init__(self, *refused: int) -> None:
        self.taken: list[int] = []
        self._refused = refused

    async def send(self, message: Message) -> None:
        self._take([message])

    async def send_batch(self, messages: list[Message]) -> None:
        self._take(messages)

    def _take(self, messages: list[Message]) -> None:
        self.taken.append(len(messages))
        if len(self.taken) - 1 in self._refused:
            raise RouteNotFound("T")


async def sent(post: Post, count: int, **how: Any) -> SendCounters:
    counters, run = SendCounters(), Run(Bounds(count=count))
    senders = Senders(cast("Producer", post), Workload(senders=3), counters, pause=0, **how)
    await run.until_done(senders.work(run), lambda: None)
    return counters


@on_loop
async def test_all_senders_together_send_the_count() -> None:
    post = Post()
    counters = await sent(post, 100)

    assert post.taken == [1] * 100
    assert (counters.messages, counters.times.count) == (100, 100)


@on_loop
async def test_the_last_batch_may_be_smaller() -> None:
    post = Post()
    counters = await sent(post, 40, batch=16)

    assert sorted(post.taken) == [8, 16, 16]
    assert (counters.messages, counters.times.count) == (40, 3)


@on_loop
async def test_failures_are_counted_and_the_rest_goes_on() -> None:
    counters = await sent(Post(0, 4), 10)

    assert (counters.messages, counters.messages_failed, counters.send_failed) == (8, 2, 2)
    assert counters.last_failure == str(RouteNotFound("T"))
