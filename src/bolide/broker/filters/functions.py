"""Filter functions: Python source registered by an administrator, and its requests.

RocketMQ's FilterServer idea, with processes of the broker's own (`worker_pool`). A function that
raises does not accept that message. One that hangs or dies says nothing of its batch: the pull is
refused and comes again, so that no message is passed over unseen. If that goes on, `Cooldowns`
make room for other functions.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from bolide.broker.background import on_saving_thread
from bolide.broker.filters.worker_pool import Code, WorkerFailed, WorkerPool, WorkersBusy
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol import fastjson
from bolide.protocol.bodies.filters import FilterFunction, FilterFunctionState, FilterFunctionStates
from bolide.protocol.codes import RequestCode
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.filters import FilterFunctionHeader
from bolide.protocol.refusals import (
    InvalidParameter,
    NoPermission,
    QueryNotFound,
    ServerError,
    SubscriptionMalformed,
)
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.tasks import uninterrupted
from bolide.store.tables import Table, TableKind

FIRST, LONGEST = 1.0, 30.0
"""Seconds; each pause is twice as long as the one before."""
_MANY = 1024


class Cooldown(NamedTuple):
    reason: str
    seconds: float
    end: float


class Cooldowns:
    """Who has to wait, by whatever tells them apart."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._pauses: dict[Hashable, Cooldown] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def find(self, key: Hashable) -> Cooldown | None:
        """The pause that is not over yet."""
        found = self._pauses.get(key)
        return found if found is not None and found.end > self._now() else None

    def failed(self, key: Hashable, reason: str) -> None:
        before, now = self._pauses.pop(key, None), self._now()
        seconds = min(before.seconds * 2, LONGEST) if before else FIRST
        if len(self._pauses) >= _MANY:
            self._pauses = {each: p for each, p in self._pauses.items() if p.end > now}
        self._pauses[key] = Cooldown(reason, seconds, now + seconds)

    def worked(self, key: Hashable) -> None:
        self._pauses.pop(key, None)


log = logging.getLogger(__name__)

MAX_SOURCE = 64 * 1024
_MAX_FUNCTIONS = 256
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_QUIET = 60.0
"""Seconds between two lines about one function that fails."""


class FunctionTable(Struct, kw_only=True):
    """What was registered, by name."""

    functions: dict[str, FilterFunction] = msgspec.field(default_factory=dict)


FILTER_FUNCTIONS = TableKind(
    "filterFunctions.json",
    FunctionTable,
    0.0,
    lambda table: msgspec.json.format(msgspec.json.encode(table), indent=1),
)


@dataclass(slots=True)
class Tally:
    """What a function has done since the broker started."""

    judged: int = 0
    accepted: int = 0
    failed: int = 0
    error: str = ""
    told: float = field(default=0.0, repr=False)


class FilterFunctions:
    """The functions of one broker, out of a table that is loaded; belongs to one event loop."""

    def __init__(
        self,
        table: Table[FunctionTable],
        cell: ConfigCell[BrokerConfig],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._cell = cell
        self._now = now
        self._pool: WorkerPool | None = None
        self._tallies: dict[str, Tally] = {}
        self._pauses = Cooldowns()
        self._writing = asyncio.Lock()  # one file, one writer

    @property
    def all(self) -> list[FilterFunction]:
        return sorted(self._functions.values(), key=lambda function: function.name)

    def tally(self, name: str) -> Tally:
        return self._tallies.setdefault(name, Tally())

    def find(self, name: str) -> FilterFunction | None:
        return self._functions.get(name)

    def require(self, name: str) -> FilterFunction:
        """The function that a subscription names.

        Raises:
            SubscriptionMalformed: there is none of that name.
            ServerError: functions are off.
        """
        if not self._cell.value.filter_server_nums:
            raise ServerError(
                "The broker does not support consumer to filter message by FILTER:"
                " filter functions are off, see filterServerNums"
            )
        found = self.find(name)
        if found is None:
            raise SubscriptionMalformed(
                f"there is no filter function {name!r}: register it with `updateFilter -f {name}`,"
                " or name one that `listFilters` shows"
            )
        return found

    async def judge(self, name: str, records: list[bytes], asker: Hashable = None) -> list[bool]:
        """Which records a function accepts.

        Args:
            asker: whose records they are: where they kill a worker, others are not kept waiting.

        Raises:
            Refusal: nobody knows: there is no such function, or it hangs or dies.
        """
        function = self.require(name)
        key = (asker, name, function.version)
        if pause := self._pauses.find(key):
            raise ServerError(f"{pause.reason}; it is tried again every {pause.seconds:g} s")
        try:
            answer = await self._workers().judge(_code(function), records)
        except WorkersBusy as exc:
            raise ServerError(str(exc)) from exc
        except WorkerFailed as exc:
            reason = f"{exc}; no message is passed over: mend it by updateFilter"
            self._pauses.failed(key, reason)
            self._note(name, str(exc))
            raise ServerError(reason) from exc
        self._pauses.worked(key)
        if len(answer.verdicts) != len(records):
            self._note(name, answer.error)
            raise ServerError(f"filter function {name!r} is broken: {answer.error}")
        tally = self.tally(name)
        tally.judged += len(records)
        tally.accepted += sum(answer.verdicts)
        tally.failed += answer.failed
        if answer.failed:
            self._note(name, answer.error)
        return answer.verdicts

    async def update(self, name: str, source: str) -> None:
        """Register a function, or replace it; it is on the disk when this returns.

        Raises:
            Refusal: functions are off, or this is none; says why.
        """
        if not self._cell.value.filter_server_nums:
            raise NoPermission("filter functions are off: set filterServerNums and restart")
        if not _NAME.fullmatch(name):
            raise InvalidParameter(f"{name!r}: a name has 1 to 64 letters, digits, _ and -")
        if len(source.encode()) > MAX_SOURCE:
            raise InvalidParameter(f"a source of more than {MAX_SOURCE} bytes")
        if name not in self._functions and len(self._functions) >= _MAX_FUNCTIONS:
            raise InvalidParameter(f"there are {_MAX_FUNCTIONS} functions: delete some first")
        await self._check(FilterFunction(name=name, source=source))
        async with self._writing:
            version = max(int(self._now() * 1000), self._version_after(name))
            function = FilterFunction(name=name, source=source, version=version)
            await self._keep(self._functions | {name: function})
        self._tallies.pop(name, None)

    async def delete(self, name: str) -> None:
        """Raises QueryNotFound if there is none."""
        async with self._writing:
            if name not in self._functions:
                raise QueryNotFound(f"there is no filter function {name!r}; see listFilters")
            await self._keep({key: each for key, each in self._functions.items() if key != name})
        self._tallies.pop(name, None)

    async def stop(self) -> None:
        if self._pool is not None:
            await self._pool.stop()

    @property
    def _functions(self) -> dict[str, FilterFunction]:
        return self._table.value.functions

    def _version_after(self, name: str) -> int:
        found = self.find(name)
        return found.version + 1 if found else 1

    def _workers(self) -> WorkerPool:
        if self._pool is None:
            config = self._cell.value
            self._pool = WorkerPool(
                config.filter_server_nums,
                seconds=config.filter_function_timeout,
                memory=config.filter_function_memory,
            )
        return self._pool

    async def _check(self, function: FilterFunction) -> None:
        try:
            fault = await self._workers().check(_code(function))
        except WorkersBusy as exc:
            raise ServerError(f"{function.name!r} is not registered: {exc}") from exc
        except WorkerFailed as exc:
            raise InvalidParameter(f"{function.name!r} is not registered: {exc}") from exc
        if fault:
            raise InvalidParameter(f"{function.name!r} is not registered: {fault}")

    async def _keep(self, functions: dict[str, FilterFunction]) -> None:
        before = self._table.value
        self._table.value = FunctionTable(functions=functions)
        self._table.changed()
        try:
            await uninterrupted(on_saving_thread(self._table.save))
        except OSError as exc:
            self._table.value = before
            raise ServerError(f"{self._table.path} cannot be written: {exc}") from exc

    def _note(self, name: str, error: str) -> None:
        tally, now = self.tally(name), time.monotonic()
        tally.error = error
        if now - tally.told >= _QUIET or not tally.told:
            tally.told = now
            log.warning("filter function %s: %s", name, error)


def _code(function: FilterFunction) -> Code:
    return Code(function.name, function.source, function.version)


class FilterHandlers:
    """Changes the filter functions of a broker and tells of them."""

    def __init__(self, functions: FilterFunctions) -> None:
        self._functions = functions

    @handles(
        FilterFunctionHeader, RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION, max_body=MAX_SOURCE + 1
    )
    async def update(self, request: Request[FilterFunctionHeader]) -> Reply:
        name = request.header.name
        try:
            source = request.body.decode()
        except UnicodeDecodeError as exc:
            raise InvalidParameter(f"the source of {name!r} is not UTF-8") from exc
        await self._functions.update(name, source)
        log.info("%s registered the filter function %s", request.connection.peer, name)
        return Reply()

    @handles(FilterFunctionHeader, RequestCode.BOLIDE_DELETE_FILTER_FUNCTION)
    async def delete(self, request: Request[FilterFunctionHeader]) -> Reply:
        await self._functions.delete(request.header.name)
        log.info("%s deleted the filter function %s", request.connection.peer, request.header.name)
        return Reply()

    @handles(FilterFunctionHeader, RequestCode.BOLIDE_GET_FILTER_FUNCTION)
    def get(self, request: Request[FilterFunctionHeader]) -> Reply:
        found = self._functions.find(request.header.name)
        if found is None:
            raise QueryNotFound(f"there is no filter function {request.header.name!r}")
        return Reply(body=fastjson.encode(found))

    @handles(NoHeader, RequestCode.BOLIDE_LIST_FILTER_FUNCTIONS)
    def list(self, request: Request[NoHeader]) -> Reply:
        states = FilterFunctionStates(
            functions=[self._state(each.name) for each in self._functions.all]
        )
        return Reply(body=fastjson.encode(states))

    def _state(self, name: str) -> FilterFunctionState:
        tally, function = self._functions.tally(name), self._functions.find(name)
        return FilterFunctionState(
            name=name,
            version=function.version if function else 0,
            judged=tally.judged,
            accepted=tally.accepted,
            failed=tally.failed,
            error=tally.error,
        )
