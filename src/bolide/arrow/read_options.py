"""What of the messages a reader wants, and how it fetches them."""

from dataclasses import dataclass

import pyarrow as pa

from bolide.arrow.batches import BATCH_BYTES, BATCH_ROWS
from bolide.arrow.cluster import PATIENCE, READER_GROUP
from bolide.arrow.schema import message_schema
from bolide.arrow.value_schema import parse_ddl
from bolide.client.consumer.pull.pull_request import MAX_COUNT
from bolide.client.consumer.subscription import Filter, Sql
from bolide.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Plain values that travel to workers; durations are seconds."""

    tags: str = "*"
    """`A || B`; judged by the broker, and again here."""
    sql: str | None = None
    """A SQL92 expression over properties, judged by the broker; instead of tags."""
    include_properties: bool = True
    value_schema: str | None = None
    """Columns of JSON bodies, such as `id bigint, name string`; they become `value`."""
    fail_on_data_loss: bool = True
    pull_batch_size: int = 1024
    """Messages asked for at a time; brokers have a limit of their own."""
    pull_timeout: float = 10.0
    patience: float = PATIENCE
    """How long a reader goes without progress before it gives up."""
    group: str = READER_GROUP
    """Whose pulls these are by the eyes of the broker; its position does not move."""
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    """Of bodies and properties in one batch; the last message may be more."""

    def __post_init__(self) -> None:
        """Raises ConfigError, BadTagExpression or BadValueSchema."""
        if self.sql is not None and self.tags != "*":
            raise ConfigError("tags and sql: a broker filters by one of them; give only one")
        if not 1 <= self.pull_batch_size <= MAX_COUNT:
            raise ConfigError(f"pull_batch_size={self.pull_batch_size}: must be over 0")
        for name in ("pull_timeout", "batch_rows", "batch_bytes"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be over 0")
        self.filter_of("")
        _ = self.value

    @property
    def value(self) -> pa.StructType | None:
        return None if self.value_schema is None else parse_ddl(self.value_schema)

    @property
    def schema(self) -> pa.Schema:
        """That of every batch."""
        return message_schema(include_properties=self.include_properties, value=self.value)

    def filter_of(self, topic: str) -> Filter:
        """What the broker of a topic is asked for, the topic by its name on the wire."""
        return Filter.of(topic, self.tags if self.sql is None else Sql(self.sql), 0)

    @property
    def wants_all(self) -> bool:
        """Whether every message of a range is to be read."""
        return self.sql is None and not self.filter_of("").tags
