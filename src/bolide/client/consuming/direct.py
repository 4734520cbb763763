"""Give a handler one message because somebody asked: CONSUME_MESSAGE_DIRECTLY of mqadmin."""

import asyncio
import inspect
import time

from bolide.client.consuming.consume import Handler, Place
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.consumers import ConsumeVerdict, DirectConsumption
from bolide.protocol.refusals import ServerError


async def consume_directly(handler: Handler | None, message: StoredMessage) -> DirectConsumption:
    """Call the handler and tell how it went; nothing is committed or sent back.

    Raises:
        ServerError: the consumer has no handler for the topic.
    """
    if handler is None:
        raise ServerError(f"there is no handler for topic {message.topic} here")
    begun = time.monotonic()
    verdict, remark = await _verdict(handler, message)
    return DirectConsumption(
        order=handler.is_ordered,
        consume_result=verdict,
        remark=remark,
        spent_time_mills=int((time.monotonic() - begun) * 1000),
    )


async def _verdict(handler: Handler, message: StoredMessage) -> tuple[ConsumeVerdict, str | None]:
    try:
        if handler.place is Place.THREAD:
            returned = await asyncio.to_thread(handler.call, [message])
        else:
            returned = handler.call([message])
            if inspect.isawaitable(returned):
                returned = await returned
    except Exception as exc:  # noqa: BLE001  the boundary to the user's code
        return ConsumeVerdict.CR_THROW_EXCEPTION, f"{type(exc).__name__}: {exc}"
    outcome = handler.outcome(returned, 1)
    return (ConsumeVerdict.CR_SUCCESS if outcome.done else ConsumeVerdict.CR_LATER), None
