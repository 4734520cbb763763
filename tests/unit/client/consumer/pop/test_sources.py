"""Where a pop consumer looks for messages."""

from types import SimpleNamespace
from typing import Any, cast

from bolide.client.consumer.pop.pop_request import Pop, PopResult, PopStatus
from bolide.client.consumer.pop.sources import PopSources, ReceiveOptions
from bolide.client.consumer.subscription import Filter
from tests.support.aio import on_loop


class Member:
    """Of two topics."""

    def __init__(self) -> None:
        self.filters = {name: Filter.of(name, "*", 0) for name in "TU"}
        routes = SimpleNamespace(readable_brokers=self.brokers)
        self.instance = SimpleNamespace(routes=routes)

    async def brokers(self, topic: str) -> list[str]:
        return ["broker-a"]


@on_loop
async def test_a_consumer_may_unsubscribe_from_all_while_it_receives() -> None:
    member = Member()

    class Popper:
        async def pop(self, pop: Pop) -> PopResult:
            member.filters.clear()
            return PopResult(PopStatus.NOTHING)

    popper, receipts = cast(Any, Popper()), cast(Any, None)
    sources = PopSources(cast(Any, member), popper, receipts)
    options = ReceiveOptions(max_count=1, invisible=1.0, from_first=True, is_ordered=False)
    assert await sources.receive(options, wait=0.05) == []
    await sources.close()
