"""Queries of several servers."""

import asyncio

import pytest

from bolide.client.instance.hedged_calls import first_answer
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.errors import ConnectFailed
from tests.support.aio import on_loop


class Servers:
    """Servers by address: seconds until they answer, or an error."""

    def __init__(self, **servers: float | Exception) -> None:
        self.servers = servers
        self.asked: list[str] = []
        self.cancelled: list[str] = []

    async def call(self, address: str) -> str:
        self.asked.append(address)
        outcome = self.servers[address]
        if isinstance(outcome, Exception):
            raise outcome
        try:
            await asyncio.sleep(outcome)
        except asyncio.CancelledError:
            self.cancelled.append(address)
            raise
        return f"answer of {address}"


@on_loop
async def test_one_that_answers_soon_is_the_only_one_asked() -> None:
    servers = Servers(a=0, b=0)
    assert await first_answer(["a", "b"], servers.call) == ("a", "answer of a")
    assert servers.asked == ["a"]


@on_loop
async def test_the_next_one_is_asked_at_once_if_one_is_down() -> None:
    servers = Servers(a=ConnectFailed("a", "refused"), b=0)
    async with asyncio.timeout(1):
        assert await first_answer(["a", "b"], servers.call, 60.0) == ("b", "answer of b")


@on_loop
async def test_the_next_one_is_asked_too_if_one_is_slow() -> None:
    servers = Servers(a=60.0, b=0)
    assert await first_answer(["a", "b"], servers.call, 0.01) == ("b", "answer of b")
    assert servers.cancelled == ["a"]


@on_loop
async def test_a_slow_answer_counts_if_the_others_fail() -> None:
    servers = Servers(a=0.05, b=ConnectFailed("b", "refused"))
    assert await first_answer(["a", "b"], servers.call, 0.01) == ("a", "answer of a")


@on_loop
async def test_a_refusal_is_an_answer() -> None:
    servers = Servers(a=TopicNotFound("no route"), b=0)
    with pytest.raises(TopicNotFound):
        await first_answer(["a", "b"], servers.call)
    assert servers.asked == ["a"]


@on_loop
async def test_the_last_failure_is_raised_if_none_answers() -> None:
    servers = Servers(a=ConnectFailed("a", "refused"), b=ConnectFailed("b", "refused"))
    with pytest.raises(ConnectFailed, match="b"):
        await first_answer(["a", "b"], servers.call)
