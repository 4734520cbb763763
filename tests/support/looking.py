"""What a `Witness` does: looks up a route while it is told to, and says how long each call took.

Commands come on standard input, `look`, `pause` and `end`; each is answered by `done`.
"""

import asyncio
import sys
import time

from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.remoting import event_loop
from bolide.remoting.client import RemotingClient
from tests.support.brokers import broker_header, plain, topics_body

_PAUSE = 0.005
_AFTERWARDS = 10


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


class Looking:
    """The calls to one server."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address
        self._task: asyncio.Task[None] | None = None
        self._wanted = False

    async def register(self) -> None:
        body = plain(topics_body("orders"))
        await self._client.call(
            self._address, RequestCode.REGISTER_BROKER, broker_header(), body=body
        )

    async def look(self) -> None:
        started = time.monotonic()
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("orders")
        await self._client.call(self._address, code, header)
        say(time.monotonic() - started)

    async def begin(self) -> None:
        self._wanted = True
        self._task = asyncio.create_task(self._look_on())

    async def pause(self) -> None:
        """Raises what the calls have met."""
        self._wanted = False
        if self._task is not None:
            await self._task
            self._task = None

    async def end(self) -> None:
        """Look some more times: all must be well after an attack, too."""
        await self.pause()
        for _ in range(_AFTERWARDS):
            await self.look()

    async def _look_on(self) -> None:
        while self._wanted:
            await self.look()
            await asyncio.sleep(_PAUSE)


async def main(address: str) -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    async with RemotingClient() as client:
        looking = Looking(client, address)
        await looking.register()
        known = {b"look\n": looking.begin, b"pause\n": looking.pause, b"end\n": looking.end}
        async for command in commands:
            await known[command]()
            say("done")
            if command == b"end\n":
                return


if __name__ == "__main__":
    event_loop.run(main(sys.argv[1]))
