"""Registration with one NameServer: order and force of requests."""

from collections.abc import Awaitable, Callable

from bolide.broker.registration import NameServerRegistrar, RegistrationRequest
from bolide.protocol.headers.namesrv import RegisterBrokerHeader
from tests.support.aio import on_loop, until

HEADER = RegisterBrokerHeader(
    broker_name="b", broker_addr="127.0.0.1:1", cluster_name="c", broker_id=0
)


def request(change: int, *, force: bool) -> RegistrationRequest:
    return RegistrationRequest(change, HEADER, b"", force)


def answering(
    answers: list[bool], forced: list[bool]
) -> Callable[[RegistrationRequest], Awaitable[bool]]:
    async def register(sent: RegistrationRequest) -> bool:
        forced.append(sent.force)
        return answers.pop(0)

    return register


@on_loop
async def test_a_forced_request_that_failed_forces_the_next_one() -> None:
    forced: list[bool] = []
    registrar = NameServerRegistrar(answering([False, True, True], forced), lambda: None)
    for change, force in enumerate([True, False, False]):
        registrar.submit(request(change, force=force))
        await until(lambda expected=change: registrar.last_attempted == expected)  # type: ignore[misc]
    assert forced == [True, True, False]
    assert registrar.last_accepted == 2
    await registrar.stop()
