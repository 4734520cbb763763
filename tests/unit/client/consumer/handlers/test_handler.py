"""How handlers are called, and what they say."""

from collections.abc import Sequence
from functools import partial

import pytest

from bolide.client.consumer.handlers.handler import Handler, Outcome, Retry, RunsOn
from bolide.model.message import StoredMessage
from tests.unit.client.stored import stored


def plain(message: object) -> None: ...


async def coroutine(message: object) -> None: ...


class Callable:
    async def __call__(self, message: object) -> None: ...


def made(function: object, *, batch: int = 1, inline: bool = False) -> Handler:
    return Handler.of(function, ordered=False, batch=batch, inline=inline)  # type: ignore[arg-type]


def test_coroutines_run_on_the_loop_and_plain_functions_in_threads() -> None:
    assert made(coroutine).runs_on is RunsOn.LOOP
    assert made(partial(coroutine)).runs_on is RunsOn.LOOP
    assert made(Callable()).runs_on is RunsOn.LOOP
    assert made(plain).runs_on is RunsOn.THREAD
    assert made(plain, inline=True).runs_on is RunsOn.INLINE


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ValueError, match="inline is for plain functions"):
        made(coroutine, inline=True)
    with pytest.raises(ValueError, match="batch is 0"):
        made(plain, batch=0)
    with pytest.raises(TypeError, match="a handler is a function"):
        made("name")


def test_one_message_is_given_as_it_is_and_several_as_a_list() -> None:
    got: list[object] = []
    first = stored(0)
    made(got.append).call([first])
    made(got.append, batch=5).call([first])
    assert got == [first, [first]]


def count_of(returned: object, *, batch: int, given: int) -> Outcome:
    def handler(messages: Sequence[StoredMessage]) -> object:
        return returned

    return made(handler, batch=batch).outcome(returned, given)


def test_what_a_handler_of_single_messages_returns_does_not_matter() -> None:
    assert count_of(0, batch=1, given=1) == Outcome(1)


@pytest.mark.parametrize(("returned", "done"), [(None, 3), (3, 3), (9, 3), (2, 2), (0, 0), (-1, 0)])
def test_a_batch_handler_may_say_how_many_were_done(returned: int | None, done: int) -> None:
    outcome = count_of(returned, batch=4, given=3)
    assert outcome.done == done
    assert (outcome.error is None) == (done == 3)


def test_another_answer_of_a_batch_handler_fails_the_batch() -> None:
    outcome = count_of(True, batch=4, given=3)
    assert outcome.done == 0
    assert isinstance(outcome.error, TypeError)


def test_a_retry_names_its_level() -> None:
    assert Outcome(0, Retry("later", delay_level=5)).delay_level == 5
    assert Outcome(0, ValueError()).delay_level == 0
