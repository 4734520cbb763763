"""Settings of metrics, common to all servers, under RocketMQ's keys."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bolide.config import option
from bolide.errors import ConfigError
from bolide.metrics.families import label_name
from bolide.remoting.settings import LOOPBACK

_DAY_MS = 86_400_000
_INT_MAX = 2**31 - 1

BROKER_PORT: Final = 5557
"""RocketMQ's default; the other servers look for a free port from lower ones on."""
NAME_SERVER_PORT: Final = 5547
CONTROLLER_PORT: Final = 5537

TAKEN_LABELS: Final = frozenset({
    "address", "aggregation", "broker_set", "cluster", "consume_mode", "consumer_group", "group",
    "invocation_status", "is_long_polling", "is_retry", "is_system", "kind", "language", "le",
    "message_type", "node_id", "node_type", "otel_scope_name", "peer_id", "protocol_type",
    "put_status", "queue_id", "reason", "request_code", "request_handle_status", "request_type",
    "response_code", "result", "storage_medium", "storage_type", "timer_bound_s", "topic",
    "version",
})  # fmt: skip
"""Labels that metrics have of themselves: a second one would make /metrics unreadable."""


class ExporterType(StrEnum):
    DISABLE = "DISABLE"
    PROM = "PROM"
    OTLP_GRPC = "OTLP_GRPC"
    LOG = "LOG"


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """How metrics are exposed. Durations are seconds here, milliseconds in files."""

    metrics_exporter_type: ExporterType = option(
        ExporterType.PROM,
        "PROM: serve /metrics, /healthz and /readyz over HTTP. OTLP_GRPC: also send the metrics to"
        " an OpenTelemetry collector. LOG: also write them to the log. DISABLE: none of these.",
        fixed=True,
    )
    metrics_prom_exporter_port: int = option(
        BROKER_PORT,
        "Port of /metrics. If it is not set and the default is taken, the next free one is used;"
        " 0 lets the system choose.",
        bounds=(0, 65535),
        fixed=True,
    )
    metrics_prom_exporter_host: str = option(
        "",
        "Address on which /metrics is served; the default is 127.0.0.1, this machine only.",
        fixed=True,
    )
    metrics_port_given: bool = option(
        False,
        "Refuse to start if metricsPromExporterPort is taken; true as soon as that is set.",
        ours=True,
        fixed=True,
    )
    metrics_grpc_exporter_target: str = option(
        "",
        "Address of an OpenTelemetry collector, host:port or a URL; without http:// over TLS.",
        fixed=True,
    )
    metrics_grpc_exporter_header: str | None = option(
        None,
        "Headers of each call to the collector, as name:value separated by commas.",
        secret=True,
    )
    metric_grpc_exporter_timeout: float = option(
        3.0, "Milliseconds to wait for an answer of the collector.",
        key="metricGrpcExporterTimeOutInMills", bounds=(1, _DAY_MS), scale=1000,
    )  # fmt: skip
    metric_grpc_exporter_interval: float = option(
        60.0, "Milliseconds between two exports to the collector.",
        key="metricGrpcExporterIntervalInMills", bounds=(100, _DAY_MS), scale=1000,
    )  # fmt: skip
    metric_logging_exporter_interval: float = option(
        10.0, "Milliseconds between two times that the metrics are written to the log.",
        key="metricLoggingExporterIntervalInMills", bounds=(100, _DAY_MS), scale=1000,
    )  # fmt: skip
    metrics_label: str = option(
        "", "Labels to add to every metric of RocketMQ, as name:value separated by commas."
    )
    metrics_in_delta: bool = option(
        False,
        "Send a collector the growth of counters and histograms since the last export instead of"
        " their totals.",
    )
    metrics_cardinality_limit: int = option(
        50_000,
        "Most series of one metric; further ones are left out and counted in"
        " bolide_metrics_series_dropped.",
        key="metricsOtelCardinalityLimit",
        bounds=(1, _INT_MAX),
    )
    metrics_export_batch: int = option(
        1000, "Most data points of one call to the collector.",
        key="metricsExportBatchMaxDataPoints", bounds=(1, _INT_MAX),
    )  # fmt: skip

    @property
    def metrics_host(self) -> str:
        return self.metrics_prom_exporter_host or LOOPBACK

    @property
    def serves_metrics(self) -> bool:
        return self.metrics_exporter_type is not ExporterType.DISABLE


def with_port_given(texts: dict[str, str]) -> dict[str, str]:
    """Note in the texts of a configuration whether they name the port of /metrics."""
    if "metricsPromExporterPort" not in texts:
        return texts
    return {"metricsPortGiven": "true"} | texts


def check_metrics(config: MetricsSettings) -> None:
    """Raises ConfigError if the settings contradict each other."""
    labels_of(config)
    pairs_of("metricsGrpcExporterHeader", config.metrics_grpc_exporter_header or "", secret=True)
    is_sent = config.metrics_exporter_type is ExporterType.OTLP_GRPC
    if is_sent and not config.metrics_grpc_exporter_target.strip():
        raise ConfigError(
            "metricsExporterType=OTLP_GRPC: set metricsGrpcExporterTarget to the address of an"
            " OpenTelemetry collector, such as http://127.0.0.1:4317"
        )


def labels_of(config: MetricsSettings) -> dict[str, str]:
    """The labels of metricsLabel.

    Raises:
        ConfigError: Prometheus could not read a metric that has them.
    """
    labels = pairs_of("metricsLabel", config.metrics_label)
    shown: dict[str, str] = {}
    for name in labels:
        plain = label_name(name)
        if plain in TAKEN_LABELS or plain.startswith("__"):
            why = "is reserved" if plain.startswith("__") else "is a label of metrics already"
            raise ConfigError(f"metricsLabel={name!r}: {plain} {why}; choose another name")
        if plain in shown:
            raise ConfigError(
                f"metricsLabel={name!r}: for Prometheus it is the same name as {shown[plain]!r};"
                " choose another one"
            )
        shown[plain] = name
    return labels


def pairs_of(key: str, text: str, *, secret: bool = False) -> dict[str, str]:
    """The pairs of a setting such as `zone:a,rack:b`.

    Raises:
        ConfigError: a part is not a name and a value.
    """
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, colon, value = part.partition(":")
        if not (name and colon and value) or (not secret and ":" in value):
            shown = "(secret)" if secret else repr(part)
            raise ConfigError(f"{key}={shown}: must be name:value, separated by commas")
        found[name] = value
    return found
