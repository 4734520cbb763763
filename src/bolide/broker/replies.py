"""Replies to requests: each is pushed to the client that waits for it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bolide.broker.clients import ClientTable
from bolide.model.message import Host
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import PushReplyHeader, SendHeader
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.refusals import ServerError, SystemBusy
from bolide.remoting.connection import Connection
from bolide.remoting.errors import RemotingError

PATIENCE = 10.0
"""Seconds that a client has to say that it got a reply."""
MOST_OF_ONE = 1000
"""Replies that one client may leave unanswered at a time: a dead one must not fill the broker."""
MOST = 10_000
MOST_BYTES = 256 * 1024 * 1024
"""Of bodies of all replies under way: who sent one may be gone, and holds nothing up any more."""


class Replies:
    """Pushes replies; belongs to one event loop."""

    def __init__(
        self, clients: ClientTable, store_host: Host, now: Callable[[], float] = time.time
    ) -> None:
        self._clients = clients
        self._store_host = str(store_host)
        self._now = now
        self._under_way: Counter[Connection] = Counter()
        self._total = 0
        self._bytes = 0

    async def push(self, header: SendHeader, body: bytes, born_host: str) -> None:
        """Hand a reply to the client that its properties name, and wait until that has it.

        Raises:
            ServerError: there is no such client, or it did not take the reply.
            SystemBusy: too many replies are under way.
        """
        properties = decode_properties(header.properties)
        client_id = properties.get(PropertyName.REPLY_TO_CLIENT)
        if client_id is None:
            name = PropertyName.REPLY_TO_CLIENT
            raise ServerError(f"reply message properties[{name}] is null: it names who asked")
        connection = self._clients.find_producer(client_id)
        if connection is None or connection.is_closed:
            raise ServerError(
                f"push reply message fail, channel of <{client_id}> not found: it has ended, or"
                " has sent no heartbeat to this broker"
            )
        frame = self._frame(header, body, born_host, properties)
        with self._turn(connection, client_id, len(body)):
            await _push(connection, frame, client_id)

    def _frame(
        self, header: SendHeader, body: bytes, born_host: str, properties: dict[str, str]
    ) -> Frame:
        now = int(self._now() * 1000)
        properties[PropertyName.PUSH_REPLY_TIME] = str(now)
        pushed = PushReplyHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=born_host,
            store_host=self._store_host,
            store_timestamp=now,
        )
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        return Frame(code=code, fields=pushed.to_fields(), body=body)

    @contextmanager
    def _turn(self, connection: Connection, client_id: str, size: int) -> Iterator[None]:
        if connection.is_blocked:
            raise ServerError(f"push reply message to {client_id} fail: it does not read")
        is_full = self._total >= MOST or self._bytes + size > MOST_BYTES
        if is_full or self._under_way[connection] >= MOST_OF_ONE:
            raise SystemBusy(f"too many replies are under way to {client_id}: wait a little")
        self._under_way[connection] += 1
        self._total += 1
        self._bytes += size
        try:
            yield
        finally:
            self._total -= 1
            self._bytes -= size
            self._under_way[connection] -= 1
            if not self._under_way[connection]:
                del self._under_way[connection]


async def _push(connection: Connection, frame: Frame, client_id: str) -> None:
    try:
        answer = await connection.call(frame, PATIENCE)
    except RemotingError as exc:
        raise ServerError(f"push reply message to {client_id} fail: {exc}") from exc
    if answer.code != ResponseCode.SUCCESS:
        raise ServerError(f"push reply message to {client_id} fail: {answer.remark}")
