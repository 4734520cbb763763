"""`Exporter` makes the metrics of a server available in the ways that its settings ask for."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import chain
from types import TracebackType
from typing import Any, Self, TypeVar

from bolide.metrics.endpoint import Asked, Endpoint, Response, json_response, listen, text_response
from bolide.metrics.exposition import CONTENT_TYPE, Pace, compress, render
from bolide.metrics.families import Family, Kind, Series
from bolide.metrics.periodic import PeriodicExport, Sender, Stopped
from bolide.metrics.settings import ExporterType, MetricsSettings
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)

T = TypeVar("T")

_REUSED = 1.0
"""Seconds for which a text answers further requests: many scrapes cost no more than one."""
_ANY_ROLE = "role=any"
"""A query of /readyz: a slave is ready, too."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a server does its work now.

    Args:
        missing: what it lacks, by a short name, with a sentence each.
        facts: more about its state.
    """

    missing: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


Collection = Callable[[Callable[[], None]], Iterator[Family]]
"""Yields the families of a server, on a thread. It calls its argument after every little work, so
that the interpreter is not held for long."""


class Exporter:
    """Serves and sends metrics while its `async with` block runs.

    Args:
        begin: begins a collection; called on the event loop, it takes what only that may look at.
        readiness: what is missing; called on the event loop.
        prepare: what takes too long for `begin`, in steps of few milliseconds; called before it.
        any_port: take any port if none is set, for a server whose own port may be any.
    """

    def __init__(
        self,
        config: MetricsSettings,
        begin: Callable[[], Collection],
        readiness: Callable[[], Readiness],
        *,
        prepare: Callable[[], Iterable[None]] = tuple,
        any_port: bool = False,
    ) -> None:
        self._config = config
        self._prepare = prepare
        self._begin = begin
        self._readiness = readiness
        self._any_port = any_port and not config.metrics_port_given
        self._endpoint: Endpoint | None = None
        self._threads = ThreadPoolExecutor(2, "bolide-metrics")
        self._stopping = threading.Event()
        self._running: dict[bool, asyncio.Task[list[bytes]]] = {}
        """Collections under way, by whether the result is compressed."""
        self._recent: dict[bool, list[bytes]] = {}
        self._periodic: PeriodicExport | None = None
        self._scrapes = 0
        self._seconds = 0.0
        self._dropped: dict[str, int] = {}

    @property
    def address(self) -> str | None:
        """Where /metrics is served, as `host:port`; None if it is not."""
        return None if self._endpoint is None else self._endpoint.address

    async def __aenter__(self) -> Self:
        config = self._config
        if not config.serves_metrics:
            return self
        sender = self._sender()
        port = 0 if self._any_port else config.metrics_prom_exporter_port
        must_be_this = config.metrics_port_given
        listener = await uninterrupted(  # it looks the name of the host up
            asyncio.to_thread(listen, config.metrics_host, port, must_be_this=must_be_this)
        )
        routes = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}
        self._endpoint = Endpoint(listener, routes)
        await self._endpoint.open()
        if sender is not None:
            self._periodic = PeriodicExport(*sender, self._begin_export)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.quiet()
        if self._endpoint is not None:
            await self._endpoint.close()
        self._endpoint = None
        self._threads.shutdown(wait=False)

    async def quiet(self) -> None:
        """Collect no more: what collections read is about to be closed. Health is still served."""
        if self._periodic is not None:
            await self._periodic.finish()
        self._stopping.set()  # a collection that still runs ends here
        if self._periodic is not None:
            await self._periodic.close()
            self._periodic = None
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _sender(self) -> tuple[Sender, float] | None:
        config = self._config
        if config.metrics_exporter_type is ExporterType.OTLP_GRPC:
            from bolide.metrics.otlp import OtlpSender  # noqa: PLC0415  needs an extra

            return OtlpSender(config), config.metric_grpc_exporter_interval
        if config.metrics_exporter_type is ExporterType.LOG:
            return LogSender(), config.metric_logging_exporter_interval
        return None

    def forget_recent(self) -> None:
        """Have the next request collect anew."""
        self._recent.clear()

    # ---- over HTTP

    async def _metrics(self, asked: Asked) -> Response:
        gzip = asked.accepts_gzip
        try:
            body = await self._text(gzip=gzip)
        except Stopped:
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, "the server stops")
        return Response(body, content_type=CONTENT_TYPE, encoding="gzip" if gzip else "")

    async def _health(self, _: Asked) -> Response:
        return json_response(HTTPStatus.OK, {"status": "ok"})

    async def _ready(self, asked: Asked) -> Response:
        found = self._readiness()
        missing = dict(found.missing)
        if _ANY_ROLE in asked.query.split("&"):
            missing.pop("role", None)
        status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
        content = {"ready": not missing, "missing": missing, **found.facts}
        return json_response(status, content)

    async def _text(self, *, gzip: bool) -> list[bytes]:
        """The metrics as text; requests at the same time share one collection."""
        if gzip in self._recent:
            return self._recent[gzip]
        running = self._running.get(gzip)
        if running is None:
            running = self._running[gzip] = asyncio.create_task(self._make(gzip))
            running.add_done_callback(lambda _: self._running.pop(gzip, None))
        return await asyncio.shield(running)

    async def _make(self, gzip: bool) -> list[bytes]:
        made = await self._on_thread(self._render, await self._begun(), gzip)
        self._recent[gzip] = made
        asyncio.get_running_loop().call_later(_REUSED, self._recent.pop, gzip, None)
        return made

    async def _begun(self) -> Collection:
        """Begin a collection, and let other tasks run meanwhile."""
        for _ in self._prepare():
            await asyncio.sleep(0)
        return self._begin()

    def _render(self, collection: Collection, gzip: bool) -> list[bytes]:
        """Blocks."""
        started = time.perf_counter()
        pace = self._pace()
        pieces = chain(render(self._families(collection, pace), pace), _process_metrics())
        made = list(compress(pieces) if gzip else pieces)
        self._scrapes += 1
        self._seconds = time.perf_counter() - started
        return made

    def _pace(self) -> Callable[[], None]:
        pace, stopping = Pace(), self._stopping

        def step() -> None:
            if stopping.is_set():
                raise Stopped
            pace()

        step()
        return step

    def _families(self, collection: Collection, pace: Callable[[], None]) -> Iterator[Family]:
        """The families of the server, and what is known about their collection."""
        dropped = {}
        for family in collection(pace):
            if family.limit is None:
                family.limit = self._config.metrics_cardinality_limit
            yield family
            if family.dropped:
                dropped[family.full_name] = family.dropped
        for name in dropped.keys() - self._dropped.keys():
            log.warning(
                "%s has more series than metricsOtelCardinalityLimit=%s: %s are left out",
                name, self._config.metrics_cardinality_limit, dropped[name],
            )  # fmt: skip
        self._dropped = dropped
        yield from self._own_families()

    def _own_families(self) -> Iterator[Family]:
        yield Family(
            "bolide_metrics_series_dropped",
            Kind.GAUGE,
            "Series left out of a metric because of metricsOtelCardinalityLimit.",
            [((name,), count) for name, count in sorted(self._dropped.items())],
            labels=("metric",),
        )
        yield Family(
            "bolide_metrics_collections_total",
            Kind.COUNTER,
            "How often the metrics were collected.",
            [((), self._scrapes + 1)],
        )
        yield Family(
            "bolide_metrics_last_collection_seconds",
            Kind.GAUGE,
            "Seconds that the collection before this one took, on a thread.",
            [((), self._seconds)],
        )

    async def _on_thread(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    # ---- to others

    async def _begin_export(self) -> Iterator[Family]:
        collection, pace = await self._begun(), self._pace()
        return _paced(self._families(collection, pace), pace)


def _process_metrics() -> Iterator[bytes]:
    """What `prometheus_client` knows of: the process, Python, and metrics of hooks of the user.

    It is imported by the first scrape: it takes megabytes of memory.
    """
    from prometheus_client import REGISTRY, generate_latest  # noqa: PLC0415

    yield generate_latest(REGISTRY)


def _paced(families: Iterable[Family], pace: Callable[[], None]) -> Iterator[Family]:
    for family in families:
        family.series = _rested(family.series, pace)
        yield family


def _rested(found: Iterable[Series], pace: Callable[[], None]) -> Iterator[Series]:
    for number, series in enumerate(found):
        if number & 31 == 0:
            pace()
        yield series


class LogSender:
    """Writes the metrics to the log, a line for each series."""

    def export(self, families: Iterable[Family]) -> None:
        for piece in render(families, lambda: None):
            for line in piece.decode().splitlines():
                if not line.startswith("#"):
                    log.info("%s", line)

    def close(self) -> None:
        """Nothing is open."""
