"""Filter functions: Python source registered by an administrator, and the requests that manage it.

This is the idea of RocketMQ's FilterServer, with worker processes owned by the broker
(`worker_pool`). A function that raises does not accept that message. When a function hangs or kills
its worker, the pull is refused and retried, so that no message is skipped unseen. After repeated
failures, `Cooldowns` keeps such a function from occupying the workers.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from bolide.auth.access import Access
from bolide.broker.background import on_saving_thread
from bolide.broker.filters.worker_pool import FunctionCode, WorkerFailed, WorkerPool, WorkersBusy
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

log = logging.getLogger(__name__)

FIRST_COOLDOWN, MAX_COOLDOWN = 1.0, 30.0
"""Seconds; each cooldown is twice as long as the one before."""
_EVICTION_SIZE = 1024
MAX_SOURCE = 64 * 1024
_MAX_FUNCTIONS = 256
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WARNING_INTERVAL = 60.0
"""Seconds between two log lines about a failing function."""


class Cooldown(NamedTuple):
    reason: str
    seconds: float
    end: float


class Cooldowns:
    """Exponential back-off of failing functions, by key."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._by_key: dict[Hashable, Cooldown] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: Hashable) -> Cooldown | None:
        """Return the cooldown that is not over yet."""
        found = self._by_key.get(key)
        return found if found is not None and found.end > self._now() else None

    def record_failure(self, key: Hashable, reason: str) -> None:
        before, now = self._by_key.pop(key, None), self._now()
        seconds = min(before.seconds * 2, MAX_COOLDOWN) if before else FIRST_COOLDOWN
        if len(self._by_key) >= _EVICTION_SIZE:
            self._by_key = {each: pause for each, pause in self._by_key.items() if pause.end > now}
        self._by_key[key] = Cooldown(reason, seconds, now + seconds)

    def reset(self, key: Hashable) -> None:
        self._by_key.pop(key, None)


class FunctionTable(Struct, kw_only=True):
    """Registered functions by name."""

    functions: dict[str, FilterFunction] = msgspec.field(default_factory=dict)


FILTER_FUNCTIONS = TableKind(
    "filterFunctions.json",
    FunctionTable,
    0.0,
    lambda table: msgspec.json.format(msgspec.json.encode(table), indent=1),
)


@dataclass(slots=True)
class FunctionCounts:
    """Counters of a function since the broker started."""

    judged: int = 0
    accepted: int = 0
    failed: int = 0
    error: str = ""
    warned_at: float = field(default=0.0, repr=False)


class FilterFunctions:
    """The filter functions of one broker, on a loaded table; belongs to one event loop."""

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
        self._counts: dict[str, FunctionCounts] = {}
        self._cooldowns = Cooldowns()
        self._write_lock = asyncio.Lock()  # serializes writers of the table file

    @property
    def all(self) -> list[FilterFunction]:
        return sorted(self._functions.values(), key=lambda function: function.name)

    def counts(self, name: str) -> FunctionCounts:
        return self._counts.setdefault(name, FunctionCounts())

    def find(self, name: str) -> FilterFunction | None:
        return self._functions.get(name)

    def require(self, name: str) -> FilterFunction:
        """Return the function that a subscription names.

        Raises:
            SubscriptionMalformed: there is no function of that name.
            ServerError: filter functions are disabled.
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

    async def evaluate(
        self, name: str, records: list[bytes], caller: Hashable = None
    ) -> list[bool]:
        """Return which records a function accepts.

        Args:
            caller: owner of the records; a cooldown after a failure applies to this caller only.

        Raises:
            Refusal: there is no such function, or it hangs or dies.
        """
        function = self.require(name)
        key = (caller, name, function.version)
        if cooldown := self._cooldowns.find(key):
            raise ServerError(f"{cooldown.reason}; it is tried again every {cooldown.seconds:g} s")
        try:
            reply = await self._workers().evaluate(_code(function), records)
        except WorkersBusy as exc:
            raise ServerError(str(exc)) from exc
        except WorkerFailed as exc:
            reason = f"{exc}; no message is skipped: fix it with updateFilter"
            self._cooldowns.record_failure(key, reason)
            self._record_error(name, str(exc))
            raise ServerError(reason) from exc
        self._cooldowns.reset(key)
        if len(reply.verdicts) != len(records):
            self._record_error(name, reply.error)
            raise ServerError(f"filter function {name!r} is broken: {reply.error}")
        counts = self.counts(name)
        counts.judged += len(records)
        counts.accepted += sum(reply.verdicts)
        counts.failed += reply.failed
        if reply.failed:
            self._record_error(name, reply.error)
        return reply.verdicts

    async def update(self, name: str, source: str) -> None:
        """Register or replace a function; the table is on disk when this returns.

        Raises:
            Refusal: filter functions are disabled, or the source is invalid.
        """
        if not self._cell.value.filter_server_nums:
            raise NoPermission("filter functions are off: set filterServerNums and restart")
        if not _NAME.fullmatch(name):
            raise InvalidParameter(f"{name!r}: a name has 1 to 64 letters, digits, _ and -")
        if len(source.encode()) > MAX_SOURCE:
            raise InvalidParameter(f"the source has more than {MAX_SOURCE} bytes")
        if name not in self._functions and len(self._functions) >= _MAX_FUNCTIONS:
            raise InvalidParameter(f"there are {_MAX_FUNCTIONS} functions: delete some first")
        await self._check_source(FilterFunction(name=name, source=source))
        async with self._write_lock:
            version = max(int(self._now() * 1000), self._version_after(name))
            function = FilterFunction(name=name, source=source, version=version)
            await self._save(self._functions | {name: function})
        self._counts.pop(name, None)

    async def delete(self, name: str) -> None:
        """Raises QueryNotFound if there is no such function."""
        async with self._write_lock:
            if name not in self._functions:
                raise QueryNotFound(f"there is no filter function {name!r}; see listFilters")
            await self._save({key: each for key, each in self._functions.items() if key != name})
        self._counts.pop(name, None)

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

    async def _check_source(self, function: FilterFunction) -> None:
        try:
            error = await self._workers().check(_code(function))
        except WorkersBusy as exc:
            raise ServerError(f"{function.name!r} is not registered: {exc}") from exc
        except WorkerFailed as exc:
            raise InvalidParameter(f"{function.name!r} is not registered: {exc}") from exc
        if error:
            raise InvalidParameter(f"{function.name!r} is not registered: {error}")

    async def _save(self, functions: dict[str, FilterFunction]) -> None:
        before = self._table.value
        self._table.value = FunctionTable(functions=functions)
        self._table.changed()
        try:
            await uninterrupted(on_saving_thread(self._table.save))
        except OSError as exc:
            self._table.value = before
            raise ServerError(f"{self._table.path} cannot be written: {exc}") from exc

    def _record_error(self, name: str, error: str) -> None:
        counts, now = self.counts(name), time.monotonic()
        counts.error = error
        if now - counts.warned_at >= _WARNING_INTERVAL or not counts.warned_at:
            counts.warned_at = now
            log.warning("filter function %s: %s", name, error)


def _code(function: FilterFunction) -> FunctionCode:
    return FunctionCode(function.name, function.source, function.version)


class FilterHandlers:
    """Serve the registration and listing of filter functions.

    A function is code that the broker runs, so only an identified administrator registers or
    deletes one: access control decides which account may, and without it nobody can.
    """

    def __init__(self, functions: FilterFunctions, access: Access) -> None:
        self._functions = functions
        self._access = access

    @handles(
        FilterFunctionHeader, RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION, max_body=MAX_SOURCE + 1
    )
    async def update(self, request: Request[FilterFunctionHeader]) -> Reply:
        name = request.header.name
        self._require_administrator(request, f"filter function {name!r} is not registered")
        try:
            source = request.body.decode()
        except UnicodeDecodeError as exc:
            raise InvalidParameter(f"the source of {name!r} is not UTF-8") from exc
        await self._functions.update(name, source)
        log.info("%s registered the filter function %s", request.connection.peer, name)
        return Reply()

    @handles(FilterFunctionHeader, RequestCode.BOLIDE_DELETE_FILTER_FUNCTION)
    async def delete(self, request: Request[FilterFunctionHeader]) -> Reply:
        self._require_administrator(
            request, f"filter function {request.header.name!r} is not deleted"
        )
        await self._functions.delete(request.header.name)
        log.info("%s deleted the filter function %s", request.connection.peer, request.header.name)
        return Reply()

    @handles(FilterFunctionHeader, RequestCode.BOLIDE_GET_FILTER_FUNCTION)
    def get(self, request: Request[FilterFunctionHeader]) -> Reply:
        found = self._functions.find(request.header.name)
        if found is None:
            raise QueryNotFound(f"there is no filter function {request.header.name!r}")
        return Reply(body=fastjson.encode(found))

    def _require_administrator(self, request: Request[Any], outcome: str) -> None:
        """Refuse what no administrator has signed, also from addresses that are on a white list."""
        identity = self._access.check(request.frame, request.connection.peer)
        if not self._access.may_bring_code(identity):
            raise NoPermission(
                f"{outcome}: the broker runs filter functions as its own user, so they need access"
                " control; set authenticationEnabled=true or aclEnable=true, and sign the request"
                f" as an administrator, which {identity} is not"
            )

    @handles(NoHeader, RequestCode.BOLIDE_LIST_FILTER_FUNCTIONS)
    def list(self, request: Request[NoHeader]) -> Reply:
        states = FilterFunctionStates(
            functions=[self._state(each.name) for each in self._functions.all]
        )
        return Reply(body=fastjson.encode(states))

    def _state(self, name: str) -> FilterFunctionState:
        counts, function = self._functions.counts(name), self._functions.find(name)
        return FilterFunctionState(
            name=name,
            version=function.version if function else 0,
            judged=counts.judged,
            accepted=counts.accepted,
            failed=counts.failed,
            error=counts.error,
        )
