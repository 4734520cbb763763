"""What a handler was handed."""

from collections.abc import Callable

from bolide import Retry, StoredMessage
from tests.interop.matrix import facts
from tests.interop.matrix.ours.stage import settle, until_so
from tests.interop.matrix.ours.telling import message_told


class Deliveries:
    """A handler that notes its messages in order, and wants again what `refuse` says."""

    def __init__(self, refuse: Callable[[StoredMessage], bool] = lambda _: False) -> None:
        self.told: list[facts.Message] = []
        self._refuse = refuse

    async def __call__(self, message: StoredMessage) -> None:
        self.told.append(message_told(message))
        if self._refuse(message):
            raise Retry

    def count(self, word: str) -> int:
        return sum(message.body.startswith(word) for message in self.told)

    async def wait(self, count: int) -> list[facts.Message]:
        await until_so(lambda: len(self.told) >= count)
        await settle()
        return list(self.told)
