"""The outbox: sends deferred to the end of an iteration of the loop."""

import asyncio

from bolide.remoting.wire import Outbox
from tests.support.aio import on_loop


@on_loop
async def test_all_that_was_added_in_one_turn_is_sent_after_it_in_order() -> None:
    outbox, sent = Outbox(), list[int]()
    for number in range(3):
        outbox.add(lambda number=number: sent.append(number))  # type: ignore[misc]
    assert sent == []
    await asyncio.sleep(0)
    assert sent == [0, 1, 2]


@on_loop
async def test_what_is_added_while_sending_waits_for_the_next_turn() -> None:
    outbox, sent = Outbox(), list[str]()

    def send_and_add() -> None:
        sent.append("first")
        outbox.add(lambda: sent.append("second"))

    outbox.add(send_and_add)
    await asyncio.sleep(0)
    assert sent == ["first"]
    await asyncio.sleep(0)
    assert sent == ["first", "second"]
