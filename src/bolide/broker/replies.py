"""Replies to requests: each is pushed to the client that waits for it."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


@dataclass(slots=True)
class _Load:
    """Replies that nobody has said to have got: how many, and the bytes of their bodies."""

    count: int = 0
    size: int = 0

    def add(self, count: int, size: int) -> None:
        self.count += count
        self.size += size

    def has_room(self, most: "_Load", size: int) -> bool:
        """Whether one more may be under way; one alone may be of any size."""
        return self.count < most.count and (not self.count or self.size + size <= most.size)


MOST_OF_ONE = _Load(1000, 24 * 1024 * 1024)
"""To one client at a time: a dead one must not fill the broker. What is read of one connection
before it must wait is more, so it cannot stop those who reply to it either."""
MOST = _Load(10_000, 256 * 1024 * 1024)


class Replies:
    """Pushes replies; belongs to one event loop."""

    def __init__(
        self, clients: ClientTable, store_host: Host, now: Callable[[], float] = time.time
    ) -> None:
        self._clients = clients
        self._store_host = str(store_host)
        self._now = now
        self._under_way: defaultdict[Connection, _Load] = defaultdict(_Load)
        self._total = _Load()

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
        here = self._under_way.get(connection, _Load())
        if not here.has_room(MOST_OF_ONE, size) or not self._total.has_room(MOST, size):
            raise SystemBusy(f"too many replies are under way to {client_id}: wait a little")
        here = self._under_way[connection]
        for load in (here, self._total):
            load.add(1, size)
        try:
            yield
        finally:
            for load in (here, self._total):
                load.add(-1, -size)
            if not here.count:
                del self._under_way[connection]


async def _push(connection: Connection, frame: Frame, client_id: str) -> None:
    try:
        answer = await connection.call(frame, PATIENCE)
    except RemotingError as exc:
        raise ServerError(f"push reply message to {client_id} fail: {exc}") from exc
    if answer.code != ResponseCode.SUCCESS:
        raise ServerError(f"push reply message to {client_id} fail: {answer.remark}")
