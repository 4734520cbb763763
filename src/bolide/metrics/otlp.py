"""Families to an OpenTelemetry collector, by the exporter of OpenTelemetry's SDK over gRPC.

The same families as for Prometheus: nothing is counted twice. Importing this module needs nothing;
making an `OtlpSender` needs the extra `otel`.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bolide.distribution import Distribution
from bolide.errors import ConfigError
from bolide.metrics.families import Family, Kind, Labels, Value
from bolide.metrics.settings import MetricsSettings, pairs_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export as sdk

_MEMORY_LIMIT = 2_000_000
"""Series whose last values are kept for metricsInDelta."""


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
        target = config.metrics_grpc_exporter_target.strip()
        headers = pairs_of(
            "metricsGrpcExporterHeader", config.metrics_grpc_exporter_header or "", secret=True
        )
        self._exporter = OTLPMetricExporter(
            endpoint=target if "://" in target else f"https://{target}",
            insecure=target.startswith("http://"),
            headers=tuple((name.lower(), value) for name, value in headers.items()),
            timeout=self._timeout,
            max_export_batch_size=self._batch,
        )
        self._started = self._last = time.time_ns()
        self._before: dict[tuple[str, Labels, Labels], Value] = {}

    def export(self, families: Iterable[Family]) -> None:
        """Send the families. A collector that cannot be reached is logged by the SDK."""
        now = time.time_ns()
        by_meter: dict[str, list[sdk.Metric]] = {}
        for family in families:
            found = list(self._points(family, now))
            if found:
                metric = self._sdk.Metric(
                    name=family.name,
                    description=family.help,
                    unit=family.unit,
                    data=self._data(family.kind, found),
                )
                by_meter.setdefault(family.scope.meter, []).append(metric)
        self._last = now
        scopes = [
            self._sdk.ScopeMetrics(scope=self._scope_of(meter), metrics=metrics, schema_url="")
            for meter, metrics in by_meter.items()
        ]
        whole = self._sdk.ResourceMetrics(
            resource=self._resource, scope_metrics=scopes, schema_url=""
        )
        self._exporter.export(
            self._sdk.MetricsData(resource_metrics=[whole]), timeout_millis=self._timeout * 1000
        )

    def close(self) -> None:
        self._exporter.shutdown(timeout_millis=self._timeout * 1000)

    def _data(self, kind: Kind, points: list[Any]) -> Any:
        if kind is Kind.GAUGE:
            return self._sdk.Gauge(data_points=points)
        temporality = self._sdk.AggregationTemporality
        chosen = temporality.DELTA if self._is_delta else temporality.CUMULATIVE
        if kind is Kind.HISTOGRAM:
            return self._sdk.Histogram(data_points=points, aggregation_temporality=chosen)
        return self._sdk.Sum(data_points=points, aggregation_temporality=chosen, is_monotonic=True)

    def _points(self, family: Family, now: int) -> Iterator[Any]:
        shared = dict(family.scope.labels)
        since = self._last if self._is_delta and family.kind is not Kind.GAUGE else self._started
        for values, value in family.limited():
            own = zip(family.labels, values, strict=True)
            attributes = shared | {key: text for key, text in own if text}
            shown = self._grown(family, values, value)
            if isinstance(shown, Distribution):
                yield self._sdk.HistogramDataPoint(
                    attributes=attributes,
                    start_time_unix_nano=since,
                    time_unix_nano=now,
                    count=sum(shown.counts),
                    sum=shown.total,
                    bucket_counts=shown.counts,
                    explicit_bounds=shown.bounds,
                    min=0,
                    max=0,
                )
            else:
                yield self._sdk.NumberDataPoint(
                    attributes=attributes,
                    start_time_unix_nano=0 if family.kind is Kind.GAUGE else since,
                    time_unix_nano=now,
                    value=shown,
                )

    def _grown(self, family: Family, values: Labels, value: Value) -> Value:
        """What is sent: the total, or the growth since the last export."""
        if isinstance(value, Distribution):
            value = value.copy()  # the original goes on counting
        if not self._is_delta or family.kind is Kind.GAUGE:
            return value
        key = family.name, tuple(text for _, text in family.scope.labels), values
        before = self._before.get(key)
        if len(self._before) < _MEMORY_LIMIT or before is not None:
            self._before[key] = value
        if isinstance(value, Distribution):
            return value.since(before if isinstance(before, Distribution) else None)
        return value - before if isinstance(before, int | float) else value
