"""A message that somebody wants to see handled now."""

import pytest

from bolide.client.consumer.handlers.handler import Handler
from bolide.client.consumer.member import consume_directly
from bolide.protocol.bodies.consumers import ConsumeVerdict
from bolide.protocol.refusals import ServerError
from tests.support.aio import on_loop
from tests.unit.client.stored import stored


def raises(_message: object) -> None:
    raise ValueError("no")


async def accepts(_message: object) -> None: ...


def made(function: object, *, batch: int = 1, inline: bool = False) -> Handler:
    return Handler.of(function, ordered=True, batch=batch, inline=inline)  # type: ignore[arg-type]


@on_loop
async def test_the_verdict_is_the_handlers() -> None:
    done = await consume_directly(made(accepts), stored(0))
    assert (done.consume_result, done.order) == (ConsumeVerdict.CR_SUCCESS, True)
    thrown = await consume_directly(made(raises), stored(0))
    assert thrown.consume_result is ConsumeVerdict.CR_THROW_EXCEPTION
    assert thrown.remark == "ValueError: no"
    later = await consume_directly(made(lambda _: 0, batch=5, inline=True), stored(0))
    assert later.consume_result is ConsumeVerdict.CR_LATER


@on_loop
async def test_without_a_handler_the_asker_is_told() -> None:
    with pytest.raises(ServerError, match="no handler for topic T"):
        await consume_directly(None, stored(0))
