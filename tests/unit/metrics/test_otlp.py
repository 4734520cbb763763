"""Export to an OpenTelemetry collector: a real gRPC server that keeps what it receives."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from bolide.broker.settings.config import load_settings
from bolide.distribution import Distribution
from bolide.errors import ConfigError
from bolide.metrics.exporter import Collection, Exporter, Readiness
from bolide.metrics.families import Family, Kind, Scope
from bolide.metrics.otlp import OtlpSender
from bolide.metrics.settings import ExporterType, MetricsSettings
from tests.support.aio import on_loop, until

grpc = pytest.importorskip("grpc")


@dataclass(frozen=True, kw_only=True)
class Settings(MetricsSettings):
    metrics_exporter_type: ExporterType = ExporterType.OTLP_GRPC
    metrics_prom_exporter_port: int = 0
    metric_grpc_exporter_interval: float = 0.1


class Collector:
    """Keeps the points of the last export of each metric, and the headers."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.metrics.v1 import (
            metrics_service_pb2,
            metrics_service_pb2_grpc,
        )

        self.metrics: dict[str, Any] = {}
        self.scopes: set[str] = set()
        self.headers: dict[str, str] = {}
        self.calls = 0
        outer = self

        class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
            def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  of the protocol
                outer.calls += 1
                outer.headers = dict(context.invocation_metadata())
                for resource in request.resource_metrics:
                    for scope in resource.scope_metrics:
                        outer.scopes.add(scope.scope.name)
                        for metric in scope.metrics:
                            outer.metrics[metric.name] = metric
                return metrics_service_pb2.ExportMetricsServiceResponse()

        self.server = grpc.server(ThreadPoolExecutor(2))
        add: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
        add(Service(), self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.server.stop(None).wait(5)


class Source:
    def __init__(self) -> None:
        self.count = 5
        self.sizes = Distribution((10, 100))
        self.sizes.add(5, 2)
        self.threads: set[int] = set()

    def families(self) -> Iterator[Family]:
        self.threads.add(threading.get_ident())
        scope = Scope((("cluster", "c"), ("node_id", "broker-a")), "broker-meter")
        yield Family(
            "rocketmq_messages_in_total", Kind.COUNTER, "In.", [(("T", ""), self.count)],
            labels=("topic", "is_retry"), scope=scope,
        )  # fmt: skip
        yield Family(
            "rocketmq_consumer_lag_latency", Kind.GAUGE, "Lag.", [(("g",), 1500)],
            unit="milliseconds", labels=("consumer_group",), scope=scope,
        )  # fmt: skip
        yield Family(
            "rocketmq_message_size", Kind.HISTOGRAM, "Sizes.", [((), self.sizes)], scope=scope
        )

    def begin(self) -> Collection:
        def collection(_: Callable[[], None]) -> Iterator[Family]:
            return self.families()

        return collection


@on_loop
async def test_a_server_exports_periodically_and_at_its_end(collector: Collector) -> None:
    source = Source()
    config = Settings(
        metrics_grpc_exporter_target=f"http://127.0.0.1:{collector.port}",
        metrics_grpc_exporter_header="Authorization:Bearer x:y,tenant:one",
    )
    async with Exporter(config, source.begin, Readiness) as exporter:
        assert exporter.address is not None  # /metrics is served as well
        await until(lambda: collector.calls >= 2)
        source.count = 9
    metric = collector.metrics["rocketmq_messages_in_total"]
    assert metric.sum.is_monotonic
    (point,) = metric.sum.data_points
    assert point.as_int == 9  # exported at the end
    assert {each.key: each.value.string_value for each in point.attributes} == {
        "cluster": "c", "node_id": "broker-a", "topic": "T"
    }  # fmt: skip
    lag = collector.metrics["rocketmq_consumer_lag_latency"]
    assert (lag.unit, lag.gauge.data_points[0].as_int) == ("milliseconds", 1500)
    (sizes,) = collector.metrics["rocketmq_message_size"].histogram.data_points
    assert (list(sizes.bucket_counts), list(sizes.explicit_bounds)) == ([2, 0, 0], [10, 100])
    assert (sizes.count, sizes.sum) == (2, 10)
    assert collector.headers["authorization"] == "Bearer x:y"
    assert collector.headers["tenant"] == "one"
    assert "broker-meter" in collector.scopes
    assert threading.get_ident() not in source.threads


def test_growth_instead_of_totals(collector: Collector) -> None:
    source = Source()
    sender = OtlpSender(
        Settings(
            metrics_in_delta=True, metrics_grpc_exporter_target=f"http://127.0.0.1:{collector.port}"
        )
    )
    sender.export(source.families())
    source.count += 2
    source.sizes.add(50)
    sender.export(source.families())
    sender.close()
    counted = collector.metrics["rocketmq_messages_in_total"].sum
    assert counted.data_points[0].as_int == 2
    assert counted.aggregation_temporality == 1  # AGGREGATION_TEMPORALITY_DELTA
    (sizes,) = collector.metrics["rocketmq_message_size"].histogram.data_points
    assert (list(sizes.bucket_counts), sizes.sum) == ([0, 1, 0], 50)
    assert collector.metrics["rocketmq_consumer_lag_latency"].gauge.data_points[0].as_int == 1500


@on_loop
async def test_a_collector_that_is_away_harms_nobody() -> None:
    source = Source()
    config = Settings(
        metrics_grpc_exporter_target="http://127.0.0.1:1", metric_grpc_exporter_timeout=0.1
    )
    async with Exporter(config, source.begin, Readiness):
        await asyncio.sleep(0.3)
    assert source.threads


def test_settings_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="set metricsGrpcExporterTarget"):
        load_settings({"metricsExporterType": "OTLP_GRPC"})
    with pytest.raises(ConfigError, match=r"metricsLabel='a:b:c': must be name:value"):
        load_settings({"metricsLabel": "zone:a, a:b:c"})
    with pytest.raises(ConfigError, match=r"metricsGrpcExporterHeader=\(secret\)"):
        load_settings({"metricsGrpcExporterHeader": "hush"})
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.metric_exporter", None)
    with pytest.raises(ConfigError, match=r"pip install 'bolide\[otel\]'"):
        OtlpSender(Settings(metrics_grpc_exporter_target="http://127.0.0.1:1"))
