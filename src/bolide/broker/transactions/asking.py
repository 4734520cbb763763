"""Asks producers what became of their transactions."""

import itertools
import logging
from contextlib import suppress

from bolide.broker.clients import ClientTable
from bolide.broker.transactions.half import Half
from bolide.model.message import Host
from bolide.model.names import HALF_TOPIC
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.transactions import CheckTransactionHeader
from bolide.protocol.message_id import OffsetId
from bolide.remoting.connection import Connection
from bolide.remoting.errors import RemotingError

log = logging.getLogger(__name__)


class AllBlocked(Exception):
    """The producers of a group are there, and none of them reads."""


class Asking:
    """Any producer of a group may be asked: each in turn, those that do not read aside."""

    def __init__(self, clients: ClientTable, host: Host, broker_name: str) -> None:
        self._clients = clients
        self._host = host
        self._broker_name = broker_name
        self._turn = itertools.count()

    def choose(self, group: str) -> Connection | None:
        """Whom to ask; None if nobody of the group is there.

        Raises:
            AllBlocked: try later.
        """
        members = self._clients.producers(group)
        if not members:
            return None
        ready = [each.connection for each in members if not each.connection.is_blocked]
        if not ready:
            raise AllBlocked
        return ready[next(self._turn) % len(ready)]

    async def ask(self, producer: Connection, half: Half) -> None:
        """Send the question; the answer is an END_TRANSACTION, if one comes."""
        record, unique_id = half.record, half.unique_id or None
        header = CheckTransactionHeader(
            topic=HALF_TOPIC,
            tran_state_table_offset=record.queue_offset,
            commit_log_offset=record.physical_offset,
            msg_id=unique_id,
            transaction_id=unique_id,
            offset_msg_id=OffsetId(self._host, record.physical_offset).encode(),
            broker_name=self._broker_name,
        )
        with suppress(RemotingError, AllBlocked):  # it is asked again, or another one is
            if producer.is_blocked:
                producer = self.choose(half.group) or producer
            await producer.notify(
                Frame(
                    code=RequestCode.CHECK_TRANSACTION_STATE,
                    fields=header.to_fields(),
                    body=half.shown(),
                )
            )
