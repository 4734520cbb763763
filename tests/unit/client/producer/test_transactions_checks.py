import asyncio

from bolide.client.producer.results import TransactionState
from bolide.client.producer.transactions import TransactionChecks
from bolide.model.message import StoredMessage
from bolide.protocol.headers.transactions import CheckTransactionHeader
from tests.support.aio import on_loop, until
from tests.unit.client.stored import stored

HEADER = CheckTransactionHeader(topic="T", tran_state_table_offset=0, commit_log_offset=0)


@on_loop
async def test_a_check_that_fails_or_waits_for_what_is_cancelled_is_no_answer_and_no_end() -> None:
    answers: list[TransactionState] = []
    others = iter([_cancelled, _failed, _known, _known])

    async def check(_: StoredMessage) -> TransactionState:
        return await next(others)()

    async def tell(_: object, __: object, ___: str, state: TransactionState) -> None:
        answers.append(state)

    checks = TransactionChecks(check, 1, tell)
    checks.start("g")
    for _ in range(4):
        checks.submit(stored(0), HEADER, "127.0.0.1:1")
    await until(lambda: len(answers) == 4)
    unknown, commit = TransactionState.UNKNOWN, TransactionState.COMMIT
    assert answers == [unknown, unknown, commit, commit]
    await checks.close()


async def _cancelled() -> TransactionState:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task
    return TransactionState.COMMIT


async def _failed() -> TransactionState:
    raise LookupError("no database")


async def _known() -> TransactionState:
    return TransactionState.COMMIT
