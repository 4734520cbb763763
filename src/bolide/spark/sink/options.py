"""Options of the `rocketmq` sink."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from bolide.client.instance.validation import check_group
from bolide.client.producer.settings import ProducerArguments
from bolide.config import option
from bolide.errors import ConfigError
from bolide.model.message_checks import InvalidMessage, check_topic
from bolide.spark.options import ConnectionOptions
from bolide.store.config import StoreConfig, delay_levels

DEFAULT_GROUP = "spark-rocketmq-sink"
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Stream options that Spark interprets itself, and passes on to the sink."""


class Dedup(StrEnum):
    """Where the deduplication key of a row comes from."""

    AUTO = "auto"
    """The column `dedup_key`, if there is one."""
    TRUE = "true"
    """The column `dedup_key`, else the position in the source; an error if a row has neither."""
    ROW = "row"
    """As TRUE, else the row number: query, batch, partition, row."""
    FALSE = "false"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkOptions(ConnectionOptions):
    """Options of the sink: where rows are sent, and how."""

    topic: str | None = option(
        None, "Target topic of all rows; else the column `topic` of each row."
    )
    producer_group: str = option(DEFAULT_GROUP, "Producer group.")
    send_timeout: float = option(
        10.0,
        "Milliseconds for one request including `retries`; it is then sent again within"
        " `patienceMs`.",
        key="sendTimeoutMs",
        scale=1000,
        bounds=(1, None),
    )
    retries: int = option(
        2, "Retries of a request, each at another broker if the row may go to any queue.",
        bounds=(0, None),
    )  # fmt: skip
    batch_size: int = option(
        2000, "Maximum rows in one request, which is at most 1 MiB.", bounds=(1, 10_000)
    )
    in_flight: int = option(4, "Maximum requests in flight per task.", bounds=(1, None))
    max_rows_per_second: float | None = option(
        None,
        "Maximum rows that one task sends per minute, spread evenly.",
        key="maxRowsPerMinute",
        scale=60,
        bounds=(1, None),
    )
    max_message_size: int = option(
        4 * 1024 * 1024,
        "Maximum bytes of a body; brokers have their own limit.",
        bounds=(1, None),
    )
    mark_rows: bool = option(
        True, "Set the property `SPARK_ROW` of each message: query, batch, partition, row."
    )
    dedup: Dedup = option(
        Dedup.AUTO,
        "Deduplication key, by which a topic with `dedup.window` stores each row once: `auto` uses"
        " the column `dedup_key` if there is one, `true` falls back to the position in the source,"
        " `row` to query, batch, partition and row; `false` sets no key.",
    )
    keep_order: bool = option(
        False, "Send the rows of one source queue to one queue, in their order."
    )
    delay_levels: str = option(
        StoreConfig().message_delay_level,
        "The brokers' delay levels, as their `messageDelayLevel`.",
    )
    timers: bool = option(
        False,
        "Whether brokers accept any delay in milliseconds, not only their delay levels (RocketMQ 5"
        " with `timerWheelEnable`).",
    )

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse Spark's options.

        Raises:
            ConfigError: an option is unknown, invalid or conflicts with another; names the option.
        """
        own = {name: text for name, text in options.items() if name.lower() not in _OF_SPARK}
        return super(SinkOptions, cls).of(own)

    def check(self) -> None:
        """Raises ConfigError if options conflict."""
        ConnectionOptions.check(self)
        check_group(self.producer_group)
        self.levels()
        if self.topic is not None:
            try:
                check_topic(self.topic)
            except InvalidMessage as exc:
                raise ConfigError(f"topic: {exc.reason}") from exc

    def producer(self) -> ProducerArguments:
        """Arguments of a task's producer."""
        return {
            "send_timeout": self.send_timeout,
            "retries": self.retries,
            "max_message_size": self.max_message_size,
        }

    def levels(self) -> dict[int, int]:
        """Delay levels by milliseconds; the first of equal levels wins.

        Raises:
            ConfigError: the text is not a list of delays; names the bad word.
        """
        try:
            delays = delay_levels(self.delay_levels)
        except ConfigError as exc:
            raise ConfigError(f"delayLevels: {exc}") from exc
        return {ms: delays.index(ms) for ms in delays[1:]}
