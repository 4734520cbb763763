"""Export to an OpenTelemetry collector: a real gRPC server that keeps what it receives."""

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from bolide.broker.settings.config import load_settings
from bolide.distribution import Distribution
from bolide.errors import ConfigError
from bolide.metrics import periodic
from bolide.metrics.exporter import Collection, Exporter, Readiness
from bolide.metrics.families import Family, Kind, Scope, Series
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
        self.is_refusing = False
        outer = self

        class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
            def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  of the protocol
                outer.calls += 1
                if outer.is_refusing:
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not now")
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
            metrics_in_delta=True,
            metrics_grpc_exporter_target=f"http://127.0.0.1:{collector.port}",
            metrics_export_batch=2,  # of three points
        )
    )

    def export() -> tuple[int, list[int], float]:
        """What the collector has received: a count, and a histogram's buckets and sum."""
        sender.export(source.families())
        counted = collector.metrics["rocketmq_messages_in_total"].sum
        assert counted.aggregation_temporality == 1  # AGGREGATION_TEMPORALITY_DELTA
        (sizes,) = collector.metrics["rocketmq_message_size"].histogram.data_points
        assert not sizes.HasField("min")  # nobody measured it
        assert not sizes.HasField("max")
        return counted.data_points[0].as_int, list(sizes.bucket_counts), sizes.sum

    assert export() == (5, [2, 0, 0], 10)
    source.count += 2
    source.sizes.add(50)
    assert export() == (2, [0, 1, 0], 50)
    lag = collector.metrics["rocketmq_consumer_lag_latency"].gauge.data_points[0]
    assert lag.as_int == 1500
    # What the collector did not take is sent with what came later.
    collector.is_refusing, calls = True, collector.calls
    source.count += 1
    export()
    assert collector.calls == calls + 1  # not once for each batch
    collector.is_refusing = False
    source.count += 1
    assert export() == (2, [0, 0, 0], 0)
    # A topic is deleted and made again.
    source.count, source.sizes = 3, Distribution((10, 100))
    source.sizes.add(5)
    assert export() == (3, [1, 0, 0], 5)
    sender.close()


@on_loop
async def test_a_collector_that_is_away_harms_nobody() -> None:
    source = Source()
    config = Settings(
        metrics_grpc_exporter_target="http://127.0.0.1:1", metric_grpc_exporter_timeout=0.1
    )
    async with Exporter(config, source.begin, Readiness):
        await asyncio.sleep(0.3)
    assert source.threads


@pytest.mark.parametrize("is_running", [True, False])
@on_loop
async def test_a_collector_that_hangs_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    monkeypatch.setattr(periodic, "_STOP_TIMEOUT", 0.3)
    exports, most = 0, 0
    real = OtlpSender.export

    def counted(sender: OtlpSender, families: Iterable[Family]) -> None:
        nonlocal exports, most
        exports += 1
        most = max(most, exports)
        real(sender, families)
        exports -= 1

    monkeypatch.setattr(OtlpSender, "export", counted)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = Settings(
            metrics_grpc_exporter_target=f"http://127.0.0.1:{silent.getsockname()[1]}",
            metric_grpc_exporter_interval=0.05 if is_running else 60.0,
            metric_grpc_exporter_timeout=60.0,
            metrics_export_batch=1,
        )
        source = Source()
        async with Exporter(config, source.begin, Readiness):
            if is_running:
                await until(lambda: exports == 1)
        assert (exports, most) == (0, 1)
    threads = [each for each in threading.enumerate() if "metrics-export" in each.name]
    assert all(each.daemon for each in threads)


@on_loop
async def test_a_long_collection_ends_with_the_server(
    monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    monkeypatch.setattr(periodic, "_STOP_TIMEOUT", 0.1)
    is_collecting = False

    def endless() -> Iterator[Series]:
        nonlocal is_collecting
        is_collecting = True
        try:
            for number in count():
                yield (str(number),), number
        finally:
            is_collecting = False

    def begin() -> Collection:
        return lambda _: iter([Family("g", Kind.GAUGE, "x", endless(), labels=("n",), limit=1)])

    config = Settings(metrics_grpc_exporter_target=f"http://127.0.0.1:{collector.port}")
    async with Exporter(config, begin, Readiness) as exporter:
        await until(lambda: is_collecting)
        await exporter.quiet()
        assert not is_collecting  # what it reads is closed now


@on_loop
async def test_a_collection_that_fails_is_the_loss_of_one_export(collector: Collector) -> None:
    source, begun = Source(), 0

    def begin() -> Collection:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise RuntimeError("dictionary changed size during iteration")
        return source.begin()

    config = Settings(metrics_grpc_exporter_target=f"http://127.0.0.1:{collector.port}")
    async with Exporter(config, begin, Readiness):
        await until(lambda: collector.calls >= 1)


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
