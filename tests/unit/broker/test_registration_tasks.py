"""What tells one NameServer of the broker."""

from collections.abc import Callable

from bolide.broker.registration import Message, NameServerRegistrar
from bolide.protocol.headers.namesrv import RegisterBrokerHeader
from tests.support.aio import on_loop, until

HEADER = RegisterBrokerHeader(
    broker_name="b", broker_addr="127.0.0.1:1", cluster_name="c", broker_id=0
)


def message(number: int, *, force: bool) -> Message:
    return Message(number, HEADER, b"", force)


def taking(answers: list[bool], forced: list[bool]) -> Callable[[Message], object]:
    async def tell(told: Message) -> bool:
        forced.append(told.force)
        return answers.pop(0)

    return tell


@on_loop
async def test_what_must_be_taken_and_was_not_is_forced_the_next_time() -> None:
    forced: list[bool] = []
    teller = NameServerRegistrar(taking([False, True, True], forced), lambda: None)  # type: ignore[arg-type]
    for number, force in enumerate([True, False, False]):
        teller.tell(message(number, force=force))
        await until(lambda expected=number: teller.tried == expected)  # type: ignore[misc]
    assert forced == [True, True, False]
    assert teller.knows == 2
    await teller.stop()
