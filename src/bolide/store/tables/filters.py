"""What consumers with SQL filters want, by topic and group (`ConsumerFilterManager`)."""

from msgspec import field

from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class BloomPositions(Struct, kw_only=True):
    """The bits of one consumer in the bit maps of queue extensions."""

    bit_num: Int = 0
    bit_pos: list[Int] = field(default_factory=list)


class ConsumerFilter(Struct, kw_only=True):
    """One group's filter on one topic; times in milliseconds."""

    consumer_group: str
    topic: str
    expression: str | None = None
    expression_type: str | None = None
    born_time: Long = 0
    dead_time: Long = 0
    client_version: Long = 0
    bloom_filter_data: BloomPositions | None = None
    dead: bool = False  # in the file it follows from the times; Java does not read it

    def is_dead(self) -> bool:
        """Whether its consumers have left since it was made."""
        return self.dead_time >= self.born_time


class TopicFilters(Struct, kw_only=True):
    topic: str
    group_filter_data: dict[str, ConsumerFilter] = field(default_factory=dict)


class ConsumerFilters(Struct, kw_only=True):
    filter_data_by_topic: dict[str, TopicFilters] = field(default_factory=dict)
