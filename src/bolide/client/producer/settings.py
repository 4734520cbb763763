"""Settings of a producer."""

from collections.abc import Collection
from dataclasses import dataclass, field, fields

from bolide.client.instance.settings import ClientArguments
from bolide.client.producer.queue_choice import FaultTable
from bolide.client.tracing.settings import Telemetry, Trace
from bolide.errors import ConfigError
from bolide.model.message import CompressionType
from bolide.protocol.codes import ResponseCode

RETRIED_CODES = frozenset({
    ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY,
})  # fmt: skip
"""Refusals after which another broker is tried, as Java's producer does."""


class ProducerArguments(ClientArguments, total=False):
    """The keyword arguments of a producer; see `ProducerSettings`."""

    send_timeout: float
    retries: int
    try_timeout: float | None
    retry_another_broker_when_not_store_ok: bool
    retried_codes: Collection[int]
    compress_over: int
    compression: CompressionType
    compression_level: int
    max_message_size: int
    max_sends_under_way: int
    max_bytes_under_way: int
    default_topic_queue_nums: int
    create_topic_key: str
    latency_faults: bool
    fault_table: FaultTable
    trace: bool | Trace
    telemetry: Telemetry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer; durations in seconds, sizes in bytes."""

    send_timeout: float = 3.0
    """Timeout of a send, including retries."""

    retries: int = 2
    """Tries after the first one, each at another broker if possible."""

    try_timeout: float | None = None
    """Timeout of a try that others may follow; by default the remaining time."""

    retry_another_broker_when_not_store_ok: bool = False
    """Whether to try another broker if one stored the message with a status other than SEND_OK."""

    retried_codes: Collection[int] = RETRIED_CODES
    compress_over: int = 4096
    """Bodies of at least this size are compressed, except in batches."""

    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = 5
    max_message_size: int = 4 * 1024 * 1024
    max_sends_under_way: int = 10_000
    max_bytes_under_way: int = 100 * 1024 * 1024
    default_topic_queue_nums: int = 4
    """Number of queues of a topic that a broker creates for its first message."""

    create_topic_key: str = "TBW102"
    """The template topic from which brokers create new topics."""

    latency_faults: bool = False
    """Whether to avoid brokers that were slow or failed, as `fault_table` defines."""

    fault_table: FaultTable = field(default_factory=FaultTable)
    trace: bool | Trace = False
    """Whether to send a trace of every send to the trace topic; see `Trace`."""

    telemetry: Telemetry | None = None
    """Creates spans around sends, such as `tracing.opentelemetry.OpenTelemetry()`."""

    def __post_init__(self) -> None:
        at_least = {
            "retries": 0, "max_message_size": 1, "max_sends_under_way": 1,
            "max_bytes_under_way": 1, "default_topic_queue_nums": 1, "compress_over": 0,
        }  # fmt: skip
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)}: must be at least {least}")
        if self.send_timeout <= 0:
            raise ConfigError(f"send_timeout={self.send_timeout}: must be over 0 seconds")


SETTING_NAMES = frozenset(each.name for each in fields(ProducerSettings))
