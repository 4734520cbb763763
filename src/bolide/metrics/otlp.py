"""Families to an OpenTelemetry collector, by the exporter of OpenTelemetry's SDK over gRPC.

The same families as for Prometheus: nothing is counted twice. Importing this module needs nothing;
making an `OtlpSender` needs the extra `otel`.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bolide.distribution import Distribution
from bolide.errors import ConfigError
from bolide.metrics.families import Family, Kind, Labels, Value
from bolide.metrics.settings import MetricsSettings, pairs_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export as sdk

log = logging.getLogger(__name__)

_MEMORY_LIMIT = 2_000_000
"""Series whose last values are kept for metricsInDelta."""

_Key = tuple[str, Labels, Labels]
"""The name of a family, the values of its common labels, and those of a series."""


class _Batch:
    """The points of one call to the collector."""

    def __init__(self) -> None:
        self.by_meter: dict[str, list[sdk.Metric]] = {}
        self.size = 0
        self.values: dict[_Key, tuple[int, Value]] = {}
        """For metricsInDelta: the totals that were measured, and when."""


class OtlpSender:
    """Exports families; for one thread.

    Raises:
        ConfigError: packages are missing, or the target is not an address.
    """

    def __init__(self, config: MetricsSettings) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # noqa: PLC0415
                OTLPMetricExporter,
            )
            from opentelemetry.sdk.metrics import export  # noqa: PLC0415
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.util.instrumentation import (  # noqa: PLC0415
                InstrumentationScope,
            )
        except ModuleNotFoundError as exc:
            raise ConfigError(
                f"metricsExporterType=OTLP_GRPC needs the package {exc.name}: install it with"
                " pip install 'bolide[otel]'"
            ) from exc
        self._sdk = export
        self._resource = Resource({})
        self._scope_of = InstrumentationScope
        self._is_delta = config.metrics_in_delta
        self._batch = config.metrics_export_batch
        self._timeout = config.metric_grpc_exporter_timeout
        self._interval = config.metric_grpc_exporter_interval
        target = config.metrics_grpc_exporter_target.strip()
        headers = pairs_of(
            "metricsGrpcExporterHeader", config.metrics_grpc_exporter_header or "", secret=True
        )
        self._exporter = OTLPMetricExporter(
            endpoint=target if "://" in target else f"https://{target}",
            insecure=target.startswith("http://"),
            headers=tuple((name.lower(), value) for name, value in headers.items()),
            timeout=self._timeout,
        )
        self._closed = threading.Event()
        self._started = time.time_ns()
        self._before: dict[_Key, tuple[int, Value]] = {}
        """With metricsInDelta, what the collector knows of counters and histograms."""

    def export(self, families: Iterable[Family]) -> None:
        """Send the families; after a call that fails, the rest waits for the next export."""
        batches = list(self._batches(families, time.time_ns()))
        until = time.monotonic() + max(self._interval, self._timeout)
        for number, batch in enumerate(batches):
            if number and time.monotonic() >= until:
                log.warning(
                    "the collector took %s of %s batches of metrics within"
                    " metricGrpcExporterIntervalInMills", number, len(batches),
                )  # fmt: skip
                return
            if self._closed.is_set() or not self._send(batch):
                return
            room = _MEMORY_LIMIT - len(self._before)
            self._before |= {
                key: value
                for place, (key, value) in enumerate(batch.values.items())
                if place < room or key in self._before
            }

    def close(self) -> None:
        """Interrupts an export that another thread is in."""
        self._closed.set()
        self._exporter.shutdown(timeout_millis=self._timeout * 1000)

    def _send(self, batch: _Batch) -> bool:
        """Whether the collector has taken it; otherwise the SDK has logged why."""
        scopes = [
            self._sdk.ScopeMetrics(scope=self._scope_of(meter), metrics=metrics, schema_url="")
            for meter, metrics in batch.by_meter.items()
        ]
        whole = self._sdk.ResourceMetrics(
            resource=self._resource, scope_metrics=scopes, schema_url=""
        )
        try:
            result = self._exporter.export(self._sdk.MetricsData(resource_metrics=[whole]))
        except Exception:
            if self._closed.is_set():  # gRPC's channel was closed under it
                return False
            raise
        return result is self._sdk.MetricExportResult.SUCCESS

    def _batches(self, families: Iterable[Family], now: int) -> Iterator[_Batch]:
        batch = _Batch()
        for family in families:
            points: list[Any] = []
            for point, key, total in self._points(family, now):
                points.append(point)
                batch.size += 1
                if self._is_delta and family.kind is not Kind.GAUGE:
                    batch.values[key] = now, total
                if batch.size >= self._batch:
                    self._add(batch, family, points)
                    yield batch
                    batch, points = _Batch(), []
            if points:
                self._add(batch, family, points)
        if batch.size:
            yield batch

    def _add(self, batch: _Batch, family: Family, points: list[Any]) -> None:
        metric = self._sdk.Metric(
            name=family.name,
            description=family.help,
            unit=family.unit,
            data=self._data(family.kind, points),
        )
        batch.by_meter.setdefault(family.scope.meter, []).append(metric)

    def _data(self, kind: Kind, points: list[Any]) -> Any:
        if kind is Kind.GAUGE:
            return self._sdk.Gauge(data_points=points)
        temporality = self._sdk.AggregationTemporality
        chosen = temporality.DELTA if self._is_delta else temporality.CUMULATIVE
        if kind is Kind.HISTOGRAM:
            return self._sdk.Histogram(data_points=points, aggregation_temporality=chosen)
        return self._sdk.Sum(data_points=points, aggregation_temporality=chosen, is_monotonic=True)

    def _points(self, family: Family, now: int) -> Iterator[tuple[Any, _Key, Value]]:
        """Points, with what they are counted by and the total that was measured."""
        shared = dict(family.scope.labels)
        scope = tuple(text for _, text in family.scope.labels)
        for values, value in family.limited():
            own = zip(family.labels, values, strict=True)
            attributes = shared | {key: text for key, text in own if text}
            total = value.copy() if isinstance(value, Distribution) else value  # it counts on
            key = family.name, scope, values
            since, before = self._before.get(key, (self._started, None))
            shown = _growth(total, before)
            if isinstance(shown, Distribution):
                point: Any = self._sdk.HistogramDataPoint(
                    attributes=attributes,
                    start_time_unix_nano=since,
                    time_unix_nano=now,
                    count=sum(shown.counts),
                    sum=shown.total,
                    bucket_counts=shown.counts,
                    explicit_bounds=shown.bounds,
                    min=None,  # type: ignore[arg-type]  # not measured, and optional on the wire
                    max=None,  # type: ignore[arg-type]
                )
            else:
                point = self._sdk.NumberDataPoint(
                    attributes=attributes,
                    start_time_unix_nano=0 if family.kind is Kind.GAUGE else since,
                    time_unix_nano=now,
                    value=shown,
                )
            yield point, key, total


def _growth(value: Value, before: Value | None) -> Value:
    """What was added since an export; all, if the counter began anew meanwhile."""
    if isinstance(value, Distribution):
        return value.since(before if isinstance(before, Distribution) else None)
    if isinstance(before, int | float) and before <= value:
        return value - before
    return value
