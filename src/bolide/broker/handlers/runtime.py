"""A broker as a whole: its settings, how it does, and what it can be told to clean up."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from bolide import properties
from bolide.broker.config import BrokerConfig
from bolide.broker.runtime_info import counted, described, stored
from bolide.broker.settings import Settings
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.protocol import fastjson
from bolide.protocol.bodies.replication import HaStatus
from bolide.protocol.bodies.routes import KvTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.runtime import BrokerConfigReply
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore

log = logging.getLogger(__name__)

_LONGEST_CHANGE = 64 * 1024


class Delayed(Protocol):
    """Who delivers delayed messages."""

    def progress(self) -> Mapping[int, tuple[int, int]]: ...


class RuntimeHandlers:
    """Show and change a broker at run time.

    Args:
        ignored: keys of the configuration file without effect, with their values.
    """

    def __init__(  # noqa: PLR0913  it shows the whole broker
        self,
        *,
        store: MessageStore,
        statistics: Statistics,
        cell: ConfigCell[BrokerConfig],
        store_cell: ConfigCell[StoreConfig],
        delay: Delayed,
        timer_figures: Callable[[], dict[str, str]] = dict,
        boot_time: float,
        ignored: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._statistics = statistics
        self._settings = Settings(cell, store_cell, ignored, now)
        self._cell = cell
        self._delay = delay
        self._timer_figures = timer_figures
        self._boot_time = boot_time
        self._now = now

    @handles(NoHeader, RequestCode.UPDATE_BROKER_CONFIG, max_body=_LONGEST_CHANGE)
    async def update_config(self, request: Request[NoHeader]) -> Reply:
        texts = properties.parse(request.body.decode(errors="replace"))
        change = await self._settings.update(texts, request.connection.peer)
        return Reply(remark=change.remark)

    @handles(NoHeader, RequestCode.GET_BROKER_CONFIG)
    def config(self, request: Request[NoHeader]) -> Reply:
        version = fastjson.encode(self._settings.version).decode()
        body = properties.render(self._settings.texts()).encode()
        return Reply(header=BrokerConfigReply(version), body=body)

    @handles(NoHeader, RequestCode.GET_BROKER_RUNTIME_INFO)
    async def runtime_info(self, request: Request[NoHeader]) -> Reply:
        accepts_from = self._cell.value.start_accept_send_request_time_stamp
        table = (
            counted(self._statistics, self._boot_time, self._now())
            | described(self._delay.progress(), accepts_from, active=True)
            | self._timer_figures()
            | await asyncio.to_thread(stored, self._store)
        )
        return Reply(body=fastjson.encode(KvTable(table=table)))

    @handles(NoHeader, RequestCode.GET_BROKER_HA_STATUS)
    def replicas(self, request: Request[NoHeader]) -> Reply:
        """A master without slaves: they come with replication."""
        status = HaStatus(master=True, master_commit_log_max_offset=self._store.log.written)
        return Reply(body=fastjson.encode(status))

    @handles(NoHeader, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_queues(self, request: Request[NoHeader]) -> Reply:
        """Queues are trimmed whenever log files go: there is nothing left to do."""
        log.info("%s asked to clean consume queues", request.connection.peer)
        return Reply()

    @handles(NoHeader, RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_expired(self, request: Request[NoHeader]) -> Reply:
        log.info("%s asked to delete expired commit log files", request.connection.peer)
        self._store.retention.delete_expired_soon()
        return Reply()
