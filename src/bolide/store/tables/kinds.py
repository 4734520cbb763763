"""Which tables there are: their files, their contents, and how often they are saved.

The shapes are those of 5.x. 4.9 lacks versions and the forbidden table; both read both.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import field

from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.bodies.pop import RequestModeTable
from bolide.protocol.bodies.replication import TimerMetrics
from bolide.protocol.bodies.topics import TopicConfigTable
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Long
from bolide.store.tables.filters import ConsumerFilters
from bolide.store.tables.table import TableKind


class DelayOffsets(Struct, kw_only=True):
    """How far the messages of each delay level were delivered."""

    offset_table: dict[int, Long] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


def _encode(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1)


def _encode_consumer_offsets(offsets: ConsumerOffsets) -> bytes:
    rows = list(offsets.offset_table.items())
    version, groups = _text(offsets.data_version), _text(_topics_by_group(key for key, _ in rows))
    table = ",\n".join([f"  {_text(key)}:{_by_number(queues)}" for key, queues in rows])
    return (
        f'{{\n "dataVersion":{version},\n "groupTopicMap":{groups},'
        f'\n "offsetTable":{{\n{table}\n }}\n}}'
    ).encode()


def _encode_delay_offsets(offsets: DelayOffsets) -> bytes:
    version, table = _text(offsets.data_version), _by_number(offsets.offset_table)
    return f'{{\n "dataVersion":{version},\n "offsetTable":{table}\n}}'.encode()


def _encode_filters(filters: ConsumerFilters) -> bytes:
    for topic in list(filters.filter_data_by_topic.values()):
        for found in list(topic.group_filter_data.values()):
            found.dead = found.is_dead()
    return _encode(filters)


def _topics_by_group(keys: Iterable[str]) -> dict[str, list[str]]:
    """Java writes this beside the offsets and does not read it."""
    found: dict[str, list[str]] = {}
    for key in keys:
        topic, _, group = key.partition("@")
        found.setdefault(group, []).append(topic)
    return found


def _by_number(numbers: Mapping[int, int]) -> str:
    """A map as fastjson writes it: numbers as keys stand bare."""
    return "{" + ",".join([f"{key}:{number}" for key, number in list(numbers.items())]) + "}"


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


TOPICS = TableKind("topics.json", TopicConfigTable, 0.0, _encode)
GROUPS = TableKind("subscriptionGroup.json", GroupConfigTable, 0.0, _encode)
CONSUMER_OFFSETS = TableKind("consumerOffset.json", ConsumerOffsets, 5.0, _encode_consumer_offsets)
DELAY_OFFSETS = TableKind("delayOffset.json", DelayOffsets, 10.0, _encode_delay_offsets)
REQUEST_MODES = TableKind("messageRequestMode.json", RequestModeTable, 0.0, _encode)
CONSUMER_FILTERS = TableKind("consumerFilter.json", ConsumerFilters, 10.0, _encode_filters)
TIMER_METRICS = TableKind("timermetrics", TimerMetrics, 10.0, _encode)
